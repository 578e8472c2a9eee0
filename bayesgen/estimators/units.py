"""Columns whose scales are far apart, brought to a common one while a search runs: digits are lost otherwise.

Factors are powers of two, so that nothing is rounded on the way there and back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from bayesgen.families.base import Params
from bayesgen.families.gaussian import Gaussian
from bayesgen.joint import Block, Joint

MOST_APART, SCALE_ROWS = 1e4, 4096  # scales of columns that differ by more cost digits; rows that show the scales


def factors_of(joint: Joint, x) -> np.ndarray | None:
    """Powers of two that bring the columns to a common scale, where scales are far apart; None where they are not."""
    if sparse.issparse(x):
        return None
    some = x[:: max(1, len(x) // SCALE_ROWS)]
    seen = ~np.isnan(some)
    count = np.maximum(seen.sum(0), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.where(seen, some, 0.0).sum(0) / count
        sd = np.sqrt(np.where(seen, (some - mean) ** 2, 0.0).sum(0) / count)
    sd = np.where((sd > 0) & np.isfinite(sd), sd, 1.0)
    if sd.max() <= MOST_APART * sd.min():
        return None
    factors = np.ones(x.shape[1])
    for block in joint.blocks:
        columns = slice(None) if block.columns is None else list(block.columns)
        if isinstance(block.family, Gaussian) and block.family.covariance.scalable:
            factors[columns] = 2.0 ** np.round(np.log2(sd[columns]))
    return factors


def _of_block(block: Block, factors: np.ndarray) -> np.ndarray:
    return factors if block.columns is None else factors[list(block.columns)]


def into(joint: Joint, x, factors: np.ndarray | None) -> tuple[Joint, Any]:
    """The joint and its rows with columns divided by the factors; no digit is lost."""
    if factors is None:
        return joint, x
    families = [
        block.family.scaled(_of_block(block, factors)) if isinstance(block.family, Gaussian) else block.family
        for block in joint.blocks
    ]
    return joint.with_families(families), x / factors


def out_of(joint: Joint, params: Params, factors: np.ndarray | None) -> Params:
    """Parameters of the divided columns (with any leading axes) as those of the columns."""
    if factors is None:
        return params
    out = dict(params)
    for block in joint.blocks:
        if isinstance(block.family, Gaussian):
            own = block.family.unscaled(joint.params_of(block, params), _of_block(block, factors))
            out |= {joint.prefix(block) + name: np.asarray(value) for name, value in own.items()}
    return out

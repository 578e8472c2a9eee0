"""The log joint density taken apart: the class prior, then one term for each column (or block, or stored cell).

    log p(x, y=k) = log π_k + Σ_t term_t(k) + (what all the classes share)

Differences between two classes are weights of evidence, which add up to the log odds.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from bayesgen.families.base import Params
from bayesgen.joint import Joint
from bayesgen.predict import _padded
from bayesgen.programs import jit

PRIOR = -1  # the feature code of the class prior


class Terms(NamedTuple):
    """Which row and feature each term belongs to. Features: a column's position, PRIOR, or those in `named` beyond them."""

    row: np.ndarray  # (m,)
    feature: np.ndarray  # (m,)
    named: dict[int, tuple]  # code -> (name, columns it stands for)


def layout(joint: Joint, params: Params, x) -> Terms:
    """The terms of rows x, in the order in which `values` gives them."""
    n, d = x.shape
    rows, features = [np.arange(n)], [np.full(n, PRIOR)]
    named: dict[int, tuple] = {}
    for b, block in enumerate(joint.blocks):
        columns = np.arange(d) if block.columns is None else np.asarray(block.columns)
        mine = joint.params_of(block, params)
        if sparse.issparse(x):
            part = block.take_host(x)
            rows.append(np.repeat(np.arange(n), np.diff(part.indptr)))
            features.append(columns[part.indices])
            rest = block.family.present(mine, part[:0])[1:]
            codes = [] if rest[0] is None else [d + b]
            name = rest[1] if len(joint.blocks) == 1 else f"{rest[1][:-1]}: {block.name})"
            named |= {code: (name, ()) for code in codes}
        elif block.family.separable(mine):
            codes = columns.tolist()
        else:
            codes = [d + b]
            named[d + b] = (None, tuple(columns.tolist()))
        rows.append(np.repeat(np.arange(n), len(codes)))
        features.append(np.tile(codes, n))
    return Terms(np.concatenate(rows), np.concatenate(features).astype(int), named)


@jit
def _dense(joint, params, x):
    """Terms of each block: (n, terms, K)."""
    parts = []
    for block in joint.blocks:
        mine, rows = joint.params_of(block, params), block.take(x)
        if block.family.separable(mine):
            parts.append(jnp.moveaxis(block.family.cell_log_prob(mine, rows), 1, 2))
        else:
            parts.append(block.family.log_prob(mine, rows)[:, None, :])
    return parts


@jit
def _dense_draws(joint, draws, x):
    return jax.lax.map(lambda params: _dense(joint, params, x), draws)


def _flat(parts: list, n: int) -> np.ndarray:
    """(n, terms, K) of each block -> (m, K), as `layout` orders them."""
    return np.concatenate([np.asarray(part)[:n].reshape(-1, part.shape[-1]) for part in parts])


def values(joint: Joint, params: Params, x) -> np.ndarray:
    """The terms under each class, (m, K)."""
    n = x.shape[0]
    with np.errstate(divide="ignore"):
        prior = np.tile(np.log(params["class_probs"]), (n, 1))
    if sparse.issparse(x):
        return np.concatenate([prior, *_sparse(joint, params, x)])
    size = max(64, 1 << (n - 1).bit_length())
    return np.concatenate([prior, _flat(_dense(joint, params, _padded(x, size)), n)])


def _sparse(joint: Joint, params: Params, x) -> list[np.ndarray]:
    parts = []
    for block in joint.blocks:
        here, rest, _ = block.family.present(joint.params_of(block, params), block.take_host(x))
        parts += [here] if rest is None else [here, rest]
    return parts


def values_of_draws(joint: Joint, draws: Params, x) -> np.ndarray:
    """The terms under each class for each draw of the parameters, (S, m, K)."""
    num, n = len(draws["class_probs"]), x.shape[0]
    if sparse.issparse(x):
        return np.stack([values(joint, {key: value[s] for key, value in draws.items()}, x) for s in range(num)])
    size = max(64, 1 << (n - 1).bit_length())
    parts = [np.asarray(part)[:, :n] for part in _dense_draws(joint, draws, _padded(x, size))]
    with np.errstate(divide="ignore"):
        prior = np.repeat(np.log(draws["class_probs"])[:, None, :], n, axis=1)
    return np.concatenate([prior, *(part.reshape(num, -1, part.shape[-1]) for part in parts)], axis=1)

"""Several blocks of columns as one family: their product.

    f(x | y=k) = Π_b f_b(x_b | y=k)

Blocks are independent given the parameters, but not once parameters that were sampled together are averaged over: then the
product is averaged as a whole. Parameters carry the keys that they have in the joint.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from bayesgen.families.base import Family, Params, Part
from bayesgen.linalg import Shared


class Product(Family):
    """The blocks of a joint as one family.

    Parameters
    ----------
    joint : Joint
        Its class prior is of no account.
    """

    joint: Any = None

    def _each(self, params: Params, x, cells) -> list[Part]:
        if isinstance(cells, Shared):
            cells = tuple(Shared(jnp.asarray(cells.observed)[np.asarray(block.columns)]) for block in self.joint.blocks)
        cells = (None,) * len(self.joint.blocks) if cells is None else cells
        return [self._part(block, params, x, part) for block, part in zip(self.joint.blocks, cells, strict=True)]

    def _part(self, block, params: Params, x, cells) -> Part:
        columns = np.asarray(block.columns, np.int32)
        mine = self.joint.params_of(block, params)
        return Part(block.family, mine, block.take(x), cells, columns, self.joint.prefix(block))

    def parts(self, params: Params, x, cells=None) -> list[Part]:
        return self._each(params, x, cells)

    def log_prob(self, params: Params, x, cells=None):
        return sum(part.family.log_prob(part.params, part.x, part.cells) for part in self._each(params, x, cells))

    def separable(self, params: Params) -> bool:
        return all(b.family.separable(self.joint.params_of(b, params)) for b in self.joint.blocks)

    def cell_log_prob(self, params: Params, x):
        parts = self._each(params, x, None)
        table = jnp.concatenate([part.family.cell_log_prob(part.params, part.x) for part in parts], -1)
        return table[..., np.argsort(np.concatenate([part.columns for part in parts]))]

    def integrates_missing(self, params: Params) -> bool:
        return all(b.family.integrates_missing(self.joint.params_of(b, params)) for b in self.joint.blocks)

    def sample(self, key, params: Params, y):
        return self.joint.sample_rows(key, params, y)

    def complete(self, key, params: Params, x, y, cells=None):
        cells = (None,) * len(self.joint.blocks) if cells is None else cells
        return self.joint.complete(key, params, x, y, cells)

    def groups(self, missing: np.ndarray):
        return self.joint.groups(missing)

    def width(self, num_features: int) -> int:
        return max(block.family.width(block.num_features(num_features)) for block in self.joint.blocks)

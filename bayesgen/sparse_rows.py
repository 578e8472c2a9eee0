"""Sparse rows, on the host: products with scipy.sparse, so that the zeros are never touched.

The same uses as in `predict`, for joints all of whose families take sparse rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from scipy import sparse
from scipy.special import logsumexp

from bayesgen.families.base import Params
from bayesgen.joint import Joint

CHUNK = 2**22  # stored cells at a time


def chunks(x: sparse.csr_array) -> Iterator[slice]:
    """Slices of rows with about CHUNK stored cells each."""
    bounds = np.searchsorted(x.indptr, np.arange(CHUNK, x.nnz, CHUNK))
    edges = np.unique(np.concatenate([[0], bounds, [x.shape[0]]]))
    yield from (slice(int(a), int(b)) for a, b in itertools.pairwise(edges))


def log_joint(joint: Joint, params: Params, x: sparse.csr_array, *, constants: bool = True) -> np.ndarray:
    """log p(x, y = k), (n, K); constants False: up to a number per row that all the classes share."""
    with np.errstate(divide="ignore"):
        out = np.tile(np.log(params["class_probs"]), (x.shape[0], 1))
    for rows in chunks(x):
        part = x if rows == slice(0, x.shape[0]) else x[rows]
        for block in joint.blocks:
            mine = joint.params_of(block, params)
            out[rows] += block.family.log_prob_sparse(mine, block.take_host(part), constants=constants)
    return out


def log_density(joint: Joint, params: Params, x) -> np.ndarray:
    return logsumexp(log_joint(joint, params, x), axis=1)


def log_proba(joint: Joint, params: Params, x) -> np.ndarray:
    """NaN where every class has density 0: the caller fills in the class prior and says so."""
    table = log_joint(joint, params, x, constants=False)
    with np.errstate(invalid="ignore"):
        return table - logsumexp(table, axis=1, keepdims=True)


def proba(joint: Joint, params: Params, x) -> np.ndarray:
    return np.exp(log_proba(joint, params, x))


def proba_draws(joint: Joint, draws: Params, x) -> np.ndarray:
    """(S, n, K), one draw after the other."""
    num = len(draws["class_probs"])
    out = np.empty((num, x.shape[0], joint.num_classes))
    for s in range(num):
        params = {name: value[s] for name, value in draws.items()}
        table = proba(joint, params, x)
        out[s] = np.where(np.isnan(table), params["class_probs"], table)
    return out


def row_draws(joint: Joint, draws: Params, x, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log p(x_i, y_i | θ_s), (n, S), and log p(k | x_i, θ_s), (n, S, K), one draw after the other."""
    num, n = len(draws["class_probs"]), x.shape[0]
    own, shares = np.empty((n, num)), np.empty((n, num, joint.num_classes))
    for s in range(num):
        params = {name: value[s] for name, value in draws.items()}
        table = log_joint(joint, params, x)
        total = logsumexp(table, axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares[:, s] = np.where(np.isneginf(total), np.log(params["class_probs"]), table - total)
        own[:, s] = np.where(y >= 0, table[np.arange(n), y], total[:, 0])
    return own, shares

"""How low log p(x) lies among the model's own draws: p-values by simulation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from scipy import sparse
from scipy.special import logsumexp as host_logsumexp

from bayesgen import predict
from bayesgen.families.base import Params
from bayesgen.joint import Block, Joint
from bayesgen.linalg import Shared, unique_patterns
from bayesgen.predict import BLOCK_CELLS, has_missing, log_density, sample, sample_batches
from bayesgen.programs import jit

# Simulated rows scored per call, over all patterns (or totals), and the least per pattern.
SIMULATION_BUDGET = 50_000_000
LEAST_DRAWS = 500
# Cells that are simulated at most, beyond LEAST_DRAWS rows, and held at once where rows are scored on several patterns.
SIMULATED_CELLS, HELD_CELLS = 2**27, 2**26
FEW_EVENTS = 2000  # totals of multinomial rows up to which they are simulated event by event


def simulated_tail(joint: Joint, params: Params, x, labels: np.ndarray, key) -> np.ndarray:
    """(r + 1)/(m + 1), r = how many of m draws from the model are at most as likely as each row, on its own cells.

    One set of draws, of classes `labels`, serves all the rows; with many patterns only its first part is used. Equally
    likely draws count, so that the p-values of discrete rows are valid: P(p ≤ a) ≤ a.
    """
    labels = labels[: max(LEAST_DRAWS, SIMULATED_CELLS // joint.num_features)]
    if any(not block.family.takes_missing for block in joint.blocks):
        return _tail_given_totals(joint, params, x, labels, key)
    score = log_density(joint, params, x)
    if sparse.issparse(x) or not has_missing(x):
        parts = [log_density(joint, params, rows) for rows in sample_batches(joint, params, labels, key)]
        below = _count_below(np.concatenate(parts)[None], np.zeros(len(score), int), score)
        return (below + 1) / (len(labels) + 1)
    return _tail_by_pattern(joint, params, x, score, labels, key)


def _tail_by_pattern(joint: Joint, params: Params, x: np.ndarray, score: np.ndarray, labels: np.ndarray, key) -> np.ndarray:
    observed, which, sizes = unique_patterns(~np.isnan(x))
    num = min(max(SIMULATION_BUDGET // len(observed), LEAST_DRAWS), len(labels))
    num = min(num, max(LEAST_DRAWS, HELD_CELLS // joint.num_features))
    draws = sample(joint, params, labels[:num], key)
    order = np.argsort(which, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    below = np.empty(len(x))
    step = max(1, min(len(observed), 4 * BLOCK_CELLS // (num * joint.num_classes * joint.num_features)))
    for first in range(0, len(observed), step):
        chunk = predict._padded(observed[first : first + step], step)
        simulated = np.asarray(_score_patterns(joint, params, draws, chunk))
        rows = order[starts[first] : starts[min(first + step, len(observed))]]
        below[rows] = _count_below(simulated, which[rows] - first, score[rows])
    return (below + 1) / (num + 1)


@jit
def _score_patterns(joint, params, x, observed):
    """log p of the complete rows x restricted to each pattern: observed (P, d) -> (P, m)."""

    def one(pattern):
        cells = tuple(Shared(block.take(pattern)) for block in joint.blocks)
        return logsumexp(joint.log_joint(params, x, cells), -1)

    return jax.vmap(one)(observed)


def _count_below(simulated: np.ndarray, which: np.ndarray, score: np.ndarray) -> np.ndarray:
    """How many of simulated[which[i]] are at most score[i]; `which` is sorted."""
    # A draw and a row that are equally likely may differ by rounding: ties count as below.
    score = score + np.where(np.isfinite(score), 1e-9 * np.maximum(1.0, np.abs(score)), 0.0)
    if len(score) <= 4 * len(simulated):
        return np.count_nonzero(simulated[which] <= score[:, None], axis=1)
    ends = np.searchsorted(which, np.arange(len(simulated) + 1))
    counts = np.empty(len(score))
    for j, values in enumerate(simulated):
        rows = slice(ends[j], ends[j + 1])
        counts[rows] = np.searchsorted(np.sort(values), score[rows], side="right")
    return counts


# -- multinomial blocks: rows are compared with draws of the same totals
def _tail_given_totals(joint: Joint, params: Params, x, labels: np.ndarray, key) -> np.ndarray:
    """The tail of log p(x | totals): the model says nothing of a row's total, so a draw must have the same."""
    counting = [block for block in joint.blocks if not block.family.takes_missing]
    others = [block for block in joint.blocks if block.family.takes_missing]
    totals = np.stack([np.rint(np.asarray(block.take_host(x).sum(1)).ravel()) for block in counting], 1)
    patterns = np.concatenate([totals, *(_observed(block.take_host(x)) for block in others)], 1)
    cases, which = np.unique(patterns, axis=0, return_inverse=True)
    which = which.ravel()
    num = min(len(labels), max(LEAST_DRAWS, SIMULATION_BUDGET // (10 * len(cases) * joint.num_classes)))
    num = min(num, max(LEAST_DRAWS, HELD_CELLS // joint.num_features)) if others else num
    labels = labels[:num]
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    with np.errstate(divide="ignore"):
        base = np.log(params["class_probs"])
    tables = [_given_totals(joint, params, block, labels, totals[:, b], rng) for b, block in enumerate(counting)]
    draws = sample(joint, params, labels, key) if others else np.empty((num, 0))
    score, below = log_density(joint, params, x), np.empty(x.shape[0])
    for i, case in enumerate(cases):
        table = base + sum(t[float(n)] for t, n in zip(tables, case, strict=False))
        if others:
            table = table + _others(joint, params, others, draws, case[len(counting) :].astype(bool))
        rows = np.flatnonzero(which == i)
        below[rows] = _count_below(host_logsumexp(table, axis=1)[None], np.zeros(len(rows), int), score[rows])
    return (below + 1) / (num + 1)


def _observed(x) -> np.ndarray:
    """Which cells of a table are there; all of a sparse one, which one row says."""
    return np.ones((x.shape[0], x.shape[1]), bool) if sparse.issparse(x) else ~np.isnan(x)


def _others(joint: Joint, params: Params, others: list[Block], draws: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """log f of the simulated rows, on the observed cells of the blocks that have no totals, (m, K)."""
    total, start = np.zeros((len(draws), joint.num_classes)), 0
    for block in others:
        width = block.num_features(joint.num_features)
        rows = np.where(observed[start : start + width], block.take_host(draws), np.nan)
        total += np.asarray(_block_log_prob(block.family, joint.params_of(block, params), rows))
        start += width
    return total


@jit
def _block_log_prob(family, params, x):
    return family.log_prob(params, jnp.asarray(x))


def _given_totals(joint: Joint, params: Params, block: Block, labels, totals, rng) -> dict[float, np.ndarray]:
    """For each total, the multinomial log density (m, K) of m simulated rows of that total.

    Rows of few events are the first so many events of one simulated sequence, so that one sequence serves all the totals;
    rows of many events are drawn for themselves.
    """
    mine, wanted = joint.params_of(block, params), np.unique(totals)
    few = wanted <= max(FEW_EVENTS, 4 * block.num_features(joint.num_features))
    out: dict[float, list] = {float(n): [] for n in wanted}
    longest = int(wanted[few].max(initial=0))
    step = max(1, HELD_CELLS // (8 * max(longest, block.num_features(joint.num_features), 1)))
    for start in range(0, len(labels), step):
        part = labels[start : start + step]
        tokens, earlier = simulate_events(mine, part, longest, rng)
        for n, table in _running_scores(mine, tokens, earlier, wanted[few].astype(int)).items():
            out[n].append(table)
        for n in wanted[~few]:
            rows = _rows_of_total(mine, part, n, rng)
            out[float(n)].append(np.asarray(_block_log_prob(block.family, mine, rows)))
    return {n: np.concatenate(parts) for n, parts in out.items()}


def _rows_of_total(params: Params, labels: np.ndarray, total: float, rng) -> np.ndarray:
    weights = _weights(params)[labels]
    if "concentration" in params:
        weights = rng.standard_gamma(weights)
    return rng.multinomial(int(total), weights / weights.sum(1, keepdims=True)).astype(float)


def simulate_events(params: Params, labels: np.ndarray, length: int, rng) -> tuple[np.ndarray, np.ndarray]:
    """(sequences of events (m, length), how often each event's kind came before it in its sequence).

    Under a predictive the sequence is Pólya's urn: the next event repeats one of the t before it with probability
    t/(A + t), and is drawn anew otherwise.
    """
    weights = _weights(params)
    tokens = np.empty((len(labels), length), int)
    for k in np.unique(labels):
        ends = np.cumsum(weights[k]) / weights[k].sum()
        mine = labels == k
        tokens[mine] = np.searchsorted(ends / ends[-1], rng.random((int(mine.sum()), length)), side="right")
    if "concentration" in params:
        strength = weights.sum(1)[labels]
        rows = np.arange(len(labels))
        for t in range(1, length):
            again = rng.random(len(labels)) < t / (strength + t)
            tokens[:, t] = np.where(again, tokens[rows, rng.integers(0, t, len(labels))], tokens[:, t])
    return tokens, _earlier(tokens)


def _weights(params: Params) -> np.ndarray:
    """What the kinds of events are drawn by: probabilities, or the concentrations of a predictive."""
    return params["concentration"] if "concentration" in params else params["prob"]


def _earlier(tokens: np.ndarray) -> np.ndarray:
    """How often each entry stands earlier in its row."""
    order = np.argsort(tokens, axis=1, kind="stable")
    ordered = np.take_along_axis(tokens, order, 1)
    place = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
    first = np.maximum.accumulate(np.where(np.diff(ordered, axis=1, prepend=-1) != 0, place, 0), axis=1)
    out = np.empty_like(tokens)
    np.put_along_axis(out, order, place - first, 1)
    return out


def _running_scores(params: Params, tokens: np.ndarray, earlier: np.ndarray, wanted: np.ndarray) -> dict[float, np.ndarray]:
    """log N!/Πx_j! + log Πθ^x (or its predictive) of the first N events, for each N in `wanted`."""
    step = np.arange(tokens.shape[1])
    coefficient = np.cumsum(np.log1p(step) - np.log1p(earlier), axis=1)
    weights = _weights(params)
    out = {float(n): np.zeros((len(tokens), len(weights))) for n in wanted}
    at = wanted[wanted > 0] - 1
    for k, weight in enumerate(weights):
        with np.errstate(divide="ignore"):
            if "concentration" in params:
                gain = np.log(weight[tokens] + earlier) - np.log(weight.sum() + step)
            else:
                gain = np.log(weight)[tokens]
        sums = np.cumsum(gain, axis=1) + coefficient
        for n, column in zip(wanted[wanted > 0], at, strict=True):
            out[float(n)][:, k] = sums[:, column]
    return out

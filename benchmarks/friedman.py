"""Friedman's simulations: does RDA with leave-one-out weights predict as well as its rivals?

Six settings of J. H. Friedman, Regularized Discriminant Analysis, JASA 84 (1989) 165-175: three normal
classes with equal probabilities, 40 training rows, 10, 20 or 40 columns. Each replication fits LDA, QDA, RDA
with (alpha, gamma) chosen by five-fold cross-validation of the log-loss, and RDA with its "loo" weights, and
takes the log-loss of p(y | x) on new rows. Run ``python benchmarks/friedman.py``.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from scipy.special import logsumexp

from bayesgen import LDA, QDA, RDA

TRAIN_ROWS, FOLDS = 40, 5
GRID = np.linspace(0, 1, 11)
SETTINGS = {
    1: "equal, spherical",
    2: "unequal, spherical",
    3: "equal, ellipsoidal, means in low-variance directions",
    4: "equal, ellipsoidal, means in high-variance directions",
    5: "unequal, ellipsoidal, equal means",
    6: "unequal, ellipsoidal, unequal means",
}
METHODS = ("LDA", "QDA", "RDA, cross-validated", "RDA, loo", "RDA, loo, posterior")


def design(setting: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Means (3, d) and variances (3, d) of the classes; all covariances are diagonal."""
    i = np.arange(1, d + 1)
    means, variances = np.zeros((3, d)), np.ones((3, d))
    rising = (9 * (i - 1) / (d - 1) + 1) ** 2
    if setting <= 2:
        means[1, 0], means[2, 1] = 3, 2 + setting
        variances *= [[1], [2], [3]] if setting == 2 else 1
    elif setting <= 4:
        variances[:] = rising
        means[1] = 2.5 * np.sqrt(rising / d) * (d - i if setting == 3 else i - 1) / (d / 2 - 1)
    else:
        variances[:] = rising, (9 * (d - i) / (d - 1) + 1) ** 2, (9 * (i - (d - 1) / 2) / (d - 1)) ** 2
        means[1] = 14 / np.sqrt(d) if setting == 6 else 0
    if setting > 2:
        means[2] = (-1.0) ** i * means[1]
    return means, variances


def draw(rng: np.random.Generator, setting: int, d: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and classes; redrawn until every class has two rows, so that a covariance can be estimated."""
    means, variances = design(setting, d)
    y = rng.integers(0, 3, rows)
    while np.bincount(y, minlength=3).min() < 2:
        y = rng.integers(0, 3, rows)
    return means[y] + np.sqrt(variances[y]) * rng.normal(size=(rows, d)), y


def log_loss(log_probs: np.ndarray, y: np.ndarray) -> float:
    """Mean of -log p(y | x)."""
    return float(-log_probs[np.arange(len(y)), y].mean())


def moments(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts (3,), means (3, d) and covariances (3, d, d) of the classes."""
    parts = [x[y == k] for k in range(3)]
    centred = [part - part.mean(0) for part in parts]
    covariances = np.array([c.T @ c / len(c) for c in centred])
    return np.array([len(part) for part in parts]), np.array([part.mean(0) for part in parts]), covariances


def rda_log_probs(fitted, x: np.ndarray, alpha: float, gamma: float) -> np.ndarray:
    """log p(y | x) of RDA in plain NumPy; raises LinAlgError for a singular covariance."""
    counts, means, covariances = fitted
    pooled = np.tensordot(counts / counts.sum(), covariances, 1)
    target = gamma * pooled + (1 - gamma) * np.trace(pooled) / x.shape[1] * np.eye(x.shape[1])
    factor = np.linalg.cholesky(alpha * covariances + (1 - alpha) * target)
    z = np.linalg.solve(factor, (x - means[:, None]).transpose(0, 2, 1))
    joint = np.log(counts) - np.log(np.einsum("kii->ki", factor)).sum(1) - 0.5 * (z * z).sum(1).T
    return joint - logsumexp(joint, axis=1, keepdims=True)


def folds(rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
    """Fold of each row, the classes spread evenly."""
    order = np.concatenate([rng.permutation(np.flatnonzero(y == k)) for k in range(3)])
    fold = np.empty(len(y), int)
    fold[order] = np.arange(len(y)) % FOLDS
    return fold


def cross_validate(rng: np.random.Generator, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """The (alpha, gamma) of the grid with the lowest held-out log-loss."""
    fold, losses = folds(rng, y), np.zeros((len(GRID), len(GRID)))
    for f in range(FOLDS):
        fitted, x_out, y_out = moments(x[fold != f], y[fold != f]), x[fold == f], y[fold == f]
        for cell in np.ndindex(losses.shape):
            try:
                losses[cell] += len(y_out) * log_loss(rda_log_probs(fitted, x_out, *GRID[list(cell)]), y_out)
            except np.linalg.LinAlgError:
                losses[cell] = np.inf
    best = np.unravel_index(losses.argmin(), losses.shape)
    return float(GRID[best[0]]), float(GRID[best[1]])


def replicate(rng: np.random.Generator, setting: int, d: int, test_rows: int) -> list[float]:
    """Test log-loss of each method on one draw."""
    x, y = draw(rng, setting, d, TRAIN_ROWS)
    x_new, y_new = draw(rng, setting, d, test_rows)
    alpha, gamma = cross_validate(rng, x, y)
    models = [LDA(method="map"), QDA(method="map"), RDA(alpha, gamma), RDA(), RDA(method="posterior")]
    return [log_loss(model.fit(x, y).predict_log_proba(x_new), y_new) for model in models]


def run(seed: int, setting: int, d: int, replications: int, test_rows: int) -> np.ndarray:
    """Test log-losses (replications, methods), each replication with a seed of its own."""
    losses = []
    for r in range(replications):
        print(f"\r{d} columns, setting {setting}: {r + 1}/{replications} ", end="", file=sys.stderr)
        losses.append(replicate(np.random.default_rng([seed, d, setting, r]), setting, d, test_rows))
    print("\r", end="", file=sys.stderr)
    return np.array(losses)


def check_rival() -> None:
    """The NumPy RDA of the cross-validation is the estimator."""
    x, y = draw(np.random.default_rng(0), 3, 10, TRAIN_ROWS)
    for alpha, gamma in [(0.0, 0.0), (0.3, 0.6), (0.9, 1.0)]:
        log_probs = rda_log_probs(moments(x, y), x, alpha, gamma)
        np.testing.assert_allclose(RDA(alpha, gamma).fit(x, y).predict_log_proba(x), log_probs, atol=1e-8)


def line(name: str, losses: np.ndarray) -> str:
    """One line of the table: means (standard errors), the lowest in bold, and "loo" minus cross-validated."""
    means, errors = losses.mean(0), losses.std(0, ddof=1) / np.sqrt(len(losses))
    texts = [f"{m:.3f} ({e:.3f})" for m, e in zip(means, errors, strict=True)]
    texts[means.argmin()] = f"**{texts[means.argmin()]}**"
    gap = losses[:, 3] - losses[:, 2]
    texts.append(f"{gap.mean():+.3f} ({gap.std(ddof=1) / np.sqrt(len(gap)):.3f})")
    return f"| {name} | " + " | ".join(texts) + " |"


def main() -> None:
    """Parse the options, run every setting, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--test-rows", type=int, default=1000)
    parser.add_argument("--columns", type=int, nargs="+", default=[10, 20, 40])
    args = parser.parse_args()
    check_rival()
    print(f"Mean test log-loss (standard error), {args.replications} replications\n")
    print("| columns, setting | " + " | ".join(METHODS) + " | loo - cross-validated |")
    print("|---" * (len(METHODS) + 2) + "|")
    everything = []
    for d in args.columns:
        for setting, name in SETTINGS.items():
            losses = run(args.seed, setting, d, args.replications, args.test_rows)
            print(line(f"{d}, {setting}: {name}", losses), flush=True)
            everything.append(losses)
    print(line("mean of all", np.mean(everything, axis=0)))


if __name__ == "__main__":
    main()

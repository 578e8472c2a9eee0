"""Training on rows with missing cells: EM of a full covariance against scikit-learn's IterativeImputer, in one run.

    python benchmarks/incomplete.py                 # 100,000 x 20, 20% of the cells missing, 5 classes
    python benchmarks/incomplete.py --memory        # peak extra memory of fit, as a share of X
    python benchmarks/incomplete.py --labels        # what rows without label are worth: the figures of docs/incomplete.md

Both see the same table with holes and end with a joint normal law of its columns: ours by class, to convergence; the peer's
by ten rounds of regressions of each column on the others, all the classes together. A ratio above 1 means that bayesgen is
faster. The first fit compiles; it is timed apart.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from threadpoolctl import threadpool_limits
from timing import cell, least_times

from bayesgen import LDA, QDA, GaussianNB


def make_table(rows: int, columns: int, classes: int, share: float = 0.2, seed: int = 0):
    """Rows of correlated normal classes with holes, their labels, and the classes' covariances."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, rows)
    mix = rng.normal(size=(classes, columns, columns)) / np.sqrt(columns) + np.eye(columns)
    x = np.empty((rows, columns))
    for k in range(classes):
        x[y == k] = rng.normal(size=(int(np.sum(y == k)), columns)) @ mix[k].T + rng.normal(size=columns)
    x[rng.random(x.shape) < share] = np.nan
    return x, y, mix @ mix.transpose(0, 2, 1)


def print_ratios(x: np.ndarray, y: np.ndarray, truth: np.ndarray, repeats: int) -> None:
    share = np.isnan(x).mean()
    size = f"{x.shape[0]:,} x {x.shape[1]}, {share:.0%} of the cells missing, {len(truth)} classes"
    print(f"{size}; milliseconds, least of {repeats}")
    start = time.perf_counter()
    QDA().fit(x, y)
    print(f"first fit of QDA, with compilation: {time.perf_counter() - start:.1f} s")
    for threads in (None, 1):
        print(f"\nBLAS threads: {threads or 'all'}\n")
        print("| case | bayesgen | IterativeImputer | ratio | EM steps | off |\n|---|---|---|---|---|---|")
        with threadpool_limits(threads, user_api="blas"):
            for kind in (QDA, LDA):
                print(f"| {kind.__name__} | {race(kind, x, y, truth, repeats)} |", flush=True)


def race(kind, x, y, truth, repeats: int) -> str:
    clf, peer = kind(), IterativeImputer(max_iter=10, random_state=0)
    clf.fit(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # ten rounds are what is asked for
        times = least_times({"ours": lambda: clf.fit(x, y), "peer": lambda: peer.fit_transform(x)}, repeats)
    off = np.abs(clf.covariances_ - truth).max() if kind is QDA else np.nan
    assert clf.converged_
    return f"{cell(times)} | {clf.n_iter_} | {off:.2f}"


MEMORY = """
import resource, sys, threading, time
sys.path.insert(0, {here!r})
import numpy as np
from incomplete import make_table
from bayesgen import {kind}
x, y, _ = make_table({rows}, {columns}, {classes})
{kind}().fit(x, y)

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

top, stop = [resident()], threading.Event()
before = top[0]
def watch():
    while not stop.is_set():
        top[0] = max(top[0], resident()); time.sleep(0.0005)
thread = threading.Thread(target=watch); thread.start()
{kind}().fit(x, y); stop.set(); thread.join()
print(f"| {kind} | {{(top[0] - before) / x.nbytes:.2f}} |")
"""


def print_memory(rows: int, columns: int, classes: int) -> None:
    print(f"peak extra resident memory of fit on {rows:,} x {columns} with 20% missing, as a share of X\n")
    print("| case | fit |\n|---|---|")
    for kind in ("QDA", "LDA"):
        here = str(Path(__file__).parent)
        code = MEMORY.format(here=here, rows=rows, columns=columns, classes=classes, kind=kind)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        print(done.stdout.strip(), flush=True)


def print_labels(replications: int = 20) -> None:
    """Accuracy on 1,000 further rows, two normal classes, 1,000 rows of which few have a label."""
    print(f"accuracy, mean of {replications} replications\n")
    print("| labels | classifier | labelled rows alone | with the others | all labels |\n|---|---|---|---|---|")
    for labels in (4, 10, 20, 100):
        for kind in (LDA, QDA, GaussianNB):
            scores = np.mean([_accuracies(kind, labels, seed) for seed in range(replications)], axis=0)
            print(f"| {labels} | {kind.__name__} | " + " | ".join(f"{score:.3f}" for score in scores) + " |", flush=True)


def _accuracies(kind, labels: int, seed: int) -> tuple[float, float, float]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 2000)
    x = rng.normal(size=(2000, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]]) + np.array([[0.0, 0.0], [2.0, -1.0]])[y]
    some = np.concatenate([np.flatnonzero(y[:1000] == k)[: labels // 2] for k in (0, 1)])
    few = np.full(1000, np.nan)
    few[some] = y[some]
    fits = kind().fit(x[some], y[some]), kind().fit(x[:1000], few), kind().fit(x[:1000], y[:1000])
    a, b, c = (clf.score(x[1000:], y[1000:]) for clf in fits)
    return a, b, c


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--classes", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--labels", action="store_true")
    given = parser.parse_args()
    if given.memory:
        print_memory(given.rows, given.columns, given.classes)
    elif given.labels:
        print_labels()
    else:
        print_ratios(*make_table(given.rows, given.columns, given.classes), given.repeats)


if __name__ == "__main__":
    main()

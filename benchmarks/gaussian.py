"""Time LDA, QDA and GaussianNB against scikit-learn, interleaved in one run, and print the ratios.

    python benchmarks/gaussian.py                  # 1,000,000 x 20, 5 classes
    python benchmarks/gaussian.py --rows 100000 --repeats 5
    python benchmarks/gaussian.py --memory         # peak extra memory of fit and predict_proba, as a share of X
    python benchmarks/gaussian.py --outliers       # outlier_pvalues on 100,000 rows with 20% of the cells missing

A ratio above 1 means that bayesgen is faster. Each figure is the least time of the repeats, both sides taking turns;
everything is run with all BLAS threads and again with one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.naive_bayes import GaussianNB as PeerNB
from threadpoolctl import threadpool_limits
from timing import cell, least_times

from bayesgen import LDA, QDA, GaussianNB

PAIRS = {
    "GaussianNB": (lambda: GaussianNB(method="mle"), lambda: PeerNB(var_smoothing=0.0)),
    "LDA (svd)": (lambda: LDA(method="mle"), lambda: LinearDiscriminantAnalysis(solver="svd")),
    "LDA (lsqr)": (lambda: LDA(method="mle"), lambda: LinearDiscriminantAnalysis(solver="lsqr")),
    "QDA": (lambda: QDA(method="mle"), lambda: QuadraticDiscriminantAnalysis()),
}


def make_table(rows: int, columns: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, rows)
    x = rng.standard_normal((rows, columns))
    x += rng.normal(size=(classes, columns))[y]
    return x, y


def race(name: str, x: np.ndarray, y: np.ndarray, repeats: int) -> list[str]:
    ours, peer = (make() for make in PAIRS[name])
    ours.fit(x, y).predict_proba(x)  # compiles
    peer.fit(x, y)
    gap = np.abs(ours.predict_proba(x[:10_000]) - peer.predict_proba(x[:10_000])).max()
    fit = least_times({"ours": lambda: ours.fit(x, y), "peer": lambda: peer.fit(x, y)}, repeats)
    use = least_times({"ours": lambda: ours.predict_proba(x), "peer": lambda: peer.predict_proba(x)}, repeats)
    return [name, cell(fit), cell(use), f"{gap:.1e}"]


def print_ratios(x: np.ndarray, y: np.ndarray, repeats: int) -> None:
    print(f"{x.shape[0]:,} x {x.shape[1]}, {len(np.unique(y))} classes; milliseconds, least of {repeats}")
    for threads in (None, 1):
        print(f"\nBLAS threads: {threads or 'all'}\n")
        print(
            "| case | fit: bayesgen | scikit-learn | ratio | predict_proba: bayesgen | scikit-learn | ratio | largest gap |"
        )
        print("|---|---|---|---|---|---|---|---|")
        with threadpool_limits(threads):
            for name in PAIRS:
                print("| " + " | ".join(race(name, x, y, repeats)) + " |", flush=True)


MEMORY = """
import resource, sys, threading, time
import numpy as np
import bayesgen
sys.path.insert(0, {here!r})
from gaussian import make_table
x, y = make_table({rows}, {columns}, {classes})
clf = getattr(bayesgen, {kind!r})(method={method!r}).fit(x[:20000], y[:20000])
clf.predict_proba(x[:20000]); clf.predict_proba(x[:16384])

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def peak(task):
    top, stop = [resident()], threading.Event()
    before = top[0]
    def watch():
        while not stop.is_set():
            top[0] = max(top[0], resident()); time.sleep(0.0005)
    thread = threading.Thread(target=watch); thread.start()
    task(); top[0] = max(top[0], resident()); stop.set(); thread.join()
    return (top[0] - before) / x.nbytes

fit = peak(lambda: clf.fit(x, y))
use = peak(lambda: clf.predict_proba(x))
print(f"| {kind} {method} | {{fit:.2f}} | {{use:.2f}} |")
"""


def print_memory(rows: int, columns: int, classes: int) -> None:
    print(f"peak extra resident memory on {rows:,} x {columns}, as a share of X\n")
    print("| case | fit | predict_proba |\n|---|---|---|")
    for kind in ("GaussianNB", "LDA", "QDA"):
        for method in ("map", "posterior"):
            here = str(__import__("pathlib").Path(__file__).parent)
            code = MEMORY.format(here=here, rows=rows, columns=columns, classes=classes, kind=kind, method=method)
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            print(done.stdout.strip(), flush=True)


def print_outliers(rows: int, columns: int, classes: int) -> None:
    x, y = make_table(rows, columns, classes)
    gaps = np.where(np.random.default_rng(1).random(x.shape) < 0.2, np.nan, x)
    for clf in (
        QDA(random_state=0),
        QDA(method="posterior", random_state=0),
        LDA(random_state=0),
        GaussianNB(random_state=0),
    ):
        clf.fit(x[:20_000], y[:20_000])
        start = time.perf_counter()
        pvalues = clf.outlier_pvalues(gaps)
        print(f"{clf}: {time.perf_counter() - start:.1f} s for {rows:,} rows, mean p-value {pvalues.mean():.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--classes", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--outliers", action="store_true")
    given = parser.parse_args()
    size = (given.columns, given.classes)
    if given.memory:
        print_memory(given.rows or 1_000_000, *size)
    elif given.outliers:
        print_outliers(given.rows or 100_000, *size)
    else:
        print_ratios(*make_table(given.rows or 1_000_000, *size), given.repeats)


if __name__ == "__main__":
    main()

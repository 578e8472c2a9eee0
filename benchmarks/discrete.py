"""Time the discrete classifiers against scikit-learn, interleaved in one run, and print the ratios.

    python benchmarks/discrete.py                  # sparse text 20,000 x 50,000 with 3 million non-zeros, 20 classes;
                                                   # categories 500,000 x 10
    python benchmarks/discrete.py --scale 0.1      # a tenth of the rows

A ratio above 1 means that bayesgen is faster. Each figure is the least time of the repeats, both sides taking turns.
"""

from __future__ import annotations

import argparse

import numpy as np
import scipy.sparse
from sklearn import naive_bayes as peer
from timing import cell, least_times

import bayesgen


def make_text(rows: int, columns: int, per_row: int, classes: int, seed: int = 0):
    """Counts of words with a long tail, in classes that share most of their words."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, rows)
    words = (columns * rng.random(rows * per_row) ** 3).astype(np.int32)
    words = np.where(rng.random(len(words)) < 0.2, (words + 97 * np.repeat(y, per_row)) % columns, words)
    data = np.minimum(rng.geometric(0.7, len(words)), 9).astype(float)
    x = scipy.sparse.csr_matrix((data, words, np.arange(0, len(words) + 1, per_row)), shape=(rows, columns))
    x.sum_duplicates()
    return x, y


def make_categories(rows: int, columns: int, categories: int, classes: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, rows)
    return (rng.integers(0, categories, (rows, columns)) + y[:, None] * (rng.random((rows, columns)) < 0.3)) % categories, y


def race(name: str, ours, theirs, x, y, use: str, repeats: int) -> str:
    ours.fit(x, y)
    theirs.fit(x, y)
    gap = np.abs(ours.predict_log_proba(x[:5000]) - theirs.predict_log_proba(x[:5000])).max()
    getattr(ours, use)(x)  # compiles
    fit = least_times({"ours": lambda: ours.fit(x, y), "peer": lambda: theirs.fit(x, y)}, repeats)
    uses = least_times({"ours": lambda: getattr(ours, use)(x), "peer": lambda: getattr(theirs, use)(x)}, repeats)
    return f"| {name} | {cell(fit)} | {cell(uses)} | {gap:.1e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    text = make_text(int(20_000 * given.scale), 50_000, 160, 20)
    cats = make_categories(int(500_000 * given.scale), 10, 8, 3)
    print(f"text {text[0].shape} with {text[0].nnz:,} non-zeros; categories {cats[0].shape}; milliseconds\n")
    print("| case | fit: bayesgen | scikit-learn | ratio | predict: bayesgen | scikit-learn | ratio | largest gap |")
    print("|---|---|---|---|---|---|---|---|")
    cases = [
        ("MultinomialNB", bayesgen.MultinomialNB(), peer.MultinomialNB(), text, "predict_log_proba"),
        ("BernoulliNB", bayesgen.BernoulliNB(binarize=0.0), peer.BernoulliNB(), text, "predict_log_proba"),
        ("ComplementNB", bayesgen.ComplementNB(), peer.ComplementNB(), text, "predict_log_proba"),
        ("CategoricalNB", bayesgen.CategoricalNB(), peer.CategoricalNB(), cats, "predict"),
    ]
    for name, ours, theirs, (x, y), use in cases:
        print(race(name, ours, theirs, x, y, use, given.repeats), flush=True)


if __name__ == "__main__":
    main()

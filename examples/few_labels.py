"""Ten labels in a thousand rows: what the rows without label are worth, and when they mislead.

    python examples/few_labels.py                       # the figures
    python examples/few_labels.py --plot few_labels.png

Two normal classes of correlated columns. LDA's model is right, and the rows without label tell it nearly all that their
labels would. Gaussian naive Bayes takes the columns to be independent, which is wrong, and believes the many rows more
than the few labels.
"""

import argparse

import numpy as np

from bayesgen import LDA, GaussianNB

LABELS, REPLICATIONS = (4, 10, 20, 100), 20
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#E69F00", "#009E73", "#CC79A7"  # which colour-blind readers can tell apart


def make_rows(seed, n=2000):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, 2)) @ [[1.0, 0.6], [0.0, 0.8]] + np.array([[0.0, 0.0], [2.0, -1.0]])[y], y


def with_few(y, labels):
    """The first labels of each class; NaN for the others."""
    few = np.full(len(y), np.nan)
    for k in (0, 1):
        mine = np.flatnonzero(y == k)[: labels // 2]
        few[mine] = k
    return few


def accuracies(kind, labels):
    """(labelled rows alone, all the rows, all the labels), averaged: trained on 1,000 rows, tested on 1,000 others."""
    found = []
    for seed in range(REPLICATIONS):
        x, y = make_rows(seed)
        train, test, few = slice(0, 1000), slice(1000, None), with_few(y[:1000], labels)
        some = ~np.isnan(few)
        fits = kind().fit(x[train][some], few[some]), kind().fit(x[train], few), kind().fit(x[train], y[train])
        found.append([clf.score(x[test], y[test]) for clf in fits])
    return np.mean(found, axis=0)


def draw(path, table):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.9), constrained_layout=True)
    draw_rows(axes[0])
    for ax, kind in zip(axes[1:], table, strict=True):
        lines = np.array([table[kind][labels] for labels in LABELS])
        ax.axhline(lines[:, 2].mean(), color="0.4", linestyle=":", label="all 1,000 labels")
        ax.plot(LABELS, lines[:, 1], "o-", color=BLUE, label="few labels, 1,000 rows")
        ax.plot(LABELS, lines[:, 0], "s--", color=ORANGE, label="the labelled rows alone")
        ax.set(xscale="log", xticks=LABELS, xlabel="labels", ylabel="accuracy", ylim=(0.55, 1.0), title=kind)
        ax.set_xticklabels(LABELS)
        ax.minorticks_off()
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    axes[1].legend(loc="lower right", frameon=False)
    figure.savefig(path, dpi=150)


def draw_rows(ax):
    """The rows, ten of them labelled, and where LDA draws the line with and without the others."""
    x, y = make_rows(3, 1000)
    few = with_few(y, 10)
    some = ~np.isnan(few)
    ax.plot(*x[~some].T, ".", color="0.8", markersize=3, zorder=0)
    for k, marker in ((0, "o"), (1, "^")):
        ax.plot(*x[few == k].T, marker, color=(GREEN, PINK)[k], markeredgecolor="k", markersize=8)
    grid = np.stack(np.meshgrid(np.linspace(-4, 6, 200), np.linspace(-5, 5, 200)), -1)
    for rows, labels, style, color in ((x[some], few[some], "--", ORANGE), (x, few, "-", BLUE), (x, y, ":", "0.3")):
        proba = LDA().fit(rows, labels).predict_proba(grid.reshape(-1, 2))[:, 1].reshape(200, 200)
        ax.contour(grid[..., 0], grid[..., 1], proba, [0.5], colors=color, linestyles=style, linewidths=2)
    ax.set(xlim=(-4, 6), ylim=(-5, 4.5), xlabel="first column", ylabel="second column", title="ten labels (LDA)")


def main(plot=None):
    table = {kind.__name__: {labels: accuracies(kind, labels) for labels in LABELS} for kind in (LDA, GaussianNB)}
    for name, lines in table.items():
        for labels, (alone, few, all_) in lines.items():
            print(f"{name:10s} {labels:4d} labels: alone {alone:.3f}, with the others {few:.3f}, all labels {all_:.3f}")
    if plot:
        draw(plot, table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", help="where to write the figure")
    main(parser.parse_args().plot)

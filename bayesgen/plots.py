"""Pictures of what fitted classifiers say: class probabilities, evidence, synthetic rows, filled cells, outliers, scores.

Every function draws on one matplotlib Axes (`ax`, by default a new one) and returns it. matplotlib is imported only when
something is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from bayesgen.drawing import INK, PALETTE, axes, down_the_side, legend_above, style, tidy
from bayesgen.model_plots import compare as compare

GRID_POINTS = 60


def class_probabilities(proba, low, high, classes, *, names=None, title=None, ax=None):
    """Class probabilities of a few rows, with their intervals.

    Parameters
    ----------
    proba, low, high : arrays (n, K)
        `clf.predict_proba(X)` and the two arrays of `clf.predict_proba_interval(X)`.
    classes : array-like (K,)
        `clf.classes_`.
    names : list of str, optional
        A name for each row.
    title : str, optional
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> ax = class_probabilities([[0.2, 0.8]], [[0.1, 0.6]], [[0.4, 0.9]], ["no", "yes"], names=["row 7"], ax=ax)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['row 7']
    """
    ax, proba = axes(ax), np.asarray(proba)
    rows = np.arange(len(proba))
    for k, name in enumerate(classes):
        colour, marker = style(k)
        place = rows + 0.5 * ((k + 0.5) / len(classes) - 0.5)
        ax.hlines(place, np.asarray(low)[:, k], np.asarray(high)[:, k], color=colour, linewidth=2)
        ax.plot(proba[:, k], place, marker, color=colour, markersize=6, label=str(name), clip_on=False)
    down_the_side(ax, [f"row {i}" for i in rows] if names is None else names)
    for i in rows[:-1]:
        ax.axhline(i + 0.5, color="#dddddd", linewidth=0.8, zorder=0)
    ax.set_xlim(0, 1)
    ax.set_xlabel("probability and its interval")
    legend_above(ax, len(classes))
    tidy(ax, title, pad=24)
    return ax


def two_columns(clf, X, y, columns, *, synthetic=None, names=None, title=None, ax=None):
    """Rows of a table and synthetic rows in two columns, with lines that hold 50% and 90% of each class.

    The lines belong to the model: the density of the two columns, the others integrated out.

    Parameters
    ----------
    clf : fitted classifier
    X : array or data frame (n, d)
    y : array-like (n,)
    columns : pair of column names (positions for arrays)
    synthetic : (X, y), optional
        From `clf.sample`; by default 300 rows are drawn.
    names : pair of str, optional
        Axis labels.
    title : str, optional
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from bayesgen import LDA
    >>> X, y = np.array([[0.0, 1.0], [1.0, 0.0], [5.0, 6.0], [6.0, 5.0]]), ["a", "a", "b", "b"]
    >>> ax = two_columns(LDA().fit(X, y), X, y, (0, 1), synthetic=(X, y), names=["height", "width"], ax=Figure().subplots())
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('height', 'width')
    """
    ax = axes(ax)
    rows, labels = clf.sample(300) if synthetic is None else synthetic
    real, drawn = _pair(X, columns), _pair(rows, columns)
    across, up, density, drawn_density = _density(clf, X, columns, real, drawn)
    for k, name in enumerate(clf.classes_):
        (colour, marker), mine = style(k), np.asarray(labels) == name
        ax.plot(*real[np.asarray(y) == name].T, marker, color=colour, markersize=4, alpha=0.75, mew=0, label=str(name))
        ax.plot(*drawn[mine].T, marker, color=colour, markersize=4.5, alpha=0.6, markerfacecolor="none")
        if mine.sum() >= 20:
            levels = np.unique(np.quantile(drawn_density[mine, k], (0.1, 0.5)))
            ax.contour(across, up, density[..., k], levels, colors=colour, linewidths=1.2, linestyles="solid")
    ax.set_xlabel(str(columns[0] if names is None else names[0]))
    ax.set_ylabel(str(columns[1] if names is None else names[1]))
    ax.legend(frameon=False)
    tidy(ax, title)
    return ax


def _pair(X, columns) -> np.ndarray:
    """Two columns of a table as an (n, 2) array."""
    pair = X[list(columns)] if hasattr(X, "columns") else np.asarray(X)[:, list(columns)]
    return np.asarray(pair, dtype=float)


def _density(clf, X, columns, real: np.ndarray, drawn: np.ndarray):
    """log p(two columns, class) on a grid and at the drawn rows: grid axes, (g, g, K), (n, K)."""
    both = np.concatenate([real, drawn])
    margin = 0.05 * np.ptp(both, axis=0)
    axes = np.linspace(both.min(0) - margin, both.max(0) + margin, GRID_POINTS).T
    grid = np.stack(np.meshgrid(*axes), -1).reshape(-1, 2)
    # One call for the grid and the rows: they have the same observed cells.
    values = clf.log_joint(_only(X, columns, np.concatenate([grid, drawn])))
    return *axes, values[: len(grid)].reshape(GRID_POINTS, GRID_POINTS, -1), values[len(grid) :]


def _only(X, columns, values: np.ndarray):
    """A table like X with only two columns known."""
    if hasattr(X, "columns"):
        return pd.DataFrame(values, columns=list(columns)).reindex(columns=X.columns)
    table = np.full((len(values), np.shape(X)[1]), np.nan)
    table[:, list(columns)] = values
    return table


def imputed_cells(cells: pd.DataFrame, *, names=None, title=None, ax=None):
    """Filled cells with their intervals, each on the range of its own column.

    Parameters
    ----------
    cells : data frame
        One row per cell, with the columns mean, low, high, smallest, largest (the range of the column) and, optionally,
        truth (NaN where it is not known).
    names : list of str, optional
        A name for each cell.
    title : str, optional
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> cells = pd.DataFrame({"mean": [4], "low": [3], "high": [6], "smallest": [0], "largest": [8]}, index=["mass"])
    >>> ax = imputed_cells(cells, ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['mass']
    """
    ax = axes(ax)
    span = cells["largest"] - cells["smallest"]
    at = {key: (cells[key] - cells["smallest"]) / span for key in ("mean", "low", "high", "truth") if key in cells}
    place = np.arange(len(cells))
    ax.hlines(place, 0, 1, color="#e4e4e4", linewidth=7, zorder=0)
    ax.hlines(place, at["low"], at["high"], color=PALETTE[4], linewidth=4, label="interval")
    ax.plot(at["mean"], place, "o", color=PALETTE[0], markersize=7, label="mean")
    if "truth" in at:
        ax.plot(at["truth"], place, "x", color=INK, markersize=8, mew=2, label="truth")
    down_the_side(ax, list(cells.index) if names is None else names)
    ax.set_xlim(-0.02, 1.02)
    ax.set_xticks([0, 1], ["smallest\nin the table", "largest\nin the table"])
    legend_above(ax, 3)
    tidy(ax, title, pad=24)
    return ax


def outliers(pvalues, *, names=None, lowest: int = 5, title=None, ax=None):
    """Outlier p-values in order, against what rows from the model itself would give (the dashed line).

    Parameters
    ----------
    pvalues : array (n,)
        `clf.outlier_pvalues(X)`.
    names : list of str, optional
        A name for each row; the `lowest` p-values get theirs written beside them.
    lowest : int, default 5
    title : str, optional
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = outliers([0.3, 0.001, 0.8], lowest=1, ax=Figure().subplots())
    >>> [text.get_text() for text in ax.texts]
    ['row 1']
    """
    ax, values = axes(ax), np.asarray(pvalues)
    order = np.argsort(values, kind="stable")
    expected = (np.arange(len(values)) + 0.5) / len(values)
    ax.plot(expected, expected, "--", color="#888888", linewidth=1)
    ax.plot(expected[lowest:], values[order[lowest:]], ".", color=PALETTE[0], markersize=5)
    ax.plot(expected[:lowest], values[order[:lowest]], "o", color=PALETTE[5], markersize=6)
    ax.set_xscale("log")
    ax.set_yscale("log")
    texts = [f"row {row}" if names is None else names[row] for row in order[:lowest]]
    _label_points(ax, expected[:lowest], values[order[:lowest]], texts)
    ax.set_xlabel("p-value expected for this rank")
    ax.set_ylabel("outlier p-value")
    tidy(ax, title)
    return ax


def _label_points(ax, x: np.ndarray, y: np.ndarray, texts: Sequence[str]) -> None:
    """Names to the right of points in ascending order of y (log scale), pushed up where they would overlap."""
    low, high = np.log10(ax.get_ylim())
    place = -np.inf
    for across, up, text in zip(x, y, texts, strict=True):
        place = max(np.log10(up), place + 0.045 * (high - low))
        arrow = {"arrowstyle": "-", "color": "#999999", "linewidth": 0.8}
        at = {"xytext": (3 * across, 10**place), "va": "center", "fontsize": 9, "color": INK}
        ax.annotate(text, (across, up), arrowprops=arrow, **at)


def evidence(table: pd.DataFrame, *, row=None, cls=None, top: int = 12, title=None, ax=None):
    """The evidence behind one answer as bars: what speaks for a class and what against it.

    The prior comes first, then the features by the size of their log ratio, the small ones together, and the sum of all:
    the log odds. Lines are the intervals of a posterior.

    Parameters
    ----------
    table : data frame
        `clf.explain(X)`.
    row : int, optional
        Which row of X; by default the first in the table.
    cls : label, optional
        Which class; by default the one of the largest log odds against the reference.
    top : int, default 12
        How many features get a bar of their own.
    title : str, optional
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> table = pd.DataFrame({"row": 0, "class": "ill", "reference": "well", "feature": ["(prior)", "cough", "fever"],
    ...                       "log_ratio": [0.0, 1.1, -2.0]})
    >>> ax = evidence(table, ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['(prior)', 'fever', 'cough', 'sum: log odds']
    """
    part = _one_answer(table, row, cls)
    bars = _bars(part, top)
    ax, place = axes(ax), np.arange(len(bars))
    colours = [PALETTE[0] if value > 0 else PALETTE[5] for value in bars["log_ratio"]]
    colours[-1] = INK
    ax.barh(place, bars["log_ratio"], height=0.62, color=colours, zorder=2)
    if "low" in bars:
        ax.hlines(place, bars["low"], bars["high"], color="#111111", linewidth=1.2, alpha=0.8, zorder=3)
    ax.axvline(0, color=INK, linewidth=0.8, zorder=1)
    ax.axhline(len(bars) - 1.5, color="#dddddd", linewidth=0.8, zorder=0)
    down_the_side(ax, bars.index.tolist())
    _write_values(ax, bars)
    name, reference = part["class"].iloc[0], part["reference"].iloc[0]
    ax.set_xlabel(f"log ratio:  \N{LEFTWARDS ARROW} for {reference}      for {name} \N{RIGHTWARDS ARROW}")
    ax.grid(axis="x", color="#eeeeee", zorder=0)
    tidy(ax, f"{name} against {reference}" if title is None else title)
    return ax


def _one_answer(table: pd.DataFrame, row, cls) -> pd.DataFrame:
    """The lines of one row and class of an `explain` table."""
    row = table["row"].iloc[0] if row is None else row
    mine = table[table["row"] == row]
    if cls is None and len(mine):
        cls = mine.groupby("class", sort=False)["log_ratio"].sum().idxmax()
    mine = mine[mine["class"] == cls]
    if mine.empty:
        raise ValueError(f"The table has no row {row!r} with class {cls!r}.")
    return mine


def _bars(part: pd.DataFrame, top: int) -> pd.DataFrame:
    """The bars from top to bottom, by name."""
    values = [name for name in ("log_ratio", "low", "high") if name in part]
    prior = part[part["feature"] == "(prior)"]
    rest = part[part["feature"] != "(prior)"].sort_values("log_ratio", key=np.abs, ascending=False, kind="stable")
    shown = pd.concat([prior, rest[:top]])
    bars = shown[values].set_axis(shown["feature"].astype(str), axis=0)
    if len(rest) > top:
        small = pd.DataFrame({"log_ratio": rest["log_ratio"][top:].sum()}, index=[f"{len(rest) - top} others"])
        bars = pd.concat([bars, small])
    total = pd.DataFrame({"log_ratio": part["log_ratio"].sum()}, index=["sum: log odds"])
    return pd.concat([bars, total])


def _write_values(ax, bars: pd.DataFrame) -> None:
    """Each bar's number beyond its end and its interval, with room for it."""
    finite = bars.replace([np.inf, -np.inf], np.nan)
    low, high = min(0.0, np.nanmin(finite.to_numpy())), max(0.0, np.nanmax(finite.to_numpy()))
    margin = 0.02 * ((high - low) or 1.0)
    for i, line in enumerate(finite.to_numpy()):
        up = not line[0] < 0
        end = np.nanmax([*line, 0.0]) + margin if up else np.nanmin([*line, 0.0]) - margin
        side = "left" if up else "right"
        ax.text(end, i, f"{bars['log_ratio'].iloc[i]:+.2f}", ha=side, va="center", fontsize=8.5, color=INK)
    ax.set_xlim(low - 8 * margin, high + 8 * margin)


def top_features(clf, cls, *, feature_names=None, top: int = 15, title=None, ax=None):
    """The features that speak most for one class: log θ_k/θ_rest, θ_rest the average over the other classes.

    Parameters
    ----------
    clf : fitted BernoulliNB or MultinomialNB
    cls : label
    feature_names : array-like (d,), optional
        By default the names of the training table.
    top : int, default 15
    title : str, optional
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from bayesgen import MultinomialNB
    >>> clf = MultinomialNB().fit(np.array([[3, 0, 1], [0, 4, 1]]), ["a", "b"])
    >>> ax = top_features(clf, "b", feature_names=["x", "y", "z"], top=1, ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['y']
    """
    k = clf.classes_.tolist().index(cls)
    prob, share = clf.params_["prob"], np.delete(clf.priors_, k)
    rest = share / share.sum() @ np.delete(prob, k, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.nan_to_num(np.log(prob[k]) - np.log(rest), nan=0.0)
    names = np.asarray(getattr(clf, "feature_names_in_", np.arange(len(weight))) if feature_names is None else feature_names)
    best = np.argsort(-weight, kind="stable")[:top]
    ax = axes(ax)
    ax.barh(np.arange(len(best)), weight[best], height=0.62, color=style(k)[0], zorder=2)
    down_the_side(ax, [str(name) for name in names[best]])
    ax.set_xlabel("log ratio to the other classes")
    ax.grid(axis="x", color="#eeeeee", zorder=0)
    tidy(ax, str(cls) if title is None else title)
    return ax

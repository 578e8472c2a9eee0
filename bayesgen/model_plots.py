"""Pictures of models side by side."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bayesgen.drawing import INK, PALETTE, axes, down_the_side, legend_above, tidy


def _score_name(column: str) -> str:
    kind, _, of = column.partition("_")
    kinds = {"loo": "leave-one-out log score", "psis": "PSIS-LOO log score", "waic": "WAIC log score"}
    if kind in kinds:
        return f"{kinds[kind]} of the {'rows' if of == 'joint' else 'labels'}"
    names = {"aic": "AIC, smaller is better", "bic": "BIC, smaller is better", "brier": "Brier score, smaller is better"}
    return names.get(column, column.replace("_", " "))


def compare(table: pd.DataFrame, *, names=None, title=None, ax=None):
    """Models by their score, the best on top, and how far each is from the best.

    Points are the scores with their standard errors. Triangles stand at the same scores, with the standard error of the
    difference to the best, which is smaller where models agree on which rows are hard: a model whose line reaches the dashed
    one is not clearly worse.

    Parameters
    ----------
    table : data frame
        `compare(models)`; the score that sorts it is drawn.
    names : list of str, optional
        A name for each model.
    title : str, optional
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> table = pd.DataFrame({"loo_joint": [-310.0, -325.0], "loo_joint_se": [18.0, 17.0], "difference": [0.0, -15.0],
    ...                       "difference_se": [0.0, 5.0]}, index=["QDA", "LDA"])
    >>> ax = compare(table, ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_yticklabels()], ax.get_xlabel()
    (['QDA', 'LDA'], 'leave-one-out log score of the rows')
    """
    fresh, ax, by = ax is None, axes(ax), table.columns[0]
    if fresh:
        ax.figure.set_figheight(1.3 + 0.5 * len(table))
    value, place = table[by].replace([np.inf, -np.inf], np.nan).to_numpy(float), np.arange(len(table))
    ax.axvline(value[0], color="#888888", linewidth=1, linestyle="--", zorder=0)
    bars = {"linestyle": "none", "elinewidth": 2, "markersize": 7}
    error = table.get(f"{by}_se")
    ax.errorbar(value, place, xerr=error, marker="o", color=PALETTE[0], label="score \N{PLUS-MINUS SIGN} se", **bars)
    if "difference_se" in table and len(table) > 1:
        error, label = table["difference_se"][1:], "\N{PLUS-MINUS SIGN} se of the difference"
        ax.errorbar(value[1:], place[1:] - 0.24, xerr=error, marker="^", color=PALETTE[5], label=label, **bars)
        legend_above(ax, 2)
    _write_differences(ax, table)
    down_the_side(ax, table.index.astype(str).tolist() if names is None else names)
    ax.set_xlabel(_score_name(by))
    ax.grid(axis="x", color="#eeeeee", zorder=0)
    ax.set_axisbelow(True)
    tidy(ax, title, pad=24)
    return ax


def _write_differences(ax, table: pd.DataFrame) -> None:
    """The differences to the best as numbers, to the right of the picture."""
    digits = 1 if np.nanmax(np.abs(table["difference"].replace([np.inf, -np.inf], np.nan))) >= 5 else 3
    look = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": 9}
    ax.text(1.02, 0, "difference" if len(table) > 1 else "", color="#888888", **look)
    for i, (_, line) in enumerate(table[1:].iterrows(), start=1):
        text = f"{line['difference']:+.{digits}f}".replace("-", "\N{MINUS SIGN}")
        if np.isfinite(line.get("difference_se", np.nan)):
            text += f" \N{PLUS-MINUS SIGN} {line['difference_se']:.{digits}f}"
        ax.text(1.02, i, text, color=INK, **look)

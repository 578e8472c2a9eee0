"""What all the pictures share: colours, an Axes to draw on, and its furniture. matplotlib is imported only to draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Okabe and Ito's palette, which colour-blind readers can tell apart; markers tell the classes apart in grey.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
MARKERS = ("o", "s", "^", "D", "v", "P")
INK = "#333333"


def axes(ax) -> Any:
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def style(k: int) -> tuple[str, str]:
    """Colour and marker of class k."""
    return PALETTE[k % len(PALETTE)], MARKERS[k % len(MARKERS)]


def tidy(ax, title: str | None, pad: float | None = None) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(colors=INK)
    if title:
        ax.set_title(title, loc="left", color=INK, pad=pad)


def legend_above(ax, count: int) -> None:
    """Between the title and the picture, where it hides nothing."""
    ax.legend(frameon=False, ncols=count, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderpad=0.0, columnspacing=1.2)


def down_the_side(ax, names: Sequence) -> None:
    """One line of the picture per name, the first on top."""
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0, pad=8)

"""The table that the demo and the documentation use."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def load_penguins() -> pd.DataFrame:
    """Palmer penguins: 344 birds of three species, with 19 missing cells (CC0; see README.md beside this file).

    Examples
    --------
    >>> penguins = load_penguins()
    >>> penguins.shape, sorted(penguins["species"].unique())
    ((344, 8), ['Adelie', 'Chinstrap', 'Gentoo'])
    """
    from pandas import read_csv

    with resources.files(__package__).joinpath("penguins.csv").open(encoding="utf-8") as file:
        return read_csv(file).rename(columns={"target": "species"})

"""The tables that the demo and the documentation use."""

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


def load_messages() -> pd.DataFrame:
    """Messages to a library: 400 short English texts on four topics, with 16 missing cells (CC0; made up, see README.md).

    Columns: `topic` (booking, feedback, loan or technical; a category), `text`, `hour` of the day (0 to 23, `Int64`) and
    `channel` (chat, email, phone note or web form; a category). The hour is missing 7 times, the channel 9 times.

    Examples
    --------
    >>> messages = load_messages()
    >>> messages["topic"].value_counts().to_dict()
    {'loan': 140, 'technical': 110, 'booking': 85, 'feedback': 65}
    >>> messages.loc[3, "text"]
    'Could you tell me whether the knitting magazine can be borrowed or has to be read on the premises?'
    """
    from pandas import read_csv

    types = {"topic": "category", "text": "string", "hour": "Int64", "channel": "category"}
    with resources.files(__package__).joinpath("messages.csv").open(encoding="utf-8") as file:
        return read_csv(file, dtype=types)

"""The tables in the package are what their descriptions say."""

import pandas as pd
import pytest

from bayesgen.data import load_messages, load_penguins


@pytest.fixture(scope="module")
def messages():
    return load_messages()


def test_messages_have_the_stated_columns_and_types(messages):
    assert messages.columns.tolist() == ["topic", "text", "hour", "channel"]
    assert isinstance(messages["topic"].dtype, pd.CategoricalDtype)
    assert isinstance(messages["channel"].dtype, pd.CategoricalDtype)
    assert pd.api.types.is_string_dtype(messages["text"])
    assert messages["hour"].dtype == "Int64"
    assert messages["hour"].dropna().between(0, 23).all()
    assert messages["channel"].cat.categories.tolist() == ["chat", "email", "phone note", "web form"]


def test_messages_have_the_stated_classes_and_missing_cells(messages):
    assert messages["topic"].value_counts().to_dict() == {"loan": 140, "technical": 110, "booking": 85, "feedback": 65}
    assert messages.isna().sum().to_dict() == {"topic": 0, "text": 0, "hour": 7, "channel": 9}


def test_messages_are_short_and_all_different(messages):
    words = messages["text"].str.split().str.len()
    assert (words.min(), words.max()) == (8, 27)
    assert not messages["text"].str.lower().str.replace(r"\W+", " ", regex=True).duplicated().any()


def test_penguins_have_the_stated_rows_and_missing_cells():
    penguins = load_penguins()
    assert penguins["species"].value_counts().to_dict() == {"Adelie": 152, "Gentoo": 124, "Chinstrap": 68}
    assert penguins.isna().sum().sum() == 19
    assert penguins["sex"].isna().sum() == 11

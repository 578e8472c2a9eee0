"""A progress bar for what may take long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm.auto import tqdm

DELAY = 2.0  # seconds: what is done by then shows no bar


@contextmanager
def bar(total: int, name: str, shown: bool) -> Iterator[Callable[[int], object]]:
    """A function that is told how many steps were made."""
    if not shown:
        yield lambda steps: None
        return
    with tqdm(total=total, desc=name, delay=DELAY, leave=False) as line:
        yield line.update

"""What was checked and how far off it was; the first broken law ends the check."""

from __future__ import annotations

import dataclasses

import pandas as pd

NAMES = {
    0: "the contract: the methods return what they should",
    1: "the density integrates to one",
    2: "a missing cell leaves the marginal",
    3: "drawn rows follow the density",
    4: "the conditional is joint over marginal",
    5: "the closed form is the model",
    6: "merged halves are the whole, and removing undoes it",
    9: "the order of classes, columns and rows does not matter",
}


class LawBroken(AssertionError):
    """A family breaks a law. `law` is its number, the message says what was found where.

    Examples
    --------
    >>> error = LawBroken(1, "class 0, column 0 integrates to 0.8641")
    >>> error.law, str(error)
    (1, 'law 1, the density integrates to one: class 0, column 0 integrates to 0.8641')
    """

    def __init__(self, law: int, message: str):
        super().__init__(f"law {law}, {NAMES[law]}: {message}")
        self.law = law


@dataclasses.dataclass
class Report:
    """One line for each thing checked: its largest error, and what was left out and why."""

    lines: dict[tuple[int, str], dict] = dataclasses.field(default_factory=dict)

    def _line(self, law: int, what: str) -> dict:
        return self.lines.setdefault((law, what), {"error": None, "note": ""})

    def check(self, law: int, what: str, error: float, tolerance: float, message: str) -> None:
        """Note the error; more than the tolerance breaks the law."""
        if not error <= tolerance:
            raise LawBroken(law, message)
        line = self._line(law, what)
        line["error"] = max(float(error), line["error"] or 0.0)

    def skip(self, law: int, what: str, why: str) -> None:
        """Note what was not checked, and why."""
        self._line(law, what)["note"] = f"not checked: {why}"

    def frame(self) -> pd.DataFrame:
        rows = [
            {
                "law": law,
                "name": NAMES[law],
                "checked": what,
                "largest_error": line["error"],
                "passed": None if line["error"] is None else True,
                "note": line["note"],
            }
            for (law, what), line in self.lines.items()
        ]
        return pd.DataFrame(rows).astype({"largest_error": float, "passed": object})

"""The laws that a family must obey, as a check that anybody can run on their own family."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from bayesgen.estimators.base import as_key, float64
from bayesgen.families.base import Family
from bayesgen.families.contract import check_methods
from bayesgen.laws import closed, density, draws
from bayesgen.laws.case import Case, make_case
from bayesgen.laws.report import NAMES, LawBroken, Report

__all__ = ["LawBroken", "check_family"]


@float64
def check_family(
    family: Family,
    num_classes: int = 2,
    num_features: int | None = None,
    *,
    data: tuple[Any, Any] | None = None,
    random_state: Any = 0,
    laws: Iterable[int] | None = None,
) -> pd.DataFrame:
    """Check that a density family obeys the laws of probability; raise `LawBroken` at the first that it breaks.

    First the contract: `model` returns a dict of arrays, `distribution` a NumPyro distribution of batch shape (K,) and
    event shape (p,). Then, at a few parameters θ that are likely given the data:

    1. ∫ f(x | k) dx = 1: the density integrates (sums) to one, by adaptive quadrature over its whole support.
    2. f(x_o | k) = ∫ f(x_o, x_j | k) dx_j: missing (NaN) cells leave the marginal.
    3. Drawn rows follow the density: F(x_j | other columns, k) of rows from `sample` is uniform on (0, 1), and so is each
       column's own F(x_j | k).
    4. f(x_j | x_o, k) = f(x_o, x_j | k) / f(x_o | k): the mean of `condition`, what `fill` puts into a missing cell, and the
       draws of `complete` are those of joint over marginal.
    5. Families with a closed form (`Conjugate`): log p(θ) + log p(D | θ) − log q(θ | D) is the same number for every θ, the
       log evidence; statistics and rows give the same likelihood; the slope of the log posterior (in free coordinates, no
       Jacobian) vanishes at `map`, that of the likelihood at `mle`; `predictive` is E[f(x | θ) | D].
    6. The same families: merge(stats(A), stats(B)) = stats(A ∪ B), and remove undoes it.
    9. Classes in another order are columns of `log_prob` in that order; the order of rows and columns does not matter.

    Laws 3 and 5 (`predictive`) draw rows and parameters; their tests reject a correct family about once in ten thousand
    times.

    Parameters
    ----------
    family : Family
        An instance, with whatever prior you want to use.
    num_classes, num_features : int
        K and p. Columns: by default two, or one if the family is made for one. More than two are checked in pairs.
    data : (x, y), optional
        A table of numbers (n, p) without missing cells and the classes of its rows, to fill in an "auto" prior and to
        choose θ by. It decides K and p. By default rows are made according to the `kind` and the support of the family.
    random_state : int, numpy Generator, JAX key or None
    laws : list of int, optional
        Check only these.

    Returns
    -------
    pandas.DataFrame
        One row for each thing that was checked: law, name, checked, largest_error, passed, note. What a family cannot do
        is not checked: passed is None, and the note says why.

    Raises
    ------
    LawBroken
        With the number of the law in `law`, and a message that says what was found, in which class and column.
    TypeError, ValueError
        If the contract is broken.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> from bayesgen import Family, check_family
    >>> class Exponential(Family):
    ...     def model(self, num_classes, num_features):
    ...         with numpyro.plate("class", num_classes):
    ...             return {"rate": numpyro.sample("rate", dist.Gamma(2.0, 1.0).expand([num_features]).to_event(1))}
    ...     def distribution(self, params):
    ...         return dist.Exponential(params["rate"]).to_event(1)
    >>> report = check_family(Exponential(), num_features=1)
    >>> sorted(set(report.law[report.passed == True]))
    [0, 1, 2, 3, 4, 9]
    """
    wanted = _numbers(laws)
    check_methods(family)
    report = Report()
    case = make_case(family, num_classes, num_features, data, as_key(random_state))
    report.check(0, "shapes and types", 0.0, 0.0, "")
    _check(case, wanted, report)
    return report.frame()


def _check(case: Case, laws: set[int], report: Report) -> None:
    """The laws in their order, but law 2 before law 1 with more than two columns: law 1 then looks through missing cells."""
    rng = np.random.default_rng(0)
    by_density = {1: density.integrates, 2: density.marginalises, 3: draws.samples, 4: draws.conditions}
    for here in case.densities:
        for law in (1, 2, 3, 4) if case.shape[1] < 3 else (2, 1, 3, 4):
            if law in laws:
                by_density[law](here, rng, report)
    closed_only = {5: closed.closed_form, 6: closed.statistics}
    for law, function in closed_only.items():
        if law in laws and case.closed:
            function(case, report)
    if 9 in laws:
        closed.order(case, report)


def _numbers(laws: Iterable[int] | None) -> set[int]:
    known = set(NAMES) - {0}
    wanted = known if laws is None else set(laws)
    if not wanted <= known:
        raise ValueError(f"laws={sorted(wanted)}: the laws are {sorted(known)}.")
    return wanted

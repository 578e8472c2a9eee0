"""Tables with columns of several kinds: blocks chosen by the table (MixedNB) or stated (GenerativeClassifier)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from sklearn.utils import check_consistent_length

from bayesgen import tables
from bayesgen.estimators import checks
from bayesgen.estimators.base import Plan
from bayesgen.estimators.docs import with_common
from bayesgen.estimators.uses import GenerativeClassifierBase
from bayesgen.families.base import Conjugate, Family
from bayesgen.families.bernoulli import Bernoulli
from bayesgen.families.categorical import Categorical
from bayesgen.families.gamma import Gamma
from bayesgen.families.gaussian import Gaussian
from bayesgen.families.lognormal import LogNormal
from bayesgen.families.multinomial import Multinomial
from bayesgen.families.negative_binomial import NegativeBinomial
from bayesgen.families.poisson import Poisson
from bayesgen.families.student_t import StudentT

FAMILIES: dict[str, Callable[[], Family]] = {
    "gaussian": lambda: Gaussian("diag"),
    "categorical": Categorical,
    "bernoulli": Bernoulli,
    "poisson": Poisson,
    "multinomial": Multinomial,
    "lognormal": LogNormal,
    "gamma": Gamma,
    "studentt": StudentT,
    "negativebinomial": NegativeBinomial,
    # the same, written otherwise
    "log_normal": LogNormal,
    "student_t": StudentT,
    "negative_binomial": NegativeBinomial,
}


class BlocksClassifier(GenerativeClassifierBase):
    """Classifiers of several blocks."""

    @property
    def blocks_(self) -> list[tuple[list, Family]]:
        """[(columns, family), ...]: the blocks as they were fitted, their priors resolved."""
        self._check_fitted_attribute()
        blocks = zip(self._plan, self._prior_joint.blocks, strict=True)
        return [(self._names(columns), block.family) for (_, columns, _), block in blocks]

    def _stated_families(self) -> list:
        """The families that the constructor was given."""
        raise NotImplementedError

    def _refits_from_statistics(self) -> bool:
        # a family without statistics can learn from all of the rows at once only
        families = [FAMILIES[f]() if isinstance(f, str) and f in FAMILIES else f for f in self._stated_families()]
        return all(isinstance(family, Conjugate) for family in families if isinstance(family, Family))

    def _names(self, columns) -> list:
        names = range(self.n_features_in_) if self._schema.columns is None else self._schema.columns.tolist()
        return list(names) if columns is None else [names[j] for j in columns]

    @property
    def categories_(self) -> dict:
        """The categories of each column that has some, by its name (or position)."""
        self._check_fitted_attribute()
        pairs = zip(self._names(None), self._schema.categories, strict=True)
        return {name: np.asarray(values) for name, values in pairs if values is not None}


@with_common
class MixedNB(BlocksClassifier):
    """Naive Bayes for tables of mixed columns: each by the family that suits it, independent within the class.

        p(x, y=k) = π_k Π_j f_j(x_j | k)

    With columns="auto" categories and text are categorical, booleans Bernoulli, floats Gaussian; non-negative integers are
    categorical with at most 10 distinct values, otherwise Poisson when their variance within the classes is at most 4
    times their mean, and Gaussian when it is more; integers with negative values are Gaussian. `blocks_` shows the
    decision; it is made from the rows of the first fit and stays through `partial_fit`: state the families of integer
    columns when rows come in parts. Missing cells are left out exactly, in training and in prediction.

    Parameters
    ----------
    columns : "auto" or dict {column: family}, default "auto"
        The family of some columns, as a name ("gaussian", "categorical", "bernoulli", "poisson", "multinomial",
        "lognormal", "gamma", "studentt", "negativebinomial") or a Family; the others are decided as by "auto". Columns are
        named, or given by position for arrays.
    {common}

    Attributes
    ----------
    {fitted}
    blocks_ : list of (columns, family)
        Which columns have which family.
    categories_ : dict
        The categories of each categorical column.

    Examples
    --------
    >>> import pandas as pd
    >>> from bayesgen import MixedNB
    >>> X = pd.DataFrame({"mass": [3.1, 2.9, 5.2, None], "sex": ["f", "m", None, "f"], "ringed": [True, False, True, True]})
    >>> clf = MixedNB().fit(X, ["small", "small", "large", "large"])
    >>> [(columns, type(family).__name__) for columns, family in clf.blocks_]
    [(['mass'], 'Gaussian'), (['sex'], 'Categorical'), (['ringed'], 'Bernoulli')]
    >>> clf.predict(X[:1]).tolist()
    ['small']
    """

    def __init__(
        self,
        columns="auto",
        method="map",
        engine="auto",
        priors=None,
        class_smoothing=0.0,
        num_draws=1000,
        random_state=None,
        unlabelled=None,
        handle_unknown="error",
    ):
        super().__init__(method, engine, priors, class_smoothing, num_draws, random_state, unlabelled, handle_unknown)
        self.columns = columns

    def _stated_families(self) -> list:
        return list(self.columns.values()) if isinstance(self.columns, dict) else []

    def _check_arguments(self) -> None:
        super()._check_arguments()
        if isinstance(self.columns, str):
            checks.choice("columns", self.columns, ("auto",), "or a dict {column: family}")
        elif not isinstance(self.columns, dict):
            raise ValueError(f"columns={self.columns!r}: must be 'auto' or a dict {{column: family}}.")

    def _blocks_of(self, X, y) -> Plan:
        checks.refuse_sparse(X, [("gaussian", None, Gaussian())], type(self).__name__)  # some column may be any
        names = _column_names(X, type(self).__name__)
        values, missing = self._read_labels(y)
        check_consistent_length(X, values)
        classes = tables.unique_labels(values, missing)
        stated = {} if isinstance(self.columns, str) else _by_position(self.columns, names)
        auto = tables.auto_families(X, tables.encode(values, missing, classes), len(classes), skip=set(stated))
        chosen = [stated.get(j, auto[j]) for j in range(len(names))]
        groups: dict = {}
        for j, family in enumerate(chosen):
            groups.setdefault(family if isinstance(family, str) else id(family), []).append(j)
        return _named([(tuple(columns), _family(chosen[columns[0]])) for columns in groups.values()])


@with_common
class GenerativeClassifier(BlocksClassifier):
    """A classifier of blocks of columns that you state, each with its own density family.

        p(x, y=k) = π_k Π_b f_b(x_b | k)

    Blocks are independent of each other within the class; what happens within a block is its family's affair: a
    Gaussian block with a full covariance beside categories and counts, say.

    Parameters
    ----------
    blocks : list of (columns, family)
        Columns as in scikit-learn's ColumnTransformer: a name or a list of names, a position or a list of positions, a
        slice, a boolean mask, or a callable that is given X and returns one of these. Each column belongs to exactly one
        block. Families are `Family` objects, or the names that MixedNB takes.
    {common}

    Attributes
    ----------
    {fitted}
    blocks_ : list of (columns, family)
        The blocks as they were fitted.
    categories_ : dict
        The categories of each categorical column.

    Examples
    --------
    >>> from bayesgen import Categorical, Gaussian, GenerativeClassifier
    >>> from bayesgen.data import load_penguins
    >>> birds = load_penguins().dropna()
    >>> sizes = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
    >>> clf = GenerativeClassifier([(sizes, Gaussian("full", tied=True)), (["island", "sex"], Categorical())])
    >>> X = birds[[*sizes, "island", "sex"]]
    >>> clf.fit(X, birds["species"]).score(X, birds["species"]) > 0.98
    True
    """

    def __init__(
        self,
        blocks=None,
        method="map",
        engine="auto",
        priors=None,
        class_smoothing=0.0,
        num_draws=1000,
        random_state=None,
        unlabelled=None,
        handle_unknown="error",
    ):
        super().__init__(method, engine, priors, class_smoothing, num_draws, random_state, unlabelled, handle_unknown)
        self.blocks = blocks

    def _stated_families(self) -> list:
        blocks = self.blocks if isinstance(self.blocks, list | tuple) else ()
        return [block[1] for block in blocks if isinstance(block, list | tuple) and len(block) == 2]

    def _check_arguments(self) -> None:
        super()._check_arguments()
        pairs = isinstance(self.blocks, list | tuple) and len(self.blocks) > 0
        if not pairs or not all(isinstance(b, list | tuple) and len(b) == 2 for b in self.blocks):
            raise ValueError(
                f"blocks={self.blocks!r:.100}: give a list of (columns, family), for example "
                "[(['mass', 'length'], Gaussian()), (['sex'], Categorical())]."
            )

    def _blocks_of(self, X, y) -> Plan:
        names = _column_names(X, type(self).__name__)
        blocks = [(_positions(columns, names, X), _family(family)) for columns, family in self.blocks]
        count = Counter(j for columns, _ in blocks for j in columns)
        twice = [names[j] for j, times in count.items() if times > 1]
        left = [name for j, name in enumerate(names) if j not in count]
        if twice or left:
            what = f"in more than one block: {twice[:10]}" if twice else f"in no block: {left[:10]}"
            raise ValueError(
                f"Columns {what}. Each column belongs to exactly one block; drop from X what is not to be modelled."
            )
        return _named(blocks)


def _family(family) -> Family:
    """A family by name, or itself."""
    if isinstance(family, str) and family in FAMILIES:
        return FAMILIES[family]()
    if not isinstance(family, Family):
        raise ValueError(f"{family!r} is no family: give a Family object, or one of the names {list(FAMILIES)}.")
    return family


def _named(blocks: list[tuple[tuple[int, ...], Family]]) -> Plan:
    """Blocks with names of their own: the family's, numbered where it comes several times."""
    kinds = [type(family).__name__.lower() for _, family in blocks]
    seen: Counter = Counter()
    plan = []
    for kind, (columns, family) in zip(kinds, blocks, strict=True):
        seen[kind] += 1
        name = kind if kinds.count(kind) == 1 else f"{kind}_{seen[kind]}"
        plan.append((name, columns, family))
    return tuple(plan)


def _column_names(X, owner: str) -> list:
    """Names of a frame's columns, positions for anything else."""
    if hasattr(X, "columns"):
        return X.columns.tolist()
    return list(range((X if tables.is_sparse(X) else tables.as_cells(X, owner)).shape[1]))


def _by_position(columns: dict, names: list) -> dict[int, object]:
    place = {name: j for j, name in enumerate(names)}
    unknown = [name for name in columns if name not in place]
    if unknown:
        raise ValueError(f"columns names unknown columns: {unknown[:10]}. Known: {names[:10]}.")
    for name, family in columns.items():
        try:
            _family(family)
        except ValueError as error:
            raise ValueError(f"columns[{name!r}]: {error}") from None
    return {place[name]: family for name, family in columns.items()}


def _positions(columns, names: list, X) -> tuple[int, ...]:
    """The columns of a block as positions."""
    if callable(columns):
        columns = columns(X)
    if isinstance(columns, slice):
        return _slice_positions(columns, names)
    one = isinstance(columns, str | int | np.integer) or (isinstance(columns, tuple) and columns in names)
    listed = [columns] if one else list(columns)
    if listed and all(isinstance(c, bool | np.bool_) for c in listed):
        if len(listed) != len(names):
            raise ValueError(f"A mask of {len(listed)} columns was given for {len(names)}.")
        return tuple(j for j, keep in enumerate(listed) if keep)
    place = {name: j for j, name in enumerate(names)}
    found = []
    for c in listed:
        by_position = isinstance(c, int | np.integer) and c not in place and -len(names) <= c < len(names)
        if c not in place and not by_position:
            raise ValueError(f"blocks name an unknown column: {c!r}. Known: {names[:10]}.")
        found.append(place[c] if c in place else int(c) % len(names))
    if not found:
        raise ValueError("A block has no columns: drop it.")
    return tuple(found)


def _slice_positions(columns: slice, names: list) -> tuple[int, ...]:
    """Names (both ends included) or positions, as in pandas and scikit-learn."""
    ends = columns.start, columns.stop
    if any(isinstance(end, str) for end in ends):
        start = 0 if columns.start is None else names.index(columns.start)
        stop = len(names) if columns.stop is None else names.index(columns.stop) + 1
        columns = slice(start, stop, columns.step)
    return tuple(range(len(names))[columns])

"""Naive Bayes for binary columns, categories and counts."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from bayesgen.estimators import checks
from bayesgen.estimators.docs import with_common
from bayesgen.estimators.uses import GenerativeClassifierBase
from bayesgen.families.base import Family
from bayesgen.families.bernoulli import Bernoulli
from bayesgen.families.categorical import Categorical
from bayesgen.families.multinomial import Multinomial
from bayesgen.families.poisson import Poisson


class SparseRows(GenerativeClassifierBase):
    """Classifiers that take scipy.sparse matrices."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.poor_score = True  # on the normal clouds of scikit-learn's checks
        return tags


class LinearView(SparseRows):
    """Classifiers whose log odds are linear in the cells."""

    def _linear(self) -> tuple[np.ndarray, np.ndarray]:
        """(W, c), c with the class prior: the scores x Wᵀ + c are log p(x, y) up to what all the classes share."""
        self._check_fitted_attribute()
        block = self._density.blocks[0]
        params = self._density.params_of(block, self._working)
        if "concentration" in params or self._sampled.chains:
            raise AttributeError(
                f"{type(self).__name__} has no coef_ under method='posterior' (engine {self.engine_!r}): the log odds of "
                "its predictive are not linear. Use method='map', or explain(X)."
            )
        if (params["prob"] == 0).any() or (isinstance(block.family, Bernoulli) and (params["prob"] == 1).any()):
            raise AttributeError(
                f"{type(self).__name__} has no coef_ here: a probability is 0 without smoothing, and its logarithm "
                "infinite. Use method='map' with alpha above 0, or explain(X)."
            )
        weights, constant = block.family.linear(params)
        with np.errstate(divide="ignore"):
            constant = constant + np.log(self.priors_)
        if len(constant) == 2:
            return weights[1:] - weights[:1], constant[1:] - constant[:1]
        return weights, constant

    @property
    def coef_(self) -> np.ndarray:
        """Linear coefficients: two classes (1, d), more (K, d).

        With two classes x · coef_ + intercept_ is the log odds of classes_[1] against classes_[0]; with more, the softmax of
        the K scores is `predict_proba`. Not there where a probability is 0 (no smoothing). For rows without missing cells.
        """
        return self._linear()[0]

    @property
    def intercept_(self) -> np.ndarray:
        """Intercepts that go with `coef_`, the class prior included: (1,) or (K,)."""
        return self._linear()[1]


@with_common
class BernoulliNB(LinearView):
    """Naive Bayes for binary columns.

        p(x, y=k) = π_k Π_j θ_kj^x_j (1 − θ_kj)^(1 − x_j),    θ_kj ~ Beta(1 + α, 1 + α)

    The map estimate is (n₁ + α)/(n + 2α): Laplace smoothing at α = 1. Columns that are absent count as evidence too.
    Missing cells are left out exactly. A scipy.sparse matrix is never made dense.

    Parameters
    ----------
    alpha : float or array (d,), default 1.0
        Smoothing: added to the number of ones and of zeros.
    binarize : float or None, default None
        Cells above this threshold count as 1, the others as 0. None: the cells must be 0 or 1 (False or True).
    {common}

    Attributes
    ----------
    {fitted}
    coef_, intercept_ : array
        The log odds as a linear function of the cells.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesgen import BernoulliNB
    >>> X = np.array([[1, 0, 1], [1, 1, 0], [0, 0, 1], [0, 1, 1]])
    >>> clf = BernoulliNB().fit(X, ["ham", "ham", "spam", "spam"])
    >>> clf.predict_proba([[1, 0, 0]]).round(3).tolist()
    [[0.857, 0.143]]
    """

    def __init__(
        self,
        alpha=1.0,
        binarize=None,
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
        self.alpha = alpha
        self.binarize = binarize

    def _family(self) -> Family:
        return Bernoulli(_numbers(self.alpha))

    def _check_arguments(self) -> None:
        super()._check_arguments()
        checks.smoothing("alpha", self.alpha)
        if self.binarize is not None:
            checks.number("binarize", self.binarize)

    def _kinds(self):
        return super()._kinds() if self.binarize is None else "number"

    def _read(self, X, *, reset: bool = False, y=None):
        x = super()._read(X, reset=reset, y=y)
        if self.binarize is None:
            return x
        if not sparse.issparse(x):
            return np.where(np.isnan(x), np.nan, x > self.binarize)
        if self.binarize < 0:
            raise ValueError(f"binarize={self.binarize} is negative: it would turn the zeros of a sparse matrix into ones.")
        ones = x.copy()
        ones.data = (x.data > self.binarize).astype(float)
        ones.eliminate_zeros()
        return ones


@with_common
class CategoricalNB(GenerativeClassifierBase):
    """Naive Bayes for columns of categories.

        p(x, y=k) = π_k Π_j θ_kj[x_j],    θ_kj ~ Dirichlet(1 + α, ..., 1 + α)

    The map estimate is (n_c + α)/(n + α c_j) for a column of c_j categories: Laplace smoothing at α = 1. Categories are
    those of a pandas category dtype (unused ones included), or the values that occur in training. Missing cells are left
    out exactly.

    Parameters
    ----------
    alpha : float, default 1.0
        Smoothing: added to the count of every category.
    {common}

    Attributes
    ----------
    {fitted}
    categories_ : list of arrays
        The categories of each column, in the order of `params_["prob"]`, (K, d, C).

    Examples
    --------
    >>> import pandas as pd
    >>> from bayesgen import CategoricalNB
    >>> X = pd.DataFrame({"sky": ["sun", "rain", "sun", None], "car": ["works", "broken", "works", "broken"]})
    >>> clf = CategoricalNB().fit(X, ["out", "in", "out", "in"])
    >>> clf.predict(pd.DataFrame({"sky": ["rain"], "car": [None]})).tolist()
    ['in']
    """

    def __init__(
        self,
        alpha=1.0,
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
        self.alpha = alpha

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.classifier_tags.poor_score = True
        return tags

    def _family(self) -> Family:
        return Categorical(float(self.alpha))

    def _check_arguments(self) -> None:
        super()._check_arguments()
        checks.smoothing("alpha", self.alpha, vector=False)

    @property
    def categories_(self) -> list[np.ndarray]:
        """The categories of each column."""
        self._check_fitted_attribute()
        return [np.asarray(values) for values in self._schema.categories]


@with_common
class MultinomialNB(LinearView):
    """Naive Bayes for counts of several kinds of events in one row: words in a text.

        p(x, y=k) = π_k · N!/Π x_j! · Π_j θ_kj^x_j,    θ_k ~ Dirichlet(1 + α, ..., 1 + α)

    The map estimate is (n_j + α)/(n + α d): Laplace smoothing at α = 1. The density is that of a row given its total N, with
    the multinomial coefficient. Fractions (tf-idf) are accepted as weights for classification; their densities and
    p-values mean little. Missing cells are refused, because the total
    is part of the density. A scipy.sparse matrix is never made dense. `sample` gives rows of the average training total.

    With many columns α = 1 is a strong prior, the more so under "posterior", where the shares are averaged over
    Dirichlet(1 + α + n_j): for text try smaller values, 0 too (the flat Dirichlet(1)).

    Parameters
    ----------
    alpha : float or array (d,), default 1.0
        Smoothing: added to every count.
    {common}

    Attributes
    ----------
    {fitted}
    coef_, intercept_ : array
        The log odds as a linear function of the counts (not under "posterior", where they are not linear).

    Examples
    --------
    >>> import numpy as np
    >>> from bayesgen import MultinomialNB
    >>> X = np.array([[2, 1, 0], [1, 0, 0], [0, 1, 3], [0, 2, 1]])
    >>> clf = MultinomialNB().fit(X, ["a", "a", "b", "b"])
    >>> clf.params_["prob"].round(3).tolist()
    [[0.571, 0.286, 0.143], [0.1, 0.4, 0.5]]
    """

    def __init__(
        self,
        alpha=1.0,
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
        self.alpha = alpha

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.allow_nan = False
        return tags

    def _family(self) -> Family:
        return Multinomial(_numbers(self.alpha))

    def _check_arguments(self) -> None:
        super()._check_arguments()
        checks.smoothing("alpha", self.alpha)


@with_common
class PoissonNB(SparseRows):
    """Naive Bayes for columns of counts.

        p(x, y=k) = π_k Π_j λ_kj^x_j exp(−λ_kj)/x_j!,    λ_kj ~ Gamma(1 + α, rate β)

    The map estimate is (Σx + α)/(n + β). Missing cells are left out exactly. Fractions are accepted, as weights.

    Parameters
    ----------
    alpha, beta : float or array (d,), default 1.0
        The prior of the rates: as if β more rows with α events in all had been seen. With β = 0 the prior is improper
        (every class needs observed cells), and there is no log_evidence_.
    {common}

    Attributes
    ----------
    {fitted}

    Examples
    --------
    >>> import numpy as np
    >>> from bayesgen import PoissonNB
    >>> clf = PoissonNB().fit(np.array([[0, 2], [1, 3], [7, 2], [9, np.nan]]), ["few", "few", "many", "many"])
    >>> clf.params_["rate"].round(2).tolist()
    [[0.67, 2.0], [5.67, 1.5]]
    """

    def __init__(
        self,
        alpha=1.0,
        beta=1.0,
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
        self.alpha = alpha
        self.beta = beta

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags

    def _family(self) -> Family:
        return Poisson(_numbers(self.alpha), _numbers(self.beta))

    def _check_arguments(self) -> None:
        super()._check_arguments()
        checks.smoothing("alpha", self.alpha)
        checks.smoothing("beta", self.beta)


def _numbers(value):
    """A smoothing number, or one per column, in double precision."""
    return float(value) if np.ndim(value) == 0 else np.asarray(value, float)

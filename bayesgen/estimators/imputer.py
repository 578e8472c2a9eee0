"""Missing cells filled inside a pipeline: any generative classifier as a scikit-learn transformer."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from bayesgen.estimators import checks
from bayesgen.estimators.discriminant import LDA

LABELS = ("mix", "given", "ignore")
ONE_CLASS = "all rows"


class GenerativeImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Fill missing cells by a fitted joint model, as a step of a pipeline.

        E[x_mis | x_obs, D] = Σ_k p(y=k | x_obs, D) E[x_mis | x_obs, y=k, D]

    (the most probable value where cells are discrete), or with `sample=True` one draw from p(x_mis | x_obs, D). Observed
    cells stay as they are. A data frame comes back as a data frame, with its dtypes and categories.

    New rows have no label, so `transform` averages over the classes. `fit_transform` does the same by default, although it
    is given the labels: training rows filled with the knowledge of their class would tell the next step of a pipeline what
    the cells of new rows cannot tell it, and its scores on the training rows would be too good.

    Parameters
    ----------
    estimator : generative classifier, default LDA()
        Which joint model; it is cloned, not fitted itself. `MixedNB()` for tables with categories, `QDA()` for classes of
        different shapes, method="posterior" for draws that know how uncertain the parameters are.
    labels : {"mix", "given", "ignore"}, default "mix"
        What to do with the y of `fit` and `fit_transform`. "mix": learn the classes from it, but fill every row as if its
        class were not known. "given": the same, but `fit_transform` fills each row within its own class; for filling a
        table to be analysed, not for pipelines that predict y. "ignore": one class of all the rows, as without y; for
        regression, where y has no classes.
    sample : bool, default False
        Draw the missing cells instead of taking their mean. Means are the better guess of each cell, but a table filled
        with them varies too little. One draw has the right spread; several (`impute(X, draws=m)`) also tell how much is
        not known.
    random_state : int, numpy Generator, JAX key or None
        Of the draws. None: the fitted estimator's own, the same in every call.

    Attributes
    ----------
    estimator_ : the fitted clone of `estimator`
    n_features_in_ : int
    feature_names_in_ : array of str
        Where X is a data frame with names.

    See Also
    --------
    sklearn.impute.IterativeImputer : one regression for each column, in turn.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesgen import GaussianNB, GenerativeImputer
    >>> X = np.array([[1.0, 1.0], [2.0, np.nan], [8.0, 9.0], [np.nan, 8.0]])
    >>> imputer = GenerativeImputer(GaussianNB(method="mle", priors="uniform"))
    >>> imputer.fit_transform(X).round(2)  # no classes: the means of the columns
    array([[1.  , 1.  ],
           [2.  , 6.  ],
           [8.  , 9.  ],
           [3.67, 8.  ]])
    >>> Z = np.array([[1.0, 2.0], [2.0, 1.0], [8.0, 9.0], [9.0, 8.0]])
    >>> imputer.fit(Z, ["low", "low", "high", "high"]).transform([[1.0, np.nan], [np.nan, 9.0], [np.nan, np.nan]])
    array([[1. , 1.5],
           [8.5, 9. ],
           [5. , 5. ]])
    """

    def __init__(self, estimator=None, *, labels="mix", sample=False, random_state=None):
        self.estimator = estimator
        self.labels = labels
        self.sample = sample
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags, theirs = super().__sklearn_tags__(), get_tags(self._model())
        tags.input_tags = theirs.input_tags
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _model(self):
        return LDA() if self.estimator is None else self.estimator

    # -- fitting
    def fit(self, X, y=None, sample_weight=None):
        """Fit the joint model to the rows, whose cells may be missing.

        Parameters
        ----------
        X : array or data frame (n, d)
        y : array-like (n,), optional
            Classes. None (or labels="ignore"): all the rows are one class.
        sample_weight : array-like (n,), optional

        Returns
        -------
        self
        """
        checks.choice("labels", self.labels, LABELS)
        self._refuse_other_estimators()
        has_classes = y is not None and self.labels != "ignore"
        if has_classes:
            _refuse_regression(y)
        classes = y if has_classes else np.full(_num_samples(X), ONE_CLASS)
        # only a fit that succeeds leaves a trace
        self.estimator_ = clone(self._model()).fit(X, classes, sample_weight=sample_weight)
        self._has_classes = has_classes
        validate_data(self, X, reset=True, skip_check_array=True)
        return self

    def _refuse_other_estimators(self) -> None:
        if not hasattr(self._model(), "impute"):
            raise TypeError(
                f"estimator={self.estimator!r} cannot impute. Give a generative classifier, such as LDA(), QDA(), "
                "GaussianNB() or MixedNB() (ComplementNB has no joint model)."
            )

    # -- filling
    def transform(self, X):
        """The table with its missing cells filled, averaging over the classes.

        Parameters
        ----------
        X : array or data frame (n, d)

        Returns
        -------
        A table like X.
        """
        return self._filled(X, None)

    def fit_transform(self, X, y=None, sample_weight=None):
        """Fit, then fill the same rows; within their classes only with labels="given".

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.

        Returns
        -------
        A table like X.
        """
        self.fit(X, y, sample_weight)
        return self._filled(X, y if self.labels == "given" else None)

    def _filled(self, X, y):
        if not self.sample:
            return self.impute(X, y)
        return self.impute(X, y, draws=1, random_state=self.random_state)[0]

    def impute(self, X, y=None, draws: int | None = None, random_state=None):
        """Fill the missing cells as `estimator_.impute` does: by their mean, or `draws` tables with drawn cells.

        Parameters
        ----------
        X : array or data frame (n, d)
        y : array-like (n,), optional
            The classes of the rows, where known; the others (None, NaN) are averaged over.
        draws : int, optional
            m: a list of m tables, for multiple imputation (proper under method="posterior").
        random_state : int, numpy Generator, JAX key or None
            Of the draws. None: the fitted estimator's own.

        Returns
        -------
        A table like X, or a list of them.
        """
        check_is_fitted(self)
        if getattr(X, "ndim", 2) == 2:  # others are refused by the estimator
            validate_data(self, X, reset=False, skip_check_array=True)
        if y is not None and not self._has_classes:
            raise ValueError("y was given, but this GenerativeImputer was fitted without classes: fit(X, y) learns them.")
        return self.estimator_.impute(X, y, draws=draws, random_state=random_state)


def _refuse_regression(y) -> None:
    """Pipelines hand over numbers to be predicted, too."""
    values = np.asarray(y)
    if values.dtype.kind == "f" and type_of_target(values[~np.isnan(values)]) == "continuous":
        raise ValueError(
            "Unknown label type: y is continuous, not classes. In a pipeline for regression use "
            "GenerativeImputer(labels='ignore'), which looks at X only."
        )
    if values.dtype.kind in "iu":
        check_classification_targets(values)  # warns of too many different ones

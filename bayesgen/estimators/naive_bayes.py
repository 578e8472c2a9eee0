"""Naive Bayes: columns independent within the class."""

from __future__ import annotations

import numpy as np

from bayesgen.estimators import checks
from bayesgen.estimators.gaussian import GaussianClassifier, documented, known_means
from bayesgen.families.gaussian import Gaussian


@documented
class GaussianNB(GaussianClassifier):
    """Gaussian naive Bayes: every column normal within the class, columns independent.

        p(x, y=k) = π_k Π_j N(x_j; μ_kj, σ²_kj)

    Missing cells are left out of the sums in training and in prediction, exactly.

    Parameters
    ----------
    shared_variance : bool, default False
        One variance per column for all the classes (σ²_j).
    prior : "auto" or NormalWishart, default "auto"
    unbiased : bool, default False
        With method="mle", divide by n_k − 1 (n − K) instead of n_k (n).
    {common}

    Attributes
    ----------
    {fitted}

    Examples
    --------
    >>> import numpy as np
    >>> from bayesgen import GaussianNB
    >>> X = np.array([[1.0, np.nan], [2.0, 5.0], [8.0, 6.0], [9.0, np.nan]])
    >>> GaussianNB().fit(X, ["low", "low", "high", "high"]).predict([[np.nan, 4.0], [7.0, np.nan]]).tolist()
    ['low', 'high']
    """

    def __init__(
        self,
        shared_variance=False,
        prior="auto",
        unbiased=False,
        method="map",
        engine="auto",
        priors=None,
        class_smoothing=0.0,
        num_draws=1000,
        random_state=None,
        unlabelled=None,
        handle_unknown="error",
    ):
        self.shared_variance = shared_variance
        self.prior = prior
        self.unbiased = unbiased
        self.method = method
        self.engine = engine
        self.priors = priors
        self.class_smoothing = class_smoothing
        self.num_draws = num_draws
        self.random_state = random_state
        self.unlabelled = unlabelled
        self.handle_unknown = handle_unknown

    def _family(self) -> Gaussian:
        return Gaussian("diag", bool(self.shared_variance), self.prior, bool(self.unbiased))

    def _check_arguments(self) -> None:
        super()._check_arguments()
        checks.normal_wishart(self.prior)

    @classmethod
    def from_parameters(cls, classes, priors, means, variances, *, feature_names=None):
        """A classifier from known parameters: means (K, d) and variances (K, d), or (d,) when shared."""
        means, values = known_means(means, classes), np.asarray(variances, float)
        if values.shape not in (means.shape, means.shape[1:]) or not ((values > 0) & np.isfinite(values)).all():
            raise ValueError(f"variances must be positive and finite, of shape {means.shape} or {means.shape[1:]}.")
        estimator = cls(shared_variance=values.ndim == 1, method="mle")
        return cls._from_known(estimator, classes, priors, means, values, feature_names)

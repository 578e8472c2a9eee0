"""Discriminant analysis: LDA (one covariance), QDA (one per class), RDA (between them)."""

from __future__ import annotations

import jax
import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bayesgen import predict
from bayesgen.covariance import STRUCTURES
from bayesgen.estimators import checks, engine_checks, engines, fit_checks
from bayesgen.estimators.base import float64
from bayesgen.estimators.blas import one_blas_thread
from bayesgen.estimators.gaussian import GaussianClassifier, documented, known_covariances, known_means
from bayesgen.families.gaussian import Gaussian, Shrinkage
from bayesgen.inference import shrinkage
from bayesgen.joint import Joint
from bayesgen.moments import Moments, rank

# A class whose own covariance is singular (a column constant within it) makes the leave-one-out score grow without
# end as α -> 1; so does a singular pooled covariance as γ -> 1. The choice stops short of both.
LARGEST_ALPHA, LARGEST_GAMMA = 0.99, 1 - 1e-6
DRAWN_TABLES = 8  # with their gaps filled in, that the weights are chosen on


class DiscriminantAnalysis(GaussianClassifier):
    """Discriminants and distances of LDA, QDA and RDA, by the point estimate (under "posterior", the posterior mean)."""

    def discriminant_coefficients(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(Q, L, c), shapes (K, d, d), (K, d), (K,), with δ_k(x) = xᵀQ_k x + L_kᵀx + c_k; Q is zero for LDA."""
        check_is_fitted(self)
        fit_checks.finite_covariances(self)
        means, covs = self.means_, self.covariances_
        precisions = np.linalg.inv(covs)
        linear = np.einsum("kij,kj->ki", precisions, means)
        with np.errstate(divide="ignore"):
            constant = np.log(self.priors_) - 0.5 * np.einsum("ki,ki->k", linear, means)
        if self._tied():
            return np.zeros_like(covs), linear, constant
        return -0.5 * precisions, linear, constant - 0.5 * np.linalg.slogdet(covs)[1]

    def _tied(self) -> bool:
        return self._prior_joint.blocks[0].family.tied

    @float64
    def discriminants(self, X) -> np.ndarray:
        """δ_k(x), (n, K), missing cells left out.

        LDA: δ_k(x) = ln π_k − ½ μ_kᵀΣ⁻¹μ_k + μ_kᵀΣ⁻¹x. QDA and RDA: δ_k(x) = ln π_k − ½ ln|Σ_k| − ½ (x−μ_k)ᵀΣ_k⁻¹(x−μ_k).
        They differ from log p(x, y=k) by a term that does not depend on k.
        """
        x = self._rows_to_score(X)
        fit_checks.finite_covariances(self)
        if not self._tied():
            half = 0.5 * np.sum(~np.isnan(x), 1, keepdims=True) * np.log(2 * np.pi)
            return predict.log_joint(self._plain, self.params_, x) + half
        _, linear, constant = self.discriminant_coefficients()
        table = x @ linear.T + constant
        gaps = np.isnan(x).any(1)
        if gaps.any():
            # log N(x; μ_k) − log N(x; 0) is the linear part, on the observed cells whatever they are.
            origin = self.params_ | {"mean": np.zeros_like(self.means_), "class_probs": np.ones(len(self.classes_))}
            table[gaps] = predict.log_joint(self._plain, self.params_, x[gaps])
            table[gaps] -= predict.log_joint(self._plain, origin, x[gaps])
        return table

    @float64
    def mahalanobis(self, X) -> np.ndarray:
        """√((x−μ_k)ᵀ Σ_k⁻¹ (x−μ_k)), (n, K), on the observed cells."""
        x = self._rows_to_score(X)
        fit_checks.finite_covariances(self)
        return np.sqrt(predict.quadratic(self._plain, self.params_, x))


class _LDAandQDA(DiscriminantAnalysis):
    def __init__(
        self,
        covariance="full",
        prior="auto",
        unbiased=False,
        ridge=0.0,
        method="map",
        engine="auto",
        priors=None,
        class_smoothing=0.0,
        num_draws=1000,
        random_state=None,
        unlabelled=None,
        handle_unknown="error",
    ):
        self.covariance = covariance
        self.prior = prior
        self.unbiased = unbiased
        self.ridge = ridge
        self.method = method
        self.engine = engine
        self.priors = priors
        self.class_smoothing = class_smoothing
        self.num_draws = num_draws
        self.random_state = random_state
        self.unlabelled = unlabelled
        self.handle_unknown = handle_unknown

    _is_tied = False

    def _family(self) -> Gaussian:
        return Gaussian(self.covariance, self._is_tied, self.prior, bool(self.unbiased), float(self.ridge))

    def _check_arguments(self) -> None:
        super()._check_arguments()
        checks.choice("covariance", self.covariance, tuple(STRUCTURES))
        checks.number("ridge", self.ridge, low=0.0)
        checks.normal_wishart(self.prior)
        if self.ridge > 0 and self.method == "posterior":
            raise ValueError("ridge is a change of the point estimate: use method='map' or 'mle', or state a prior instead.")


@documented
class LDA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _LDAandQDA):
    """Linear discriminant analysis: normal classes with one shared covariance.

        p(x, y=k) = π_k N(x; μ_k, Σ)

    Parameters
    ----------
    covariance : {"full", "diag", "spherical"}, default "full"
    prior : "auto" or NormalWishart, default "auto"
        Prior of the means and the precision; "auto" is weak and takes its scale from the data.
    unbiased : bool, default False
        With method="mle", divide the scatter by n − K instead of n.
    ridge : float, default 0
        Added to the variances: Σ + ridge·I (mle and map).
    {common}

    Attributes
    ----------
    {fitted}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayesgen import LDA
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = LDA(method="posterior", random_state=0).fit(X, y)
    >>> clf.predict_proba(X[70:71]).round(3)
    array([[0.   , 0.258, 0.742]])
    """

    _is_tied = True

    @classmethod
    def from_parameters(cls, classes, priors, means, covariance=None, *, precision=None, feature_names=None):
        """A classifier from known parameters.

        Parameters
        ----------
        classes : array-like (K,)
        priors : array-like (K,) or "uniform", in the order of `classes`
        means : array-like (K, d)
        covariance, precision : array-like (d, d)
            One of the two.
        feature_names : list of str, optional

        Examples
        --------
        >>> clf = LDA.from_parameters(["a", "b"], [0.5, 0.5], [[0.0], [2.0]], [[1.0]])
        >>> clf.predict_proba([[1.0]])
        array([[0.5, 0.5]])
        """
        means = known_means(means, classes)
        cov = known_covariances(covariance, precision, means.shape[1], None)
        return cls._from_known(cls(method="mle"), classes, priors, means, cov, feature_names)

    @property
    def covariance_(self) -> np.ndarray:
        """The shared covariance (d, d)."""
        return self.covariances_[0]

    @property
    def _n_features_out(self) -> int:
        return min(len(self.classes_) - 1, self.n_features_in_)

    @float64
    def transform(self, X) -> np.ndarray:
        """LDA coordinates (n, min(K−1, d)): within-class covariance I, most separating direction first.

        The origin is the mean of the class means, weighted by the class probabilities. Missing cells enter by their
        conditional mean, which gives the mean of the coordinates. Signs are fixed: the largest entry of each direction is
        positive.
        """
        x = self._rows_to_score(X)
        fit_checks.finite_covariances(self)
        filled = predict.impute(self._density, self._working, x, np.full(len(x), -1))
        centre, directions = self._directions()
        return (filled - centre) @ directions

    def _directions(self) -> tuple[np.ndarray, np.ndarray]:
        means, priors = self.means_, self.priors_
        root = np.linalg.inv(np.linalg.cholesky(self.covariance_))
        centre = priors @ means
        between = np.sqrt(priors)[:, None] * (means - centre) @ root.T
        axes = np.linalg.svd(between, full_matrices=False)[2][: self._n_features_out]
        directions = root.T @ axes.T
        largest = np.abs(directions).argmax(0)
        return centre, directions * np.where(directions[largest, np.arange(directions.shape[1])] < 0, -1.0, 1.0)


@documented
class QDA(_LDAandQDA):
    """Quadratic discriminant analysis: normal classes, each with its own covariance.

        p(x, y=k) = π_k N(x; μ_k, Σ_k)

    Parameters
    ----------
    covariance : {"full", "diag", "spherical"}, default "full"
    prior : "auto" or NormalWishart, default "auto"
        Prior of the means and the precisions; "auto" is weak and takes its scale from the data.
    unbiased : bool, default False
        With method="mle", divide the scatters by n_k − 1 instead of n_k.
    ridge : float, default 0
        Added to the variances: Σ_k + ridge·I (mle and map).
    {common}

    Attributes
    ----------
    {fitted}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayesgen import QDA
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = QDA(method="posterior", random_state=0).fit(X, y)
    >>> clf.predict_proba(X[70:71]).round(3)
    array([[0.   , 0.341, 0.659]])
    """

    @classmethod
    def from_parameters(cls, classes, priors, means, covariances=None, *, precisions=None, feature_names=None):
        """A classifier from known parameters, as `LDA.from_parameters` with `covariances` (K, d, d)."""
        means = known_means(means, classes)
        cov = known_covariances(covariances, precisions, means.shape[1], len(classes))
        return cls._from_known(cls(method="mle"), classes, priors, means, cov, feature_names)


@documented
class RDA(DiscriminantAnalysis):
    """Regularised discriminant analysis: covariances between QDA's, LDA's and a sphere.

        Σ_k = α Σ̂_k + (1 − α) {γ Σ̂ + (1 − γ) σ̂² I},   σ̂² = tr(Σ̂)/d

    which is the MAP under a Wishart prior (see `prior_`). By default α and γ maximise the exact leave-one-out score
    Σ log p(x_i, y_i | D without i), computed without refitting. The sphere makes the answer depend on the units of the
    columns: standardise columns of very different scales. The score is that of a density, not of a decision: on columns
    far from normal (counts, pixels) it can prefer an α that classifies badly, and LDA or a given α does better. Where a
    class's own covariance is singular the chosen α is at most 0.99. With missing cells Σ̂ is that of LDA's maximum-likelihood
    fit to the same cells, and the score is averaged over eight tables with their missing cells drawn, always the same.

    Parameters
    ----------
    alpha, gamma : "loo" or number in [0, 1], default "loo"
        α = 1 is QDA, α = 0 and γ = 1 is LDA (maximum likelihood).
    {common}

    Attributes
    ----------
    alpha_, gamma_ : float
        The weights used.
    n_iter_, converged_
        Of the optimiser, when a weight is chosen by "loo"; of EM, where cells or labels are missing.
    loo_score_ : float
        The leave-one-out score at (alpha_, gamma_), when a weight is chosen by "loo".
    {fitted}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayesgen import RDA
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = RDA().fit(X, y)
    >>> round(clf.alpha_, 2), round(clf.gamma_, 2), clf.score(X, y)
    (0.93, 0.64, 0.98)
    """

    def __init__(
        self,
        alpha="loo",
        gamma="loo",
        method="map",
        engine="auto",
        priors=None,
        class_smoothing=0.0,
        num_draws=1000,
        random_state=None,
        unlabelled=None,
        handle_unknown="error",
    ):
        self.alpha = alpha
        self.gamma = gamma
        self.method = method
        self.engine = engine
        self.priors = priors
        self.class_smoothing = class_smoothing
        self.num_draws = num_draws
        self.random_state = random_state
        self.unlabelled = unlabelled
        self.handle_unknown = handle_unknown

    def _family(self) -> Gaussian:
        return Gaussian("full", False, Shrinkage(self.alpha, self.gamma))

    def _refits_from_statistics(self) -> bool:
        # The leave-one-out score needs the rows.
        return self.alpha != "loo" and self.gamma != "loo"

    def _check_arguments(self) -> None:
        super()._check_arguments()
        if self.method == "mle":
            raise ValueError("RDA is a prior: method must be 'map' or 'posterior' (QDA and LDA have method='mle').")
        for name in ("alpha", "gamma"):
            if not (isinstance(getattr(self, name), str) and getattr(self, name) == "loo"):
                checks.number(name, getattr(self, name), 0.0, 1.0)

    def _resolved(self, stats, x, labels) -> Joint:
        """The prior's numbers, from the labelled rows."""
        self.alpha_, self.gamma_ = self.alpha, self.gamma
        moments, tables_ = stats.blocks[0], [x]
        if moments == ():
            x, labels = (x, labels) if labels.complete else (x[labels.known], labels.part(labels.known))
            block = self._joint(len(self.classes_), self.n_features_in_).blocks[0]
            engine_checks.cells_of_every_class(block, x, labels, self, "RDA's prior leaves the means open")
            moments, tables_ = self._expected(x, labels)
        if not self._refits_from_statistics():
            self._choose(moments.scatter, tables_, labels)
        family = Gaussian("full", False, Shrinkage(float(self.alpha_), float(self.gamma_)))
        joint = self._joint(len(self.classes_), self.n_features_in_)
        return joint.with_families([family.resolve_stats(moments)])

    def _expected(self, x: np.ndarray, labels) -> tuple[Moments, list[np.ndarray]]:
        """Moments of rows with gaps, expected under LDA's mle (map where there is none), and the rows with their gaps drawn.

        The drawn tables are for the choice of the weights: a score of single rows that leaves each out needs whole ones.
        """
        if not np.isnan(x).any():
            return Gaussian("full").stats(x, labels), [x]
        moments = engines.pooled_moments(x, labels)
        if self._refits_from_statistics():
            return moments, []
        joint, params = engines.free_covariances(x, labels)
        keys = jax.random.split(jax.random.key(0), DRAWN_TABLES)  # always the same: a map does not depend on random_state
        return moments, [predict.complete(joint, params, x, labels.codes, key)[0] for key in keys]

    def _left_out_joint(self) -> Joint:
        # The prior is made of the rows: one that is left out has no part in it either.
        return self._prior_joint.with_families([Gaussian("full", False, Shrinkage(self.alpha_, self.gamma_))])

    def _choose(self, scatter: np.ndarray, x: list[np.ndarray], labels) -> None:
        """The leave-one-out choice, kept away from singular covariances."""
        found = self._best_weights(x, labels, self.alpha, self.gamma)
        alpha, gamma = self.alpha, self.gamma
        if alpha == "loo" and found.alpha > LARGEST_ALPHA and any(rank(s) < len(s) for s in scatter):
            alpha = LARGEST_ALPHA
        pooled = scatter.sum(0)
        if gamma == "loo" and found.gamma > LARGEST_GAMMA and rank(pooled) < len(pooled):
            gamma = LARGEST_GAMMA
        if (alpha, gamma) != (self.alpha, self.gamma):
            found = self._best_weights(x, labels, alpha, gamma)
        self.alpha_, self.gamma_ = found.alpha, found.gamma
        self.n_iter_, self.converged_, self.loo_score_ = found.n_iter, found.converged, found.score

    def _best_weights(self, x, labels, alpha, gamma) -> shrinkage.Choice:
        prior = self._class_prior(len(self.classes_))
        with one_blas_thread:
            return shrinkage.choose(
                x,
                labels.codes,
                alpha=alpha,
                gamma=gamma,
                num_classes=labels.num_classes,
                weight=labels.weight,
                method=self.method,
                class_probs=prior.fixed,
                class_smoothing=prior.smoothing,
            )

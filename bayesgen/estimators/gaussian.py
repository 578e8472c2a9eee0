"""What classifiers with one Gaussian block share: the shared docstrings, fitted attributes, known parameters."""

from __future__ import annotations

import numpy as np

from bayesgen import tables
from bayesgen.estimators import checks
from bayesgen.estimators.docs import with_common
from bayesgen.estimators.fitted import Fit
from bayesgen.estimators.uses import GenerativeClassifierBase
from bayesgen.families.gaussian import Gaussian
from bayesgen.joint import Block, ClassPrior, Joint
from bayesgen.moments import rank

FITTED = """    classes_ : array (K,)
    priors_ : array (K,)
        Class probabilities.
    means_ : array (K, d)
    covariances_ : array (K, d, d)
        Under "posterior", posterior means.
    params_, draws_ : dict
        Point estimate (posterior mean), and draws with a leading axis.
    prior_ : NormalWishart
        The prior's numbers.
    log_evidence_ : float
        log p(X, y), where the prior is proper (not for "mle")."""


def documented(cls):
    """Write the shared parts of the docstrings once."""
    return with_common(cls, FITTED)


class GaussianClassifier(GenerativeClassifierBase):
    """What classifiers with one Gaussian block share."""

    def _family(self) -> Gaussian:
        raise NotImplementedError

    @property
    def means_(self) -> np.ndarray:
        """Class means (K, d)."""
        self._check_fitted_attribute()
        return self.params_["mean"]

    @property
    def covariances_(self) -> np.ndarray:
        """Class covariances (K, d, d)."""
        self._check_fitted_attribute()
        structure = self._prior_joint.blocks[0].family.covariance
        return structure.matrices(self.params_[structure.key], *self.means_.shape)

    @classmethod
    def _from_known(cls, estimator, classes, priors, means, cov, feature_names):
        """A fitted estimator from known parameters; it has no rows to merge, forget or leave out."""
        classes = np.asarray(classes)
        if len(np.unique(classes)) != len(classes):
            raise ValueError(f"classes={classes.tolist()} has repeated labels.")
        if feature_names is not None and len(feature_names) != means.shape[1]:
            raise ValueError(f"feature_names has {len(feature_names)} names for {means.shape[1]} columns.")
        order = np.argsort(classes)
        probs = checks.class_probabilities(priors, len(classes))[order]
        estimator.classes_, estimator.n_features_in_ = classes[order], means.shape[1]
        if feature_names is not None:
            estimator.feature_names_in_ = np.asarray(feature_names, dtype=object)
        estimator._describe(feature_names)
        cov = cov if estimator._family().tied else cov[order]
        family = estimator._family().bare()
        estimator._plan = (("gaussian", None, family),)
        joint = Joint(ClassPrior(0.0, probs), (Block("gaussian", family),), len(classes), means.shape[1])
        params = {"class_probs": probs, "mean": means[order], family.covariance.key: np.asarray(cov, float)}
        estimator._set_fitted(joint, None, Fit(None, joint.public(params), params))
        return estimator

    def _describe(self, feature_names) -> None:
        """The table that samples come back in: an array, or a frame if the columns have names."""
        width = self.n_features_in_
        self._schema = tables.Schema.named(width, feature_names)
        self._label_schema = tables.LabelSchema.of(self.classes_)
        self._key_data, self._key_kind = np.zeros(2, np.uint32), "threefry2x32"


def known_means(means, classes) -> np.ndarray:
    """Means of `from_parameters`, checked: (K, d)."""
    try:
        values = np.asarray(means, float)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.ndim != 2 or len(values) != len(classes) or not np.isfinite(values).all():
        raise ValueError(f"means must be finite numbers, ({len(classes)}, d): a row per class; got shape {values.shape}.")
    return values


def known_covariances(matrices, precisions, d: int, k: int | None) -> np.ndarray:
    """Given covariances (or precisions, inverted), checked: (d, d), or (K, d, d) when k is not None."""
    if (matrices is None) == (precisions is None):
        raise ValueError("Give either covariances or precisions.")
    values = np.asarray(matrices if precisions is None else precisions, float)
    shape = (d, d) if k is None else (k, d, d)
    if values.shape != shape or not np.all(np.isfinite(values)):
        raise ValueError(f"Expected finite matrices of shape {shape}; got shape {values.shape}.")
    for i, matrix in enumerate(values.reshape(-1, d, d)):
        scale = np.sqrt(np.abs(np.diagonal(matrix)))
        if not np.allclose(matrix, matrix.T, rtol=1e-8, atol=1e-12 * np.max(np.outer(scale, scale), initial=0.0)):
            raise ValueError(f"Matrix {i} is not symmetric.")
        if (np.diagonal(matrix) <= 0).any() or rank(matrix) < d:
            raise ValueError(f"Matrix {i} is not positive definite: it is no covariance.")
    return values if precisions is None else np.linalg.inv(values)

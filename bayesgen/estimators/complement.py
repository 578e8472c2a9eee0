"""Complement naive Bayes: a decision rule beside the generative classifiers, not a density."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp
from sklearn.utils.validation import check_is_fitted

from bayesgen.estimators import checks, fit_checks
from bayesgen.estimators.base import GenerativeBase
from bayesgen.families.multinomial import Multinomial
from bayesgen.joint import JointStats


class ComplementNB(GenerativeBase):
    """Complement naive Bayes (Rennie, Shih, Teevan and Karger, 2003), for texts in classes of unequal size.

        w_kj = −ln θ̃_kj,   θ̃_kj = (α_j + N_j − n_kj) / Σ_i (α_i + N_i − n_ki),   score_k(x) = Σ_j x_j w_kj

    with n_kj the count of word j in class k and N_j that in all the classes: the weights of a class come from the texts
    outside it. The scores are no log densities, so there is nothing to sample, impute or score: the class only
    classifies. Class probabilities are the softmax of the scores; the class prior is of no account.

    Parameters
    ----------
    alpha : float or array (d,), default 1.0
        Smoothing: added to every count.
    norm : bool, default False
        Divide the weights of each class by their sum, against long texts.
    unlabelled : label or None
        A value of y that stands for a missing label.

    Attributes
    ----------
    classes_ : array (K,)
    params_ : dict
        "weight": the weights w (K, d).

    Examples
    --------
    >>> import numpy as np
    >>> from bayesgen import ComplementNB
    >>> X = np.array([[2, 1, 0], [1, 0, 0], [0, 1, 3], [0, 2, 1]])
    >>> ComplementNB().fit(X, ["a", "a", "b", "b"]).predict([[1, 0, 0], [0, 1, 1]]).tolist()
    ['a', 'b']
    """

    method, handle_unknown = "map", "error"
    _learns_unlabelled = False  # there is no density to say which class they may be of

    def __init__(self, alpha=1.0, norm=False, unlabelled=None):
        self.alpha = alpha
        self.norm = norm
        self.unlabelled = unlabelled

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = False
        tags.classifier_tags.poor_score = True
        return tags

    def _family(self) -> Multinomial:
        alpha = self.alpha
        return Multinomial(float(alpha) if np.ndim(alpha) == 0 else np.asarray(alpha, float))

    def _check_arguments(self) -> None:
        checks.smoothing("alpha", self.alpha)
        checks.one_label("unlabelled", self.unlabelled)

    def _remember(self, y) -> None:
        """Nothing: there are no rows to give back."""

    def _learn(self, stats: JointStats, x=None, labels=None) -> None:
        joint = self._joint(len(self.classes_), self.n_features_in_)
        fit_checks.statistics(joint, stats, self, needs_counts=False)
        counts = stats.blocks[0].total
        outside = counts.sum(0) - counts + joint.blocks[0].family.alpha
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(outside) - np.log(outside.sum(1, keepdims=True))
        checks.complement(logs, self)
        weight = logs / logs.sum(1, keepdims=True) if self.norm else -logs
        self._prior_joint, self._stats = joint, stats
        self.params_, self._settings = {"weight": weight}, self.get_params()

    def _scores(self, X) -> np.ndarray:
        check_is_fitted(self)
        return self._read(X) @ self.params_["weight"].T

    def predict_log_proba(self, X) -> np.ndarray:
        """Logarithm of the softmax of the scores, (n, K)."""
        scores = self._scores(X)
        return scores - logsumexp(scores, axis=1, keepdims=True)

    def predict_proba(self, X) -> np.ndarray:
        """Softmax of the scores, (n, K)."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X) -> np.ndarray:
        """The class of the largest score."""
        scores = self._scores(X)
        return self.classes_[np.argmax(scores, axis=1)]

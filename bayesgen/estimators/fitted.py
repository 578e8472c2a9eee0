"""A fitted joint model: how it is estimated from the statistics, its parameters and draws, and its variations."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import jax
import numpy as np
from sklearn.utils.validation import check_is_fitted

from bayesgen import predict
from bayesgen.estimators import checks
from bayesgen.estimators.base import GenerativeBase, as_key, float64, on_host
from bayesgen.inference import exact
from bayesgen.joint import ClassPrior, Joint, JointStats

METHODS = ("mle", "map", "posterior")
# Numbers (draws x parameters) up to which draws are kept, that one piece of them has, and that `draws_` may have.
KEPT_DRAWS, PIECE_OF_DRAWS, MOST_DRAWS = 2**26, 2**24, 2**29


class FittedJoint(GenerativeBase):
    """What follows from the statistics once they are there."""

    def _check_arguments(self) -> None:
        checks.choice("method", self.method, METHODS)
        checks.choice("engine", self.engine, ("auto", "exact"), "the posterior of this family is exact in closed form")
        checks.choice("handle_unknown", self.handle_unknown, ("error", "missing"))
        checks.number("class_smoothing", self.class_smoothing, low=0.0)
        checks.whole("num_draws", self.num_draws, low=1)

    def _class_prior(self, num_classes: int) -> ClassPrior:
        if self.priors is None:
            return ClassPrior(float(self.class_smoothing))
        return ClassPrior(0.0, checks.class_probabilities(self.priors, num_classes))

    def _resolved(self, stats: JointStats, x, labels) -> Joint:
        """The joint with every number that is taken from the data filled in."""
        return self._joint(len(self.classes_), self.n_features_in_).resolve_stats(stats)

    def _learn(self, stats: JointStats, x=None, labels=None) -> None:
        """Estimate from the statistics and set the fitted attributes."""
        joint = self._resolved(stats, x, labels)
        checks.statistics(joint, stats, self)
        if self.method == "posterior":
            posterior = exact.run(exact.update, joint, stats)
            params = exact.run(exact.expectation, posterior, stats.labels)
            working = exact.run(exact.predictive, posterior, stats.labels)
        else:
            posterior, params = None, exact.run(exact.point, joint, stats, self.method)
            checks.estimates(joint, stats, params, self)
            working = params
        self._set_fitted(joint, stats, on_host(posterior), on_host(params), on_host(working))

    def _set_fitted(self, joint, stats, posterior, params, working) -> None:
        self._prior_joint, self._density, self._stats, self._posterior = joint, joint.bare(), stats, posterior
        self.params_, self._working = joint.public(params), working
        self._draws: dict[str, np.ndarray] | None = None
        self.engine_, self._method, self._settings = "exact", self.method, self.get_params()
        self.priors_ = params["class_probs"]
        self._rows = None

    # -- fitted attributes
    @property
    def prior_(self):
        """The prior's numbers, as they were resolved; by block where there are several (None for method="mle")."""
        self._check_fitted_attribute()
        if self._method == "mle":
            return None
        priors = {block.name: getattr(block.family, "prior", block.family) for block in self._prior_joint.blocks}
        return priors if len(priors) > 1 else next(iter(priors.values()))

    @property
    def draws_(self) -> dict[str, np.ndarray]:
        """Draws of the parameters, leading axis S = num_draws under "posterior", 1 otherwise."""
        self._check_fitted_attribute()
        if self._posterior is None:
            return {key: value[None] for key, value in self.params_.items()}
        checks.few_enough_draws(self, self._draw_numbers(), MOST_DRAWS)
        pieces = list(self._pieces_of_draws())
        return self._density.public({name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]})

    def _draw_numbers(self) -> int:
        """How many numbers one draw of the parameters has."""
        return sum(np.size(value) for value in self._working.values())

    @float64
    def _pieces_of_draws(self) -> list | Iterator[dict[str, np.ndarray]]:
        """The draws behind `draws_`, as densities need them: all at once where they are few, else piece by piece."""
        if self._posterior is None:
            return [{key: value[None] for key, value in self._working.items()}]
        if self._draws is not None:
            return [self._draws]
        size = max(1, self._draw_numbers())
        if size * self.num_draws <= KEPT_DRAWS:
            self._draws = self._draw(self._use_key("draws"), self.num_draws)
            return [self._draws]
        piece = 1 << max(0, (PIECE_OF_DRAWS // size).bit_length() - 1)
        return self._stream_draws(self._use_key("draws"), piece)

    def _stream_draws(self, key, piece: int) -> Iterator[dict[str, np.ndarray]]:
        pieces = exact.draws(self._posterior, self._stats.labels, key, self.num_draws, piece)
        while True:
            with jax.enable_x64(True):  # not held open while the caller works on the piece
                part = next(pieces, None)
            if part is None:
                return
            yield on_host(part)

    @float64
    def _draw(self, key, num: int) -> dict[str, np.ndarray]:
        return on_host(next(exact.draws(self._posterior, self._stats.labels, key, num)))

    @property
    def log_evidence_(self) -> float:
        """log p(X, y), the parameters integrated out (a proper prior; not for method="mle")."""
        self._check_fitted_attribute()
        known = self._method != "mle" and self._stats is not None
        if not known or not all(block.family.has_evidence() for block in self._prior_joint.blocks):
            raise AttributeError(
                f"{type(self).__name__} has no log_evidence_ here: it needs method='map' or 'posterior' and a proper prior."
            )
        with jax.enable_x64(True):
            return float(exact.log_evidence(self._prior_joint, self._stats))

    def _check_fitted_attribute(self) -> None:
        if not hasattr(self, "params_"):
            raise AttributeError(f"This {type(self).__name__} is not fitted yet: call fit first.")

    def _use_key(self, use: str, random_state=None) -> jax.Array:
        """The key of one use: the caller's random_state, or the fitted object's own, split by the use's name."""
        if random_state is not None:
            key = as_key(random_state)
        else:
            key = jax.random.wrap_key_data(jax.numpy.asarray(self._key_data), impl=self._key_kind)
        return jax.random.fold_in(key, sum(use.encode()))

    def _rows_to_score(self, X):
        check_is_fitted(self)
        return self._read(X)

    # -- variations
    def with_priors(self, priors):
        """A copy with other class probabilities (in the order of `classes_`, or "uniform"); nothing is refitted.

        Examples
        --------
        >>> import numpy as np
        >>> from bayesgen import LDA
        >>> clf = LDA().fit(np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 0, 1])
        >>> clf.with_priors("uniform").priors_
        array([0.5, 0.5])
        """
        check_is_fitted(self)
        new = copy.copy(self)
        new._rows = getattr(self, "_rows", None)
        new.priors = priors
        fixed = ClassPrior(0.0, checks.class_probabilities(priors, len(self.classes_)))
        new._prior_joint = _replace(self._prior_joint, class_prior=fixed)
        new._posterior = None if self._posterior is None else _replace(self._posterior, class_prior=fixed)
        new.params_ = self.params_ | {"class_probs": fixed.fixed}
        new._working = self._working | {"class_probs": fixed.fixed}
        new.priors_, new._draws, new._settings = fixed.fixed, None, new.get_params()
        return new

    @float64
    def loo_predict_proba(self) -> np.ndarray:
        """Class probabilities (n, K) of each training row by the model without that row, without refitting.

        The class probabilities are re-estimated as a refit would (given `priors` stay); the prior's numbers are kept. Of a
        row of weight w > 1 one copy is left out, as whole weights are repeated rows.
        """
        check_is_fitted(self)
        x, labels = checks.training_rows(self)
        checks.can_leave_one_out(self)
        table = predict.leave_one_out(self._prior_joint, self._stats, x, labels, self._method)
        checks.left_out(self, table, labels)
        return np.exp(table)


def _replace(joint: Joint, **changes) -> Joint:
    new = copy.copy(joint)
    for name, value in changes.items():
        object.__setattr__(new, name, value)
    return new

"""A fitted joint model: how it is estimated from the statistics, its parameters and draws, and its variations."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from bayesgen import predict, prior_shift
from bayesgen.estimators import checks, engine_checks, engines, fit_checks
from bayesgen.estimators.base import GenerativeBase, as_key, float64, on_host
from bayesgen.families.averaged import SHARE, Averaged
from bayesgen.families.base import Labels
from bayesgen.families.contract import classless
from bayesgen.families.product import Product
from bayesgen.inference import exact
from bayesgen.joint import Block, ClassPrior, Joint, JointStats

METHODS = ("mle", "map", "posterior")
# Numbers (draws x parameters) up to which draws are kept, that one piece of them has, and that `draws_` may have.
ROWS_AT_ONCE = 1024  # rows without label whose classes are told at once, under every draw
KEPT_DRAWS, PIECE_OF_DRAWS, MOST_DRAWS = 2**26, 2**24, 2**29


class Fit(NamedTuple):
    """What an estimation gives: parameters as users see them and as densities need them.

    Under "posterior" the working parameters are those of the predictive, and of sampled blocks all the draws.
    """

    posterior: Joint | None  # class prior and blocks in closed form at their posterior numbers
    params: dict[str, np.ndarray]
    working: dict[str, np.ndarray]
    sampled: engines.Sampled = engines.Sampled({})
    points: list[engines.Point] = []  # noqa: RUF012  what the optimiser found


class Search(NamedTuple):
    """What has no closed form: its name, its part of the joint, its statistics, and the engine that serves it."""

    name: str
    joint: Joint
    stats: tuple
    engine: str


def _all_in_closed_form(estimator) -> bool:
    """Whether every block of the fit has statistics and a closed form of them."""
    if estimator._stats is None:
        return False
    pairs = zip(estimator._prior_joint.blocks, estimator._stats.blocks, strict=True)
    return all(block.family.closed_form and part != () for block, part in pairs)


def _may_leave_one_out(estimator) -> bool:
    """Not known to be impossible."""
    return not hasattr(estimator, "params_") or estimator._stats is None or _all_in_closed_form(estimator)


class FittedJoint(GenerativeBase):
    """What follows from the statistics once they are there."""

    def _check_arguments(self) -> None:
        checks.choice("method", self.method, METHODS)
        engine_checks.argument(self)
        checks.choice("handle_unknown", self.handle_unknown, ("error", "missing"))
        checks.number("class_smoothing", self.class_smoothing, low=0.0)
        checks.whole("num_draws", self.num_draws, low=1)
        checks.one_label("unlabelled", self.unlabelled)

    def _class_prior(self, num_classes: int) -> ClassPrior:
        if self.priors is None:
            return ClassPrior(float(self.class_smoothing))
        return ClassPrior(0.0, checks.class_probabilities(self.priors, num_classes))

    def _resolved(self, stats: JointStats, x, labels) -> Joint:
        """The joint with every number that is taken from the data filled in."""
        return self._joint(len(self.classes_), self.n_features_in_).resolve_stats(stats, x, labels)

    def _learn(self, stats: JointStats, x=None, labels=None) -> None:
        """Estimate from the statistics (and from the rows, where there are none) and set the fitted attributes."""
        joint = self._resolved(stats, x, labels)
        fit_checks.statistics(joint, stats, self)
        chosen = engines.choose(joint, stats, labels, self)
        engine_checks.able(joint, stats, chosen, x, labels, self)
        fit = self._known_blocks(joint, stats, {name for name, engine in chosen.items() if engine == "exact"})
        searches = self._searches(joint, stats, chosen, labels)
        more = self._with_sampled if self.method == "posterior" else self._with_searched
        self._set_fitted(joint, stats, more(fit, joint, searches, x, labels) if searches else fit, chosen)

    def _searches(self, joint: Joint, stats: JointStats, chosen: dict, labels) -> list[Search]:
        """What has no closed form: block by block, or all of them together where labels are missing."""
        if engines.together(labels):
            return [Search(engines.TOGETHER, joint, stats.blocks, next(iter(chosen.values())))]
        pairs = zip(joint.blocks, stats.blocks, strict=True)
        names = [(block.name, part) for block, part in pairs if chosen[block.name] != "exact"]
        return [Search(name, joint.only({name}), (part,), chosen[name]) for name, part in names]

    def _known_blocks(self, joint: Joint, stats: JointStats, names: set[str]) -> Fit:
        """Class probabilities and the blocks in closed form."""
        known = joint.only(names)
        pairs = zip(joint.blocks, stats.blocks, strict=True)
        some = stats._replace(blocks=tuple(part for block, part in pairs if block.name in names))
        if self.method == "posterior":
            posterior = exact.run(exact.update, known, some)
            params = exact.run(exact.expectation, posterior, some.labels)
            working = exact.run(exact.predictive, posterior, some.labels)
        else:
            posterior, params = None, exact.run(exact.point, known, some, self.method)
            fit_checks.estimates(known, some, params, self)
            working = params
        return Fit(on_host(posterior), known.public(on_host(params)), on_host(working))

    def _with_sampled(self, fit: Fit, joint: Joint, searches: list[Search], x, labels) -> Fit:
        """The same with what is sampled: it works with all of its draws."""
        chains = {}
        for name, part, stats, engine in searches:
            chains[name] = engines.sample(part, engine, stats, x, labels, self, engines.key_of(self, name))
        sampled = engines.Sampled(chains)
        drawn = sampled.flat()
        known = {"class_probs": fit.working["class_probs"][None]}
        shown = joint.only({block.name for block in joint.blocks if sampled.holds(block)}).public(known | drawn)
        means = {key: np.asarray(value).mean(0) for key, value in shown.items()}
        params = fit.params | means if sampled.together else means | fit.params
        return fit._replace(params=params, working=fit.working | _as_weights(drawn), sampled=sampled)

    def _with_searched(self, fit: Fit, joint: Joint, searches: list[Search], x, labels) -> Fit:
        """The same with what is searched for."""
        params, working, points = dict(fit.params), dict(fit.working), []
        for name, part, stats, engine in searches:
            found = engines.point(part, engine, stats, x, labels, self, engines.key_of(self, name))
            working |= found.params
            params |= part.public(working)
            points.append(found)
        return fit._replace(params=params, working=working, points=points)

    def _set_fitted(self, joint: Joint, stats: JointStats | None, fit: Fit, chosen: dict[str, str] | None = None) -> None:
        plain = joint.bare()
        self._prior_joint, self._plain, self._stats = joint, plain, stats
        # the density of a new row; `_plain` are the densities at one value of the parameters
        self._density = self._averaged(joint, plain, fit.sampled)
        self._posterior, self._sampled, self.params_, self._working = fit.posterior, fit.sampled, fit.params, fit.working
        self._draws: dict[str, np.ndarray] | None = None
        names = set((chosen or {"": "exact"}).values())
        self.engine_ = names.pop() if len(names) == 1 else chosen
        self._method, self._settings = self.method, self.get_params()
        self.priors_ = fit.params["class_probs"]
        if fit.points:
            self.n_iter_ = max(found.n_iter for found in fit.points)
            self.converged_ = all(found.converged for found in fit.points)
            self._paths = [path for found in fit.points for path in found.paths]
        self._rows = None

    def _averaged(self, joint: Joint, plain: Joint, sampled: engines.Sampled) -> Joint:
        """The joint with the average over its draws for every block that was sampled."""
        shared = {block.name: self._shared(block) for block in joint.blocks if sampled.holds(block)}
        if sampled.together and len(joint.blocks) > 1:
            names = [joint.prefix(block) + name for block in joint.blocks for name in shared[block.name]]
            whole = Block("together", Averaged(Product(plain), tuple(sorted(names))))
            return Joint(plain.class_prior, (whole,), joint.num_classes, joint.num_features, several=False)
        pairs = zip(joint.blocks, plain.blocks, strict=True)
        return plain.with_families([Averaged(p.family, shared[b.name]) if sampled.holds(b) else p.family for b, p in pairs])

    def _shared(self, block) -> tuple[str, ...]:
        """Names of the block's parameters that all the classes share."""
        return tuple(sorted(classless(block.family, len(self.classes_), block.num_features(self.n_features_in_))))

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
        return self._plain.public({name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]})

    def _draw_numbers(self) -> int:
        """How many numbers one draw of the parameters has."""
        return sum(np.size(value) for value in self.params_.values())

    @float64
    def _pieces_of_draws(self) -> list | Iterator[dict[str, np.ndarray]]:
        """The draws behind `draws_`, as densities need them: all at once where they are few, else piece by piece."""
        if self._posterior is None:
            return [{key: value[None] for key, value in self._working.items()}]
        if self._draws is not None:
            return [self._draws]
        size = max(1, self._draw_numbers())
        if size * self.num_draws <= KEPT_DRAWS or self._sampled.chains:
            self._draws = self._exact_draws(self._use_key("draws"), self._num_drawn()) | self._sampled.flat()
            return [self._draws]
        piece = 1 << max(0, (PIECE_OF_DRAWS // size).bit_length() - 1)
        return self._stream_draws(self._use_key("draws"), piece)

    def _num_drawn(self) -> int:
        """How many draws there are: as many as were sampled, where some were."""
        first = next(iter(self._sampled.chains.values()), None)
        return self.num_draws if first is None else int(np.prod(next(iter(first.draws.values())).shape[:2]))

    def _chained_draws(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Working draws and sampler statistics, each (chains, draws, ...); independent draws in as many chains as divide."""
        pieces = list(self._pieces_of_draws())
        draws = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        total = len(draws["class_probs"])
        chains = self._sampled.num_chains if self._sampled.chains else 1
        if chains == 1 and not self._sampled.statistics():
            chains = next(c for c in (4, 3, 2, 1) if total % c == 0)
        chained = {name: value.reshape(chains, total // chains, *value.shape[1:]) for name, value in draws.items()}
        return chained, self._sampled.statistics()

    def _stream_draws(self, key, piece: int) -> Iterator[dict[str, np.ndarray]]:
        assert self._posterior is not None
        pieces = exact.draws(self._posterior, self._stats.labels, key, self.num_draws, piece)
        while True:
            with jax.enable_x64(True):  # not held open while the caller works on the piece
                part = next(pieces, None)
            if part is None:
                return
            yield on_host(part)

    @float64
    def _exact_draws(self, key, num: int) -> dict[str, np.ndarray]:
        """Independent draws of the class probabilities and of the blocks in closed form."""
        assert self._posterior is not None
        return on_host(next(exact.draws(self._posterior, self._stats.labels, key, num)))

    def _draw(self, key, num: int) -> dict[str, np.ndarray]:
        """`num` draws of all the parameters; of sampled blocks, some of those that there are."""
        draws = self._exact_draws(key, num)
        if self._sampled.chains:
            rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
            total = self._num_drawn()
            pick = rng.choice(total, num, replace=num > total)
            draws |= {name: value[pick] for name, value in self._sampled.flat().items()}
        return draws

    @property
    def diagnostics_(self) -> dict:
        """What the engines said of each sampled block: divergences, R-hat and effective draws, or the trace of the bound."""
        self._check_fitted_attribute()
        if self._posterior is None or not self._sampled.chains:
            raise AttributeError(f"{type(self).__name__} has no diagnostics_: nothing was sampled, the fit is exact.")
        found = {name: chains.diagnostics for name, chains in self._sampled.chains.items()}
        several = len(self._prior_joint.blocks) > 1 and not self._sampled.together
        return found if several else next(iter(found.values()))

    # -- rows without label
    def _found_labels(self, x, labels: Labels) -> None:
        open_ = np.flatnonzero(~labels.known)
        shares = np.empty((len(open_), len(self.classes_)))
        for start in range(0, len(open_), ROWS_AT_ONCE):
            rows = open_[start : start + ROWS_AT_ONCE]
            shares[start : start + len(rows)] = self._shares(x[rows])
        self._transduced = labels.codes, shares

    def _shares(self, x) -> np.ndarray:
        """p(y | D) of training rows without label, (n, K): p(y | x, θ) averaged over the posterior, which has seen them."""
        if self._posterior is None:
            table = predict.proba(self._density, self._working, x)
            return np.where(np.isnan(table), self.priors_, table)
        parts = [predict.proba_draws(self._plain, draws, x) for draws in self._pieces_of_draws()]
        return np.concatenate(parts).mean(0)

    @property
    def label_distributions_(self) -> np.ndarray:
        """p(y | D) of the training rows, (n, K): 1 for the label of rows that have one."""
        codes, shares = self._labels_found("label_distributions_")
        table = np.zeros((len(codes), len(self.classes_)))
        table[np.arange(len(codes)), np.maximum(codes, 0)] = 1.0
        table[codes < 0] = shares
        return table

    @property
    def transduction_(self) -> np.ndarray:
        """The labels of the training rows, (n,): their own, and the most probable class of those that had none."""
        codes, shares = self._labels_found("transduction_")
        found = np.array(codes)
        found[codes < 0] = shares.argmax(1)
        return self.classes_[found]

    def _labels_found(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        self._check_fitted_attribute()
        if getattr(self, "_transduced", None) is not None:
            return self._transduced
        rows = getattr(self, "_rows", None)
        if rows is not None:
            return rows[1].codes, np.empty((0, len(self.classes_)))
        raise AttributeError(
            f"{type(self).__name__} has no {name}: the rows had labels, and only fit keeps them (not partial_fit, merge, "
            "forget, from_parameters, or a stored model)."
        )

    @property
    def log_evidence_(self) -> float:
        """log p(X, y), the parameters integrated out (a proper prior; not for method="mle")."""
        self._check_fitted_attribute()
        known = self._method != "mle" and _all_in_closed_form(self)
        if not known or not all(block.family.has_evidence() for block in self._prior_joint.blocks):
            raise AttributeError(
                f"{type(self).__name__} has no log_evidence_ here: it needs method='map' or 'posterior', a proper prior, "
                "and families whose evidence is known in closed form (with complete rows, for full covariances)."
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
        x = self._read(X)
        engine_checks.scorable_rows(self, x)
        return x

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
        # draws of class probabilities, and the weights that they gave to the others, are of no account any more
        new._sampled = self._sampled.without_class_probs()
        new._working = {name: v for name, v in self._working.items() if name != SHARE} | {"class_probs": fixed.fixed}
        new.priors_, new._draws, new._settings = fixed.fixed, None, new.get_params()
        for name in ("priors_n_iter_", "priors_converged_"):
            vars(new).pop(name, None)
        return new

    @float64
    def adapt_priors(self, X, sample_weight=None):
        """A copy with the class probabilities of rows without labels, by maximum likelihood; nothing is refitted.

            π = argmax Σ_i w_i log Σ_k π_k f(x_i | k)

        For rows among which the classes are more or less frequent than in training, while the rows of each class still look
        the same (prior shift). The maximum is where π_k is the average of p(k | x_i, π): the fixed point of EM (Saerens,
        Latinne and Decaestecker, 2002), found by EM and then Newton's method. Under "posterior" f is the predictive density.
        Missing cells are integrated out. A class of probability 0 keeps it: `with_priors("uniform")` first lets it in.

        Parameters
        ----------
        X : array or data frame (n, d)
        sample_weight : array-like (n,), optional
            Whole weights are the same as repeated rows.

        Returns
        -------
        A copy, as of `with_priors`, with `priors_n_iter_` and `priors_converged_`.

        Examples
        --------
        >>> import numpy as np
        >>> from bayesgen import LDA
        >>> clf = LDA().fit(np.array([[0.0], [1.0], [4.0], [5.0]]), ["a", "a", "b", "b"])
        >>> clf.adapt_priors([[0.2], [0.5], [0.9], [4.4]]).priors_.round(3)
        array([0.75, 0.25])
        """
        x = self._rows_to_score(X)
        weight = _check_sample_weight(sample_weight, np.empty((x.shape[0], 1)), dtype=float, ensure_non_negative=True)
        alone = self._working | {"class_probs": np.ones(len(self.classes_))}
        table = predict.log_joint(self._density, alone, x)
        rows = checks.rows_of_some_class(table[:, self.priors_ > 0], weight)
        found = prior_shift.adapt(table[rows], self.priors_, weight[rows])
        checks.priors_found(found)
        new = self.with_priors(found.probs)
        new.priors_n_iter_, new.priors_converged_ = found.n_iter, found.converged
        return new

    @available_if(_may_leave_one_out)
    @float64
    def loo_predict_proba(self) -> np.ndarray:
        """Class probabilities (n, K) of each training row by the model without that row, without refitting.

        The class probabilities are re-estimated as a refit would (given `priors` stay); the prior's numbers are kept. Of a
        row of weight w > 1 one copy is left out, as whole weights are repeated rows.
        """
        check_is_fitted(self)
        x, labels = checks.training_rows(self)
        fit_checks.can_leave_one_out(self)
        _, table = predict.leave_one_out(self._prior_joint, self._stats, x, labels, self._method)
        fit_checks.left_out(self, table, labels)
        return np.exp(table)


def _as_weights(drawn: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Draws as densities need them: class probabilities that were drawn too weigh the draws of each class."""
    if "class_probs" not in drawn:
        return drawn
    probs = drawn["class_probs"]
    total = probs.sum(0)
    with np.errstate(divide="ignore"):
        share = np.where(total > 0, np.log(probs) - np.log(np.where(total > 0, total, 1.0)), -np.log(len(probs)))
    return drawn | {"class_probs": probs.mean(0), SHARE: share}


def _replace(joint: Joint, **changes) -> Joint:
    new = copy.copy(joint)
    for name, value in changes.items():
        object.__setattr__(new, name, value)
    return new

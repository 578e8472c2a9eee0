"""Which engine serves which block, and what comes of it.

Where every training row has a class the posterior factorises: class probabilities and each block are independent given the
data, and each is found by the engine that suits it. Rows without label tie them together: then one engine serves the whole
joint. "auto":

    exact       where the answer is known in closed form (class probabilities are, given all the labels)
    em          mle and map where it would be, were no cells or labels missing
    gibbs       posteriors where it would be, and where class means are pooled
    optimiser   mle and map of everything else
    nuts        posteriors of everything else
"""

from __future__ import annotations

import dataclasses
import warnings
import zlib
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bayesgen.estimators import engine_checks, units
from bayesgen.estimators.blas import one_blas_thread
from bayesgen.families.base import Conjugate, Labels, Params
from bayesgen.families.gaussian import Gaussian
from bayesgen.inference import em, exact, gibbs, incomplete, laplace, nuts, optimise, target, variational
from bayesgen.inference.chains import Chains
from bayesgen.inference.settings import EM, name_of, settings_of
from bayesgen.joint import Block, ClassPrior, Joint, JointStats
from bayesgen.moments import Moments

RUNS: dict[str, Callable[..., Chains]] = {"nuts": nuts.run, "svi": variational.run, "laplace": laplace.run}
TOGETHER = ""  # the name under which draws of a whole joint are kept
HIGH_R_HAT, FEW_DRAWS = 1.02, 100  # beyond which chains are reported: R-hat, effective draws


class Point(NamedTuple):
    """A mode that was searched for, under the keys of the joint."""

    params: Params
    n_iter: int
    converged: bool
    paths: tuple[np.ndarray, ...] = ()  # of EM: the objective at each step


def choose(joint: Joint, stats: JointStats, labels, estimator) -> dict[str, str]:
    """The engine of each block (see above)."""
    pairs = list(zip(joint.blocks, stats.blocks, strict=True))
    if together(labels):
        all_conjugate = all(isinstance(block.family, Conjugate) for block in joint.blocks)
        return {block.name: _of_incomplete(all_conjugate, estimator) for block in joint.blocks}
    return {block.name: _engine_of(block, part, estimator) for block, part in pairs}


def together(labels) -> bool:
    """Whether some row has no label."""
    return labels is not None and not labels.complete


def _engine_of(block: Block, part, estimator) -> str:
    known = block.family.closed_form and part != ()
    sampled = estimator.method == "posterior" and name_of(estimator.engine) not in ("auto", "exact")
    return "exact" if known and not sampled else _of_incomplete(isinstance(block.family, Conjugate), estimator)


def _of_incomplete(conjugate: bool, estimator) -> str:
    asked = name_of(estimator.engine)
    if estimator.method != "posterior":
        return "em" if conjugate else "optimiser"
    if asked not in ("auto", "exact"):
        return asked
    return "gibbs" if conjugate else "nuts"


def problem(block: Block, part, joint: Joint, x, labels: Labels) -> target.Problem:
    """A block's parameters and data: its statistics where it has some, else its rows."""
    data = target.Rows.of(block.take_host(x), labels) if part == () else part
    return target.Problem(block.family, data, joint.num_classes, block.num_features(joint.num_features))


# -- points
def point(joint: Joint, engine: str, parts: tuple, x, labels, estimator, key) -> Point:
    """The mle or map of a joint (of one block, where all the labels are known)."""
    if engine == "em":
        return _by_em(joint, x, labels, estimator)
    if together(labels):
        return _by_search(joint, target.Together(joint, target.Rows.of(x, labels)), x, labels, estimator, key)
    (block,), (part,) = joint.blocks, parts
    return _by_search(joint, problem(block, part, joint, x, labels), x, labels, estimator, key)


def _by_search(joint: Joint, task, x, labels, estimator, key) -> Point:
    """The best maximum that the optimiser finds; where labels are missing it starts from that of the rows which have one."""
    starts = target.starts(task, key, optimise.RESTARTS)
    options = {"prior": estimator.method == "map", "jacobian": False}
    try:
        if together(labels):
            own = target.Together(joint, target.Rows.of(x[labels.known], labels.part(labels.known)))
            first = optimise.maximise(own, starts, prior=True, jacobian=False)
            starts = starts._replace(places=np.concatenate([first.flat[None], starts.places]))
        best = optimise.maximise(task, starts, **options)
    except optimise.NoStart as reason:
        raise engine_checks.no_start(joint.blocks[0], task, starts.places[0], str(reason), estimator) from None
    if not best.converged:
        _warn_not_converged(_names(joint), best, estimator)
    params = {name: np.asarray(value)[0] for name, value in target.constrained(task, best.flat[None]).items()}
    if not together(labels):
        params = {joint.prefix(joint.blocks[0]) + name: value for name, value in params.items()}
    return Point(params, best.n_iter, best.converged)


def _by_em(joint: Joint, x, labels, estimator) -> Point:
    """The mle or map by EM; class by class where all the labels are known and classes share nothing."""
    settings = estimator.engine if isinstance(estimator.engine, EM) else EM()
    stated, factors = joint, units.factors_of(joint, x)
    joint, x = units.into(joint, x, factors)
    # dividing by n − 1 is a correction of the result, not a step towards it
    plain = joint.with_families([_without_correction(block.family) for block in joint.blocks])
    try:
        with one_blas_thread, np.errstate(all="ignore"):
            stats, found = _expected(plain, x, labels, estimator.method, settings)
            params = exact.run(exact.point, joint, stats, estimator.method)
    except em.Collapsed as failure:
        raise engine_checks.collapsed(joint, failure.params, labels, estimator) from None
    params = {name: np.asarray(value) for name, value in params.items()}
    engine_checks.solid(joint, params, labels, estimator)
    params = units.out_of(stated, params, factors)
    n_iter, converged = max(one.n_iter for one in found), all(one.converged for one in found)
    if not converged:
        warnings.warn(
            f"EM of the {_names(joint)} did not converge in {n_iter} steps: much is missing, or nothing determines "
            f"some parameter. Try engine=EM(max_iter={10 * settings.max_iter}) (in bayesgen.inference), a stronger prior, "
            "or columns with fewer missing cells.",
            ConvergenceWarning,
            stacklevel=8,
        )
    return Point(params, n_iter, converged, tuple(one.path for one in found))


def _expected(joint: Joint, x, labels: Labels, method: str, settings: EM) -> tuple[JointStats, list[em.Found]]:
    """The statistics expected at the end of the search (or of those of each class)."""
    alone = [joint.blocks[0].family.apart(k) for k in range(joint.num_classes)]
    if not labels.complete or len(joint.blocks) > 1 or None in alone or joint.num_classes == 1:
        data = incomplete.Incomplete.of(joint, x, labels)
        found = em.run(data, _beginning(joint, x, labels, settings), method, settings)
        return found.stats, [found]
    parts, first = [], incomplete.begin(joint, x, labels)
    for k, family in enumerate(alone):
        rows = labels.codes == k
        own = dataclasses.replace(joint.with_families([family]), num_classes=1, class_prior=ClassPrior())
        mine = Labels(np.zeros(int(rows.sum()), int), 1, None if labels.weight is None else labels.weight[rows])
        try:
            start = {name: value[k : k + 1] for name, value in first.items()}
            parts.append(em.run(incomplete.Incomplete.of(own, x[rows], mine), start, method, settings))
        except em.Collapsed as failure:
            raise em.Collapsed(_placed(first, failure.params, k)) from None
    whole = jax.tree_util.tree_map(lambda *leaves: np.concatenate(leaves), *(part.stats.blocks[0] for part in parts))
    return JointStats(labels.counts(), (whole,)), parts


def _placed(whole: Params, own: Params, k: int) -> Params:
    """Parameters of all the classes with those of class k put in."""
    out = {name: np.array(value) for name, value in whole.items()}
    for name, value in own.items():
        if name != "class_probs":
            out[name][k] = value[0]
    return out


def _without_correction(family):
    return dataclasses.replace(family, unbiased=False) if getattr(family, "unbiased", False) else family


def _beginning(joint: Joint, x, labels: Labels, settings: EM) -> Params:
    """Where EM begins; with labels missing, at the fit of the labelled rows, under a weak prior so that there is one."""
    first = incomplete.begin(joint, x, labels)
    if labels.complete:
        return first
    rows, own = x[labels.known], labels.part(labels.known)
    weak = joint.with_families([block.family.weak(block.take_host(rows), own) for block in joint.blocks])
    data = incomplete.Incomplete.of(weak, rows, own)
    if not data.gaps:
        return first
    return em.run(data, first, "map", dataclasses.replace(settings, tol=1e-4)).params


def _gaussian(x: np.ndarray, labels: Labels, *, tied: bool) -> Joint:
    """All the columns with full covariances and a weak prior."""
    family = Gaussian("full", tied).resolve(x, labels)
    return Joint(ClassPrior(), (Block("gaussian", family),), labels.num_classes, x.shape[1])


def pooled_moments(x: np.ndarray, labels: Labels) -> Moments:
    """Moments of rows with gaps, expected under the mle with one covariance; under map where there is no mle."""
    stated = _gaussian(x, labels, tied=True)
    factors = units.factors_of(stated, x)
    joint, x = units.into(stated, x, factors)
    data, first = incomplete.Incomplete.of(joint, x, labels), incomplete.begin(joint, x, labels)
    with one_blas_thread, np.errstate(all="ignore"):
        weak = em.run(data, first, "map", EM(tol=1e-4))
        try:
            found = em.run(data, weak.params, "mle", EM())
        except em.Collapsed:
            found = em.run(data, weak.params, "map", EM())
    weight, mean, scatter = found.stats.blocks[0]
    if factors is None:
        return Moments(weight, mean, scatter)
    return Moments(weight, mean * factors, scatter * factors[:, None] * factors)


def free_covariances(x: np.ndarray, labels: Labels) -> tuple[Joint, Params]:
    """The map with a covariance for each class, of rows with gaps."""
    stated = _gaussian(x, labels, tied=False)
    factors = units.factors_of(stated, x)
    joint, x = units.into(stated, x, factors)
    data, first = incomplete.Incomplete.of(joint, x, labels), incomplete.begin(joint, x, labels)
    with one_blas_thread, np.errstate(all="ignore"):
        params = em.run(data, first, "map", EM()).params
    return stated.bare(), units.out_of(stated, params, factors)


def _names(joint: Joint) -> str:
    return f"{joint.blocks[0].name} block" if len(joint.blocks) == 1 else "blocks together"


def _warn_not_converged(what: str, best: optimise.Optimum, estimator) -> None:
    remedy = (
        "Use method='map', whose prior keeps parameters finite" if estimator.method == "mle" else "State a stronger prior"
    )
    warnings.warn(
        f"{estimator.method} of the {what} did not converge after {best.n_iter} steps: the largest slope is "
        f"{np.max(np.abs(best.gradient), initial=0.0):.3g}. The density may have no maximum. {remedy}, rescale the "
        "columns, or drop those that are constant within a class.",
        ConvergenceWarning,
        stacklevel=8,
    )


# -- draws
def sample(joint: Joint, engine: str, parts: tuple, x, labels, estimator, key) -> Chains:
    """Posterior draws of a joint, under its keys (of one block, where all the labels are known)."""
    settings = settings_of(engine if isinstance(estimator.engine, str) else estimator.engine)
    num, task = estimator.num_draws, None
    try:
        if engine == "gibbs":
            found = _by_gibbs(joint, parts, x, labels, key, num, settings)
        else:
            task = _task(joint, parts, x, labels)
            found = RUNS[engine](task, key, num, settings)
    except optimise.NoStart as reason:
        assert task is not None
        start = target.starts(task, key, 1).places[0]
        raise engine_checks.no_start(joint.blocks[0], task, start, str(reason), estimator) from None
    except laplace.NoCurvature as reason:
        raise ValueError(
            f"Laplace's approximation of the {_names(joint)} is not defined: {reason}. Use engine='nuts', or a "
            "stronger prior."
        ) from None
    if not all(np.isfinite(value).all() for value in found.draws.values()):
        raise FloatingPointError(
            f"The {engine} engine drew parameters of the {_names(joint)} that are not finite: the posterior may be "
            "improper, or the columns badly scaled. State a stronger prior, or rescale the columns."
        )
    _report(_names(joint), engine, found, estimator)
    if engine == "gibbs" or together(labels):
        return found
    prefix = joint.prefix(joint.blocks[0])
    return found._replace(draws={prefix + name: value for name, value in found.draws.items()})


def _task(joint: Joint, parts: tuple, x, labels):
    if together(labels):
        return target.Together(joint, target.Rows.of(x, labels))
    return problem(joint.blocks[0], parts[0], joint, x, labels)


def _by_gibbs(joint: Joint, parts: tuple, x, labels, key, num: int, settings) -> Chains:
    factors = units.factors_of(joint, x) if () in parts else None
    scaled, rows = units.into(joint, x, factors)
    found = gibbs.run(_augmented(scaled, parts, rows, labels), key, num, settings)
    return found._replace(draws=units.out_of(joint, found.draws, factors))


def _augmented(joint: Joint, parts: tuple, x, labels) -> gibbs.Augmented:
    if () not in parts:  # nothing to fill in
        known = JointStats(np.zeros(joint.num_classes), parts)
        return gibbs.Augmented(joint, known, None, None, (0,) * len(parts), (None,) * len(parts), True, 0)
    engine_checks.whole_weights(joint, x, labels)
    return gibbs.Augmented.of(joint, x, labels)


def _report(what: str, engine: str, found: Chains, estimator) -> None:
    """Say when a sampler's draws should not be trusted, and what to do."""
    seen = found.diagnostics
    wrong, remedies = [], []
    if seen.get("divergences", 0):
        total = found.statistics["diverging"].size
        wrong.append(f"{seen['divergences']} of {total} draws diverged")
        accept = getattr(estimator.engine, "target_accept", 0.8)
        remedies.append(f"engine=NUTS(target_accept={min(0.99, (1 + accept) / 2 + 0.05):.2g})")
    few = min(FEW_DRAWS, estimator.num_draws // 10)
    if seen.get("r_hat", 1.0) > _high_r_hat(found) or seen.get("ess", np.inf) < few:
        worst = seen["r_hat_of"] or seen["ess_of"]
        wrong.append(f"chains disagree: R-hat of {worst} is {seen['r_hat']:.3f}, {seen['ess']:.0f} effective draws")
        name = type(settings_of(engine)).__name__
        remedies.append(f"more draws (num_draws={4 * estimator.num_draws}) or a longer warm-up ({name}(warmup=2000))")
        remedies += ["engine='nuts' (where much is missing, Gibbs moves slowly)"] if engine == "gibbs" else []
    if seen.get("converged") is False:
        wrong.append("the evidence bound was still rising at the end")
        remedies.append("more steps (engine=SVI(steps=10000))")
    if wrong:
        warnings.warn(
            f"{engine} of the {what}: {'; '.join(wrong)}. Try {', or '.join(remedies)}, a stronger prior, or "
            "columns of a common scale. NUTS, SVI and Gibbs are in bayesgen.inference; to_arviz() shows the chains.",
            ConvergenceWarning,
            stacklevel=8,
        )


def _high_r_hat(found: Chains) -> float:
    """R-hat of good chains scatters the more the shorter they are, and means little for very short ones."""
    length = next(iter(found.draws.values())).shape[1]
    return max(HIGH_R_HAT, 1 + 5 / length) if length >= 20 else np.inf


# -- what the estimator keeps
@dataclasses.dataclass
class Sampled:
    """Draws that were sampled, by the name of their block (TOGETHER: of all of them), and what their samplers said."""

    chains: dict[str, Chains]

    @property
    def together(self) -> bool:
        """Whether class probabilities and blocks were sampled together."""
        return TOGETHER in self.chains

    def holds(self, block: Block) -> bool:
        """Whether the block was sampled."""
        return self.together or block.name in self.chains

    def without_class_probs(self) -> Sampled:
        """The same draws for class probabilities that are given."""
        chains = {}
        for name, found in self.chains.items():
            chains[name] = found._replace(draws={key: v for key, v in found.draws.items() if key != "class_probs"})
        return Sampled(chains)

    def flat(self) -> Params:
        """Working draws (S, ...) under the keys of the joint, chain after chain."""
        parts = [found.draws for found in self.chains.values()]
        return {key: v.reshape(-1, *v.shape[2:]) for drawn in parts for key, v in drawn.items()}

    @property
    def num_chains(self) -> int:
        """Of the samplers that have chains; independent draws fit into any number."""
        return max(len(next(iter(found.draws.values()))) for found in self.chains.values())

    def statistics(self) -> dict[str, np.ndarray]:
        """The samplers' statistics, (chains, draws): one sampler's own, or those of several together."""
        all_ = [found.statistics for found in self.chains.values() if found.statistics]
        if len(all_) <= 1:
            return dict(all_[0]) if all_ else {}
        together: dict[str, Callable] = {"diverging": np.any, "energy": np.sum, "lp": np.sum, "n_steps": np.sum}
        together |= {"acceptance_rate": np.min, "step_size": np.min, "tree_depth": np.max}
        return {name: rule([one[name] for one in all_], axis=0) for name, rule in together.items()}


def key_of(estimator, name: str) -> jax.Array:
    """A block's own key, whichever other blocks there are."""
    return jax.random.fold_in(estimator._use_key("engine"), zlib.crc32(name.encode()))

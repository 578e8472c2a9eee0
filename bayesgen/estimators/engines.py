"""Which engine serves which block, and what comes of it.

Every training row has a class, so the posterior factorises: class probabilities and each block are independent given the
data, and each is found by the engine that suits it. "auto":

    exact       where the posterior is known in closed form (class probabilities always are)
    gibbs       where it would be, were no cells missing, and where class means are pooled
    nuts        everything else
"""

from __future__ import annotations

import dataclasses
import warnings
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bayesgen.estimators import engine_checks
from bayesgen.families.base import Conjugate, Labels, Params
from bayesgen.inference import gibbs, laplace, nuts, optimise, target, variational
from bayesgen.inference.chains import Chains
from bayesgen.inference.settings import name_of, settings_of
from bayesgen.joint import Block, Joint, JointStats

RUNS: dict[str, Callable[..., Chains]] = {"nuts": nuts.run, "svi": variational.run, "laplace": laplace.run}
HIGH_R_HAT, FEW_DRAWS = 1.02, 100  # beyond which chains are reported: R-hat, effective draws


class Point(NamedTuple):
    """A mode found by the optimiser."""

    params: Params
    n_iter: int
    converged: bool


def choose(joint: Joint, stats: JointStats, estimator) -> dict[str, str]:
    """The engine of each block: for mle and map "exact" or "optimiser", for posteriors the name of a sampler or "exact"."""
    pairs = zip(joint.blocks, stats.blocks, strict=True)
    return {block.name: _engine_of(block, part, estimator) for block, part in pairs}


def _engine_of(block: Block, part, estimator) -> str:
    known = block.family.closed_form and part != ()
    asked = name_of(estimator.engine)
    if estimator.method != "posterior":
        return "exact" if known else "optimiser"
    if asked not in ("auto", "exact"):
        return asked
    if known:
        return "exact"
    return "gibbs" if isinstance(block.family, Conjugate) else "nuts"


def problem(block: Block, part, joint: Joint, x, labels: Labels) -> target.Problem:
    """A block's parameters and data: its statistics where it has some, else its rows."""
    data = target.Rows.of(block.take_host(x), labels) if part == () else part
    return target.Problem(block.family, data, joint.num_classes, block.num_features(joint.num_features))


def point(block: Block, part, joint: Joint, x, labels, estimator, key) -> Point:
    """The mle or map of a block by the optimiser."""
    task = problem(block, part, joint, x, labels)
    starts = target.starts(task, key, optimise.RESTARTS)
    try:
        best = optimise.maximise(task, starts, prior=estimator.method == "map", jacobian=False)
    except optimise.NoStart as reason:
        raise engine_checks.no_start(block, task, starts.places[0], str(reason), estimator) from None
    if not best.converged:
        _warn_not_converged(block, best, estimator)
    params = {name: np.asarray(value)[0] for name, value in target.constrained(task, best.flat[None]).items()}
    return Point(params, best.n_iter, best.converged)


def _warn_not_converged(block: Block, best: optimise.Optimum, estimator) -> None:
    remedy = (
        "Use method='map', whose prior keeps parameters finite" if estimator.method == "mle" else "State a stronger prior"
    )
    warnings.warn(
        f"{estimator.method} of the {block.name} block did not converge after {best.n_iter} steps: the largest slope is "
        f"{np.max(np.abs(best.gradient), initial=0.0):.3g}. The density may have no maximum. {remedy}, rescale the "
        "columns, or drop those that are constant within a class.",
        ConvergenceWarning,
        stacklevel=8,
    )


def sample(block: Block, engine: str, part, joint: Joint, x, labels, estimator, key) -> Chains:
    """Posterior draws of a block."""
    settings = settings_of(engine if isinstance(estimator.engine, str) else estimator.engine)
    num, task = estimator.num_draws, None
    try:
        if engine == "gibbs":
            found = gibbs.run(_augmented(block, part, joint, x, labels, estimator), key, num, settings)
        else:
            task = problem(block, part, joint, x, labels)
            found = RUNS[engine](task, key, num, settings)
    except optimise.NoStart as reason:
        assert task is not None
        start = target.starts(task, key, 1).places[0]
        raise engine_checks.no_start(block, task, start, str(reason), estimator) from None
    except laplace.NoCurvature as reason:
        raise ValueError(
            f"Laplace's approximation of the {block.name} block is not defined: {reason}. Use engine='nuts', or a stronger "
            "prior."
        ) from None
    finite = all(np.isfinite(value).all() for value in found.draws.values())
    if not finite:
        raise FloatingPointError(
            f"The {engine} engine drew parameters of the {block.name} block that are not finite: the posterior may be "
            "improper, or the columns badly scaled. State a stronger prior, or rescale the columns."
        )
    _report(block, engine, found, estimator)
    return found


def _augmented(block: Block, part, joint: Joint, x, labels, estimator) -> gibbs.Augmented:
    if part != ():
        return gibbs.Augmented(block.family, part, None, 0, joint.num_classes, block.num_features(joint.num_features))
    rows = block.take_host(x)
    engine_checks.whole_weights(rows, labels)
    return gibbs.Augmented.of(block.family, rows, labels)


def _report(block: Block, engine: str, found: Chains, estimator) -> None:
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
    if seen.get("converged") is False:
        wrong.append("the evidence bound was still rising at the end")
        remedies.append("more steps (engine=SVI(steps=10000))")
    if wrong:
        warnings.warn(
            f"{engine} of the {block.name} block: {'; '.join(wrong)}. Try {', or '.join(remedies)}, a stronger prior, or "
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
    """Draws of the blocks that were sampled, by block name, and what their samplers said."""

    chains: dict[str, Chains]

    def flat(self, joint: Joint) -> Params:
        """Working draws (S, ...) under the keys of the joint, chain after chain."""
        out: dict[str, Any] = {}
        for block in joint.blocks:
            if block.name in self.chains:
                drawn = self.chains[block.name].draws
                out |= {joint.prefix(block) + key: v.reshape(-1, *v.shape[2:]) for key, v in drawn.items()}
        return out

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


def key_of(estimator, block: Block) -> jax.Array:
    """A block's own key, whichever other blocks there are."""
    return jax.random.fold_in(estimator._use_key("engine"), zlib.crc32(block.name.encode()))

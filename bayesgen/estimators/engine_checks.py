"""Errors about engines, and about families and rows that an engine cannot serve: what, where, and what to do."""

from __future__ import annotations

import jax
import numpy as np
from numpyro import handlers

from bayesgen import tables
from bayesgen.estimators.checks import choice, column, label, number, whole
from bayesgen.estimators.fit_checks import singular_remedy
from bayesgen.families.base import Conjugate, Family
from bayesgen.families.contract import check_contract, unresolved
from bayesgen.families.gaussian import Gaussian
from bayesgen.inference import target
from bayesgen.inference.settings import EM, ENGINES, NUTS, SVI, Gibbs, Laplace, name_of
from bayesgen.inference.variational import GUIDES
from bayesgen.programs import tracing

NAMES = ("auto", "exact", *ENGINES)
MOST_REPEATED = 2**21  # rows that Gibbs sampling fills in at every sweep


def argument(estimator) -> None:
    """`engine=`: a name, or an engine's settings."""
    engine = estimator.engine
    if not isinstance(engine, NUTS | Gibbs | SVI | Laplace | EM):
        choice("engine", engine, NAMES, "or settings such as bayesgen.inference.NUTS(target_accept=0.95)")
    if name_of(engine) == "em" and estimator.method == "posterior":
        raise ValueError("engine='em' finds mle and map, but method='posterior': use engine='auto' or 'gibbs'.")
    if isinstance(engine, EM):
        number("tol", engine.tol, low=0.0)
        whole("max_iter", engine.max_iter, low=1)
    sampled = name_of(engine) not in ("auto", "exact", "em")
    if sampled and estimator.method != "posterior":
        raise ValueError(
            f"engine={name_of(engine)!r} samples a posterior, but method={estimator.method!r}: use method='posterior', or "
            "engine='auto'."
        )
    if isinstance(engine, NUTS | Gibbs):
        _chains(engine, estimator.num_draws)
    if isinstance(engine, NUTS):
        number("target_accept", engine.target_accept, 0.5, 0.9999)
        whole("max_tree_depth", engine.max_tree_depth, low=1)
    if isinstance(engine, Gibbs):
        whole("thin", engine.thin, low=1)
    if isinstance(engine, SVI):
        choice("guide", engine.guide, tuple(GUIDES))
        whole("steps", engine.steps, low=1)
        whole("batch_rows", engine.batch_rows, low=1)
        number("step_size", engine.step_size, low=0.0)


def _chains(engine, num_draws: int) -> None:
    whole("warmup", engine.warmup, low=1 if isinstance(engine, NUTS) else 0)
    if engine.chains is None:
        return
    whole("chains", engine.chains, low=1)
    if num_draws % engine.chains:
        raise ValueError(f"num_draws={num_draws} draws cannot be shared out among {engine.chains} chains of equal length.")


def contract(family, d: int, num_classes: int) -> None:
    """A family that was written elsewhere: its two methods, and the shapes of what they give."""
    if not isinstance(family, Family) or not type(family).__module__.startswith("bayesgen."):
        check_contract(family, num_classes, d)


def trainable_rows(block, x, estimator) -> None:
    """Rows that a block's family cannot be trained on."""
    family = block.family
    rows = block.take_host(x)
    if tables.is_sparse(rows):
        return
    if not isinstance(family, Conjugate):
        _inside(block, rows, estimator)
        # a family that waits for numbers from the data is asked when it has them (see scorable_rows)
        if not unresolved(family) and not family_integrates(family, len(estimator.classes_), rows.shape[1]):
            _refuse_gaps(block, rows, estimator)


def family_integrates(family, num_classes: int, num_features: int) -> bool:
    """Whether rows of which some cells are missing have a density; decided without computing one."""
    found = []

    def look(family, key):
        with handlers.seed(rng_seed=key):
            found.append(family.integrates_missing(family.working(family.model(num_classes, num_features))))

    _without_numbers(look, family)
    return found[0]


def _without_numbers(look, family) -> None:
    """Trace `look(family, key)`; no number of the family is looked at: priors of badly scaled columns may not allow it."""
    kinds = jax.Array | np.ndarray | np.number | int | float
    numeric = all(isinstance(leaf, kinds) for leaf in jax.tree_util.tree_leaves(family))
    with tracing:
        if numeric:
            jax.eval_shape(look, family, jax.random.key(0))
        else:  # a family that waits for the data
            jax.eval_shape(lambda key: look(family, key), jax.random.key(0))


def _refuse_gaps(block, rows: np.ndarray, estimator) -> None:
    missing = np.isnan(rows)
    partly = missing.any(1) & ~missing.all(1)
    if partly.any():
        i = int(np.argmax(partly))
        j = int(np.argmax(missing[i]))
        raise ValueError(
            f"Input X contains NaN: {column(estimator._schema, block.column(j))}, row {i}. The columns of a "
            f"{type(block.family).__name__} block depend on each other, and it does not say what is left when some are "
            "missing: define log_prob(self, params, x, cells=None), with NaN cells integrated out, or drop these rows."
        )


def scorable_rows(estimator, x) -> None:
    """Rows with gaps that a fitted family has no density of."""
    for block in estimator._prior_joint.blocks:
        if type(block.family).log_prob is not Family.log_prob or block.num_features(x.shape[1]) == 1:
            continue
        if not family_integrates(block.family, len(estimator.classes_), block.num_features(x.shape[1])):
            _refuse_gaps(block, block.take_host(x), estimator)


def _inside(block, rows: np.ndarray, estimator) -> None:
    """Cells outside of the family's support have density 0 under every parameter."""
    outside = np.asarray(block.family.outside(rows)) & ~np.isnan(rows)
    if outside.any():
        i, j = np.argwhere(outside)[0]
        name = type(block.family).__name__
        raise ValueError(
            f"{column(estimator._schema, block.column(j))} has {rows[i, j]:g} in row {i} ({int(outside[:, j].sum())} such "
            f"cells), but {name} is a law of {block.family.domain}: choose another family for the column, or transform it."
        )


def able(joint, stats, chosen: dict[str, str], x, labels, estimator) -> None:
    """Whether each block's engine can do what is asked."""
    for block, part in zip(joint.blocks, stats.blocks, strict=True):
        engine, family = chosen[block.name], block.family
        name = type(family).__name__
        if estimator.method != "posterior" and getattr(family, "pooling", False):
            raise ValueError(
                f"method={estimator.method!r} is not defined for class means that are pooled: their joint density says "
                "little of where the mass is. Use method='posterior'."
            )
        if getattr(family, "pooling", False) and (family.prior.flat or not family.prior.proper):
            raise ValueError(
                "Pooled class means need a proper prior: strength above 0, enough degrees of freedom, and a scale that is "
                "positive definite. Use prior='auto'."
            )
        if engine == "exact" and estimator.method == "posterior":
            continue
        if name_of(estimator.engine) == "exact" and engine != "exact":
            raise ValueError(
                f"engine='exact': the {'posterior' if estimator.method == 'posterior' else estimator.method} of the {name} "
                "family is not known in closed form here. Use engine='auto'."
            )
        if engine == "gibbs" and not isinstance(family, Conjugate):
            raise ValueError(
                f"engine='gibbs' needs families that are conjugate given complete rows, and {name} is not. Use "
                "engine='auto' or 'nuts'."
            )
        if estimator.method == "posterior" and x is not None and tables.is_sparse(x):
            remedy = (
                "use engine='exact'" if labels is None or labels.complete else "use method='map', which takes sparse rows"
            )
            raise ValueError(f"engine={engine!r} needs dense rows: give X.toarray(), or {remedy}.")
        if part == ():
            if labels.complete:  # rows without label may have the cells that others lack
                _has_data(block, x, labels, estimator)
            integrates = family_integrates(family, joint.num_classes, block.num_features(joint.num_features))
            if not integrates and not tables.is_sparse(x):
                _refuse_gaps(block, block.take_host(x), estimator)


def _has_data(block, x, labels, estimator) -> None:
    """Without a proper prior every class needs observed cells in every column."""
    improper = [] if estimator.method == "mle" else _improper_sites(block, labels.num_classes, x.shape[1])
    if estimator.method != "mle" and not improper:
        return
    why = "method='mle' has no prior" if estimator.method == "mle" else f"the prior of {improper[0]!r} is improper"
    cells_of_every_class(block, x, labels, estimator, why)
    if estimator.method == "mle":
        _never_together(block, ~np.isnan(block.take_host(x)) & (labels.weights() > 0)[:, None], labels, estimator)


def cells_of_every_class(block, x, labels, estimator, why: str) -> None:
    """Whether every class has an observed cell in every column of the block."""
    seen = ~np.isnan(block.take_host(x)) & (labels.weights() > 0)[:, None]
    count = np.stack([np.bincount(labels.codes, column, labels.num_classes) for column in seen.T], 1)
    if (count <= 0).any():
        k, j = np.argwhere(count <= 0)[0]
        raise ValueError(
            f"Class {label(estimator, k)} has no observed cell in {column(estimator._schema, block.column(j))}, and {why}: "
            f"nothing says what its {type(block.family).__name__} parameters are. {_proper_remedy(estimator)}, or drop the "
            "class or the column."
        )


def _proper_remedy(estimator) -> str:
    if estimator.method == "mle":
        return "State a proper prior (method='map')"
    return "State a proper prior" if hasattr(estimator, "prior") else "Use LDA or QDA, whose prior is proper"


def _improper_sites(block, num_classes: int, num_features: int) -> list[str]:
    """Sites of the family's model whose prior has no finite mass."""
    laws: dict[str, str] = {}

    def look(family, key):
        with handlers.trace() as trace, handlers.seed(rng_seed=key):
            family.model(num_classes, block.num_features(num_features))
        laws.update({name: _law(site["fn"]) for name, site in trace.items() if site["type"] == "sample"})

    _without_numbers(look, block.family)
    return [name for name, law in laws.items() if "Improper" in law or law == "Flat"]


def _law(law) -> str:
    """The name of a distribution, without what was wrapped around it."""
    while hasattr(law, "base_dist"):
        law = law.base_dist
    return type(law).__name__


def _never_together(block, seen: np.ndarray, labels, estimator) -> None:
    """The mle of a covariance of two columns that no row has both of is not determined."""
    family = block.family
    if not isinstance(family, Gaussian) or family.drops_missing:
        return
    groups = [np.ones(len(seen), bool)] if family.tied else [labels.codes == k for k in range(labels.num_classes)]
    for k, mine in enumerate(groups):
        both = seen[mine].T.astype(float) @ seen[mine]
        if (both <= 0).any():
            i, j = np.argwhere(both <= 0)[0]
            names = " and ".join(column(estimator._schema, block.column(c)) for c in (i, j))
            who = "No row has" if family.tied else f"No row of class {label(estimator, k)} has"
            raise ValueError(
                f"{who} both {names}: nothing says how they vary together, and method='mle' has no prior. Use method='map', "
                "or put the columns into blocks of their own."
            )


def whole_weights(joint, x: np.ndarray, labels) -> None:
    """A row of weight w is w rows with gaps and labels of their own: there is no half row to fill in."""
    if labels.weight is None:
        return
    gaps = [np.isnan(block.take_host(x)).any(1) for block in joint.blocks if not block.family.drops_missing]
    weight = np.asarray(labels.weight)[np.logical_or.reduce([~labels.known, *gaps])]
    if weight.sum() > MOST_REPEATED:
        raise ValueError(
            f"The rows with missing cells or labels have a total weight of {weight.sum():g}: Gibbs sampling fills in a row "
            "of weight w w times, which would take too long. Use engine='nuts', or divide sample_weight by a number."
        )
    if not (weight == np.floor(weight)).all():
        raise ValueError(
            "sample_weight has fractions on rows with missing cells or labels, which Gibbs sampling cannot fill in: use "
            "engine='nuts', or whole weights."
        )


def solid(joint, params: dict, labels, estimator) -> None:
    """Whether every covariance that EM found is positive definite; a proper prior sees to that."""
    if estimator.method == "map" and all(getattr(b.family.prior, "proper", True) for b in _gaussians(joint)):
        return
    failure = _singular(joint, params, labels, estimator)
    if failure is not None:
        raise failure


def collapsed(joint, params: dict, labels, estimator) -> ValueError:
    """What to say when EM came to parameters without a density."""
    if estimator.method == "mle":
        failure = _singular(joint, params, labels, estimator, least=1e-9)
        remedy = "Use method='map', or rescale the columns."
    else:
        failure, remedy = None, "State a stronger prior, or look for cells that are far off."
    return failure or ValueError(
        f"EM of method={estimator.method!r} led to parameters without a density: the columns may be badly scaled, or nearly "
        f"the same. {remedy}"
    )


def _gaussians(joint) -> list:
    return [block for block in joint.blocks if isinstance(block.family, Gaussian)]


def _singular(joint, params: dict, labels, estimator, least: float = 0.0) -> ValueError | None:
    """What to say of a covariance that is not positive definite; least: of the eigenvalues of its correlations."""
    for block in _gaussians(joint):
        structure, mine = block.family.covariance, joint.params_of(block, params)
        cov = np.nan_to_num(np.asarray(mine[structure.key]))
        found = structure.deficits(cov, np.nan_to_num(np.asarray(mine["mean"])))
        found = found or _nearly_singular(structure.matrices(cov, *np.shape(mine["mean"])), least)
        if found:
            return ValueError(_singular_text(block, found[0], labels, estimator))
    return None


def _nearly_singular(matrices: np.ndarray, least: float) -> list[tuple]:
    sd = np.sqrt(np.maximum(np.einsum("kii->ki", matrices), np.finfo(float).tiny))
    smallest = np.linalg.eigvalsh(matrices / (sd[:, :, None] * sd[:, None, :]))[:, 0]
    return [(int(k), 0, []) for k in np.flatnonzero(smallest < least)]


def _singular_text(block, deficit: tuple, labels, estimator) -> str:
    k, _, constant = deficit
    who = "The pooled covariance" if block.family.tied else f"The covariance of class {label(estimator, k)}"
    known = labels.part(labels.known).counts()
    rows = f"{known.sum():g} labelled row(s)" if block.family.tied else f"{known[k]:g} labelled row(s)"
    names = ", ".join(column(estimator._schema, block.column(j)) for j in constant[:5])
    what = f" Constant: {names}." if constant else ""
    why = "for the cells that are missing" if labels.complete else "missing labels let a class shrink onto a few rows, or"
    few = f"{why} {rows} are too few" if not labels.complete else f"{rows} are too few {why}, or columns repeat others"
    few = "some columns do not vary" if constant else few
    return (
        f"{who} becomes singular: {few}.{what} method={estimator.method!r} has no maximum here. "
        f"{singular_remedy(estimator, constant)}"
    )


def no_start(block, task, start: np.ndarray, reason: str, estimator) -> ValueError:
    """The density is not finite wherever the search starts: say where."""
    where = _first_bad_cell(block, task, start, estimator)
    return ValueError(
        f"The density of the {type(block.family).__name__} block is not finite at any of the points that the search starts "
        f"from: {reason}{where}. Check that the cells lie in the family's support, that `model` states a prior on the scale "
        "of the data, and that `distribution` gives finite log densities."
    )


def _first_bad_cell(block, task, start: np.ndarray, estimator) -> str:
    if not isinstance(task.data, target.Rows) or isinstance(task, target.Together):
        return ""
    params = target.evaluate(task, target.unflatten(task, jax.numpy.asarray(start))).params
    rows = task.data
    table = np.asarray(task.family.log_prob(params, rows.x))[np.arange(len(rows.codes)), rows.codes]
    bad = np.flatnonzero(~np.isfinite(table) & (rows.weight > 0))
    if not len(bad):
        return ""
    i = int(bad[0])
    columns = np.arange(rows.x.shape[1])
    if task.family.separable(params):
        cells = np.asarray(task.family.cell_log_prob(params, rows.x[i : i + 1]))[0, rows.codes[i]]
        columns = np.flatnonzero(~np.isfinite(cells))[:1]
    names = ", ".join(column(estimator._schema, block.column(j)) for j in columns[:3])
    return f" (row {i}, class {label(estimator, rows.codes[i])}, {names}: log density {table[i]:g})"

"""A posterior's diagnosis: its draws as ArviZ data, and the scores by which models are compared."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import logsumexp, xlogy
from sklearn.utils.validation import check_is_fitted

from bayesgen import arviz_data, predict, scores
from bayesgen.estimators import checks, fit_checks
from bayesgen.estimators.base import float64
from bayesgen.estimators.fitted import MOST_DRAWS, FittedJoint
from bayesgen.families.base import Labels, free_parameters
from bayesgen.families.multinomial import Multinomial
from bayesgen.joint import Joint

MOST_NUMBERS = 2**29  # in one group of ArviZ data: 4 GiB
MOST_CELLS = 2**27  # of a sparse table that is written out as observed data


class Diagnosed(FittedJoint):
    """Classifiers whose posterior can be diagnosed and compared."""

    @float64
    def to_arviz(self, log_likelihood="auto", posterior_predictive=False, random_state=None) -> Any:
        """The posterior as ArviZ data: draws with named axes, the log likelihood of every row, and the data.

        Groups: `posterior` (the parameters of `draws_`), `sample_stats` (where the engine has some), `log_likelihood` with
        `joint`, log p(x_i, y_i | θ), and `conditional`, log p(y_i | x_i, θ) (of rows without label log p(x_i | θ), and 0),
        `posterior_predictive` (on request), `observed_data` (x, categories as codes, and y, the position of the label in
        `classes_`, −1 for none) and, where rows have weights, `constant_data` with `weight`. Axes: class, feature, feature_b
        (the second axis of a covariance), category, row; with several blocks of columns the block's name is put before its
        variables and axes, as in `gaussian.mean`. A column with fewer categories than others has probability 0 in the places
        that are left over.

        Parameters
        ----------
        log_likelihood : "auto" or bool, default "auto"
            It needs the training rows, which only `fit` keeps. "auto" leaves it out, with a warning, where they are gone or
            too many; True raises an error then.
        posterior_predictive : bool or int, default False
            Replicated tables of the size of the training table, one for each draw of the parameters (a number: for so many
            draws of each chain). Their cells are all filled. Multinomial rows have the average total.
        random_state : int, Generator, JAX key, optional
            Of the replicated tables; by default the fitted object's own.

        Returns
        -------
        arviz.InferenceData, or with ArviZ 1.0 and later an xarray.DataTree.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from bayesgen import LDA
        >>> X, y = load_iris(return_X_y=True, as_frame=True)
        >>> data = LDA(method="posterior", num_draws=200, random_state=0).fit(X, y).to_arviz()
        >>> data["posterior"]["covariance"].dims
        ('chain', 'draw', 'feature', 'feature_b')
        >>> data["log_likelihood"]["joint"].shape
        (4, 50, 150)
        """
        check_is_fitted(self)
        _needs_posterior(self)
        if not isinstance(log_likelihood, bool):
            checks.choice("log_likelihood", log_likelihood, ("auto",), "or True or False")
        _fits("posterior", self.num_draws * self._draw_numbers(), "Set num_draws lower.")
        rows = self._kept_rows(log_likelihood)
        draws, statistics = self._chained_draws()
        flat = _flat(draws)
        groups = {"posterior": arviz_data.parameters(self._plain, _chained(self._plain.public(flat), draws))}
        if statistics:
            groups["sample_stats"] = {name: (arviz_data.SAMPLE, value) for name, value in statistics.items()}
        if rows is not None and log_likelihood is not False and self._may_hold(log_likelihood, flat, rows):
            groups["log_likelihood"] = self._likelihoods(flat, draws, *rows)
        coords = arviz_data.coordinates(self._plain, self._axis_names())
        if posterior_predictive is not False:
            places = self._places(posterior_predictive, *draws["class_probs"].shape[:2])
            groups["posterior_predictive"] = self._replicated(draws, places, random_state)
            coords["posterior_predictive.draw"] = places
        if rows is not None:
            groups |= _observed(*rows)
        return arviz_data.build(groups, coords, self._provenance())

    def _kept_rows(self, log_likelihood):
        """The training rows, or None with a warning where they were not kept."""
        if log_likelihood is True or getattr(self, "_rows", None) is not None:
            return checks.training_rows(self, "The log likelihood of to_arviz")
        if log_likelihood == "auto":
            warnings.warn(
                "The training rows were not kept (partial_fit, merge, forget, or a stored or copied model): log_likelihood "
                "and observed_data are left out.",
                stacklevel=4,
            )
        return None

    def _may_hold(self, log_likelihood, flat: dict, rows: tuple) -> bool:
        numbers = 2 * len(flat["class_probs"]) * rows[0].shape[0]
        if log_likelihood is True:
            _fits("log_likelihood", numbers, "Set num_draws lower, or log_likelihood=False; compare works row by row.")
        elif numbers > MOST_NUMBERS:
            warnings.warn(f"log_likelihood would take {8e-9 * numbers:.0f} GB, and is left out.", stacklevel=4)
        return numbers <= MOST_NUMBERS

    def _likelihoods(self, flat: dict, draws: dict, x, labels: Labels) -> arviz_data.Variables:
        num, n = len(flat["class_probs"]), x.shape[0]
        joint, conditional = np.empty((num, n)), np.empty((num, n))
        for rows in predict.row_batches(n, num, len(self.classes_)):
            codes = labels.codes[rows]
            own, shares = predict.row_draws(self._plain, flat, x[rows], codes)
            joint[:, rows] = own.T
            conditional[:, rows] = np.where(codes >= 0, shares[np.arange(len(codes)), :, codes].T, 0.0)
        dims = (*arviz_data.SAMPLE, "row")
        both = _chained({"joint": joint, "conditional": conditional}, draws)
        return {name: (dims, value) for name, value in both.items()}

    def _num_rows(self) -> int:
        """Of the training table, or the weight of its rows where they were not kept."""
        rows = getattr(self, "_rows", None)
        return max(1, round(float(np.sum(self._stats.labels)))) if rows is None else len(rows[1].codes)

    def _places(self, which, chains: int, length: int) -> np.ndarray:
        """The draws of each chain that tables are replicated for, evenly spaced."""
        if which is not True:
            checks.whole("posterior_predictive", which, low=1)
        places = np.linspace(0, length - 1, length if which is True else min(int(which), length)).astype(int)
        numbers = chains * len(places) * self._num_rows() * (self.n_features_in_ + 1)
        _fits("posterior_predictive", numbers, "Ask for fewer draws of each chain, say posterior_predictive=10.")
        return places

    def _replicated(self, draws: dict, places: np.ndarray, random_state) -> arviz_data.Variables:
        some = {name: value[:, places] for name, value in draws.items()}
        x, y = predict.replicate(self._plain, _flat(some), self._num_rows(), self._use_key("predictive", random_state))
        both = _chained({"x": x, "y": y}, some)
        return {"x": ((*arviz_data.SAMPLE, "row", "feature"), both["x"]), "y": ((*arviz_data.SAMPLE, "row"), both["y"])}

    def _axis_names(self) -> arviz_data.Names:
        columns = range(self.n_features_in_) if self._schema.columns is None else self._schema.columns.tolist()
        categories = [None if values is None else values.tolist() for values in self._schema.categories]
        index: Any = getattr(self, "_index", None) if getattr(self, "_rows", None) is not None else None
        rows = index if index is not None and index.nlevels == 1 and index.is_unique else None
        return arviz_data.Names(self.classes_.tolist(), list(columns), categories, rows)

    def _provenance(self) -> dict[str, str]:
        from bayesgen import __version__

        engine = self.engine_
        if isinstance(engine, dict):
            engine = ", ".join(f"{block}: {name}" for block, name in engine.items())
        library = {"inference_library": "bayesgen", "inference_library_version": __version__}
        return library | {"estimator": type(self).__name__, "method": self._method, "engine": engine}

    # -- scores, for `compare`
    @float64
    def _evaluation(self, sampled: bool = True) -> scores.Scores:
        """Everything that `compare` can say of this model."""
        check_is_fitted(self)
        counts = np.zeros(len(self.classes_)) if self._stats is None else np.asarray(self._stats.labels)
        found = scores.Scores(self.classes_, counts, self._measure())
        if getattr(self, "_rows", None) is not None:
            found.x, labels = checks.training_rows(self, "compare")
            found.codes, found.weight = labels.codes, labels.weight
            self._score_rows(found, labels, sampled and self._method == "posterior")
        evidence = getattr(self, "log_evidence_", None)
        found.numbers |= {} if evidence is None else {"log_evidence": evidence}
        if self._method == "mle" and self._stats is not None:
            found.numbers |= self._criteria(found)
        return found

    def _score_rows(self, found: scores.Scores, labels: Labels, sampled: bool) -> None:
        exactly = self._exactly_left_out(found.x, labels)
        if sampled:
            drawn = self._from_draws(found.x, labels)
            found.rows |= scores.hits(drawn.pop("shares"), labels.codes) | drawn
        if exactly is not None:
            at = np.arange(len(labels.codes)), labels.codes
            found.rows |= {"loo_joint": exactly[0][at], "loo_conditional": exactly[1][at]}
            found.rows |= scores.hits(exactly[1], labels.codes)

    def _exactly_left_out(self, x, labels: Labels) -> tuple[np.ndarray, np.ndarray] | None:
        """log p(x_i, y | D without i) and log p(y | x_i, D without i), where they have a closed form."""
        joint = self._left_out_joint()
        if not all(b.family.closed_form and part != () for b, part in zip(joint.blocks, self._stats.blocks, strict=True)):
            return None
        try:
            fit_checks.can_leave_one_out(self)
        except ValueError:  # not defined without some row
            return None
        tables = predict.leave_one_out(joint, self._stats, x, labels, self._method)
        return None if np.isnan(tables[1]).any() else tables

    def _left_out_joint(self) -> Joint:
        """The joint whose fits without each row are scored."""
        return self._prior_joint

    def _from_draws(self, x, labels: Labels) -> dict[str, np.ndarray]:
        """PSIS-LOO and WAIC by row, a few rows at a time."""
        leaving = np.ones(len(labels.codes)) if labels.weight is None else np.minimum(labels.weight, 1.0)
        efficiency = self._efficiency()
        parts = []
        for rows, own, shares in self._row_draws(x, labels.codes):
            parts.append(scores.from_draws(own, shares, labels.codes[rows], leaving[rows], efficiency))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _row_draws(self, x, codes: np.ndarray) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        for rows in predict.row_batches(len(codes), self._num_drawn(), len(self.classes_)):
            pieces = self._pieces_of_draws()
            found = [predict.row_draws(self._plain, draws, x[rows], codes[rows]) for draws in pieces]
            yield rows, np.concatenate([own for own, _ in found], 1), np.concatenate([shares for _, shares in found], 1)

    def _efficiency(self) -> float:
        """Of the draws, for the smoothing of importance weights: 1 where they are independent."""
        if self.engine_ in ("exact", "laplace", "svi") or self._draw_numbers() * self.num_draws > MOST_DRAWS:
            return 1.0
        draws, _ = self._chained_draws()
        if draws["class_probs"].shape[0] == 1:
            return 1.0
        return arviz_data.efficiency(arviz_data.parameters(self._plain, _chained(self._plain.public(_flat(draws)), draws)))

    def _measure(self) -> tuple[str, ...]:
        """Of each column, whether its law has a density or a mass: the two cannot be compared."""
        kinds: list[str] = [""] * self.n_features_in_
        for block in self._plain.blocks:
            params = self._plain.params_of(block, self._working)
            if self._sampled.holds(block):  # an average over draws: the first will do
                params = {name: value[0] for name, value in params.items()}
            kind = "mass" if block.family.distribution(params).is_discrete else "density"
            kind = "mass given the row's total" if isinstance(block.family, Multinomial) else kind
            for j in range(block.num_features(self.n_features_in_)):
                kinds[block.column(j)] = kind
        return tuple(kinds)

    def _criteria(self, found: scores.Scores) -> dict[str, float]:
        """Maximised log likelihood, number of free parameters, AIC and BIC."""
        if any(getattr(b.family, "unbiased", False) or getattr(b.family, "ridge", 0) for b in self._prior_joint.blocks):
            return {}  # not the maximum
        if found.codes is None and () in self._stats.blocks:
            return {}  # the rows were not kept, and there are no statistics of them
        likelihood = self._log_likelihood(found)
        free = 0 if self._prior_joint.class_prior.fixed is not None else len(self.classes_) - 1
        for block in self._prior_joint.blocks:
            free += free_parameters(block.family, len(self.classes_), block.num_features(self.n_features_in_))
        n = float(np.sum(self._stats.labels if found.codes is None else found.weights()))
        criteria = {"aic": 2 * free - 2 * likelihood, "bic": free * np.log(n) - 2 * likelihood}
        return {"log_likelihood": likelihood, "num_parameters": float(free)} | criteria

    def _log_likelihood(self, found: scores.Scores) -> float:
        """Of the fitted parameters, from the rows, or from the statistics where they were not kept."""
        if found.codes is None:
            pairs = zip(self._plain.blocks, self._stats.blocks, strict=True)
            parts = [b.family.log_likelihood(self._plain.params_of(b, self._working), s) for b, s in pairs]
            return float(np.sum(xlogy(self._stats.labels, self._working["class_probs"])) + sum(map(float, parts)))
        table = predict.log_joint(self._plain, self._working, found.x)
        own = np.where(found.codes >= 0, table[np.arange(len(found.codes)), found.codes], logsumexp(table, axis=1))
        return scores.total(own, found.weights())


def _needs_posterior(estimator) -> None:
    if estimator._method != "posterior":
        raise ValueError(
            f"to_arviz needs method='posterior': this {type(estimator).__name__} was fitted with "
            f"method={estimator._method!r}, which has one value of the parameters and no draws."
        )


def _fits(group: str, numbers: int, remedy: str) -> None:
    if numbers > MOST_NUMBERS:
        raise MemoryError(f"The group {group} would take {8e-9 * numbers:.0f} GB. {remedy}")


def _flat(draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """(chains, draws, ...) as (S, ...)."""
    return {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}


def _chained(values: dict[str, np.ndarray], draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """(S, ...) in the chains of `draws`."""
    shape = draws["class_probs"].shape[:2]
    return {name: np.reshape(value, (*shape, *np.shape(value)[1:])) for name, value in values.items()}


def _observed(x, labels: Labels) -> dict[str, arviz_data.Variables]:
    """The training table and labels, and their weights where they have some."""
    groups: dict[str, arviz_data.Variables] = {"observed_data": {"y": (("row",), labels.codes)}}
    if not sparse.issparse(x) or x.shape[0] * x.shape[1] <= MOST_CELLS:
        table = x.toarray() if sparse.issparse(x) else np.asarray(x)
        groups["observed_data"] = {"x": (("row", "feature"), table)} | groups["observed_data"]
    if labels.weight is not None:
        groups["constant_data"] = {"weight": (("row",), labels.weight)}
    return groups

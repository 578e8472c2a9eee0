"""What one fitted joint model can do: classify, say how sure, generate, fill in and flag."""

from __future__ import annotations

import warnings

import jax
import numpy as np
from scipy import sparse
from scipy import stats as laws
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from bayesgen import outliers, predict, tables
from bayesgen.estimators import checks
from bayesgen.estimators.base import float64
from bayesgen.estimators.diagnosed import Diagnosed
from bayesgen.estimators.explain import Explains
from bayesgen.estimators.fitted import KEPT_DRAWS
from bayesgen.families.gaussian import Gaussian

INTERVAL_CELLS = 2**22  # probabilities held at once: draws x rows x classes
SPARSE_CELLS = 2**22  # cells of sampled rows widened at once


class GenerativeClassifierBase(Explains, Diagnosed):
    """The uses of a fitted joint. Missing cells (NaN, None, pd.NA) are integrated out everywhere, exactly."""

    def __init__(
        self,
        method="map",
        engine="auto",
        priors=None,
        class_smoothing=0.0,
        num_draws=1000,
        random_state=None,
        unlabelled=None,
        handle_unknown="error",
    ):
        self.method = method
        self.engine = engine
        self.priors = priors
        self.class_smoothing = class_smoothing
        self.num_draws = num_draws
        self.random_state = random_state
        self.unlabelled = unlabelled
        self.handle_unknown = handle_unknown

    # -- classify
    @float64
    def predict_proba(self, X) -> np.ndarray:
        """Class probabilities p(y | x_obs, D), (n, K).

        Under "posterior" this is the exact posterior predictive: the joint density is averaged over the posterior, then
        normalised. It is not the mean of `predict_proba_draws`, which normalises before averaging.
        """
        return self._probabilities(X, predict.proba, lambda p: p)

    @float64
    def predict_log_proba(self, X) -> np.ndarray:
        """Logarithms of `predict_proba`, exact also where the probabilities underflow."""
        return self._probabilities(X, predict.log_proba, np.log)

    def _probabilities(self, X, function, scale) -> np.ndarray:
        x = self._rows_to_score(X)
        table = function(self._density, self._working, x)
        nowhere = np.isnan(table).any(1)
        if nowhere.any():
            if not np.isneginf(predict.log_density(self._density, self._working, x[nowhere])).all():
                raise FloatingPointError(
                    "Class probabilities are undefined (NaN): the fitted parameters are degenerate, or cells too extreme."
                )
            with np.errstate(divide="ignore"):
                table[nowhere] = scale(self.priors_)
            warnings.warn(
                f"{int(nowhere.sum())} row(s) have density 0 under every class (first: row {int(np.argmax(nowhere))}): "
                "their class probabilities are the class prior.",
                stacklevel=4,
            )
        return table

    def predict(self, X, costs=None) -> np.ndarray:
        """The most probable class of each row, or the one of least expected cost.

        Parameters
        ----------
        X : array or data frame (n, d)
        costs : array (K, K), optional
            costs[i, j] is the cost of predicting classes_[j] when the truth is classes_[i].

        Examples
        --------
        >>> import numpy as np
        >>> from bayesgen import LDA
        >>> clf = LDA().fit(np.array([[0.0], [1.0], [2.0], [3.0]]), ["no", "no", "yes", "yes"])
        >>> clf.predict([[1.4]]).tolist(), clf.predict([[1.4]], costs=[[0, 1], [9, 0]]).tolist()
        (['no'], ['yes'])
        """
        proba = self.predict_proba(X)
        if costs is None:
            return self.classes_[np.argmax(proba, axis=1)]
        return self.classes_[np.argmin(proba @ checks.cost_matrix(costs, self.classes_), axis=1)]

    def score(self, X, y, sample_weight=None) -> float:
        """Accuracy on the rows that have a label.

        Rows without label (NaN, None, or what `unlabelled` names) are left out, so that cross-validation of partly labelled
        rows counts what can be counted. scikit-learn's own functions refuse NaN among the labels: name another value there,
        unlabelled=-1 say.
        """
        check_is_fitted(self)
        values, missing = self._read_labels(y)
        found = self.predict(X)
        check_consistent_length(found, values, sample_weight)
        if missing.all():
            raise ValueError(f"None of the {len(values)} rows has a label: there is nothing to score.")
        weight = None if sample_weight is None else np.asarray(sample_weight, float)[~missing]
        return float(np.average(found[~missing] == values[~missing], weights=weight))

    # -- how sure
    @float64
    def predict_proba_draws(self, X) -> np.ndarray:
        """p(y | x, θ_s) for each of the num_draws draws θ_s of the parameters, (S, n, K); S = 1 for mle and map.

        Their mean over s is not `predict_proba` (which averages the joint density, then normalises).
        """
        x = self._rows_to_score(X)
        return self._proba_draws(x)

    def _proba_draws(self, x) -> np.ndarray:
        parts = [predict.proba_draws(self._plain, draws, x) for draws in self._pieces_of_draws()]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @float64
    def predict_proba_interval(self, X, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Central intervals of p(y | x, θ) over the draws of θ: (low, high), each (n, K).

        For mle and map there is one θ only, and low = high.
        """
        checks.number("level", level, 0.0, 1.0)
        x = self._rows_to_score(X)
        limits = ((1 - level) / 2, (1 + level) / 2)
        out = np.empty((2, x.shape[0], len(self.classes_)))
        # draws that are not kept are drawn again for every batch of rows: then take as many rows as memory allows
        cells = INTERVAL_CELLS if self._draw_numbers() * self.num_draws <= KEPT_DRAWS else 32 * INTERVAL_CELLS
        step = max(16, cells // ((self._num_drawn() if self._posterior is not None else 1) * len(self.classes_)))
        for start in range(0, x.shape[0], step):
            rows = slice(start, start + step)
            out[:, rows] = np.quantile(self._proba_draws(x[rows]), limits, axis=0)
        return out[0], out[1]

    # -- densities
    @float64
    def log_joint(self, X) -> np.ndarray:
        """log p(x_obs, y = k | D), (n, K), with every constant."""
        x = self._rows_to_score(X)
        return predict.log_joint(self._density, self._working, x)

    @float64
    def score_samples(self, X) -> np.ndarray:
        """log p(x_obs | D), (n,): 0 for a row without any observed cell."""
        x = self._rows_to_score(X)
        return predict.log_density(self._density, self._working, x)

    @float64
    def outlier_pvalues(self, X, draws: int = 10_000, random_state=None) -> np.ndarray:
        """P(log p(X') ≤ log p(x)) for X' from the fitted model, on the observed cells of each row: (n,) in (0, 1].

        Uniform for rows that come from the model (at most uniform where columns are discrete, as equally likely rows count
        as unusual too); small for rows that it finds unusual. Multinomial rows are compared with rows of the same total.
        With one class of normal columns the law of the density is known (chi-square, or F under "posterior"); otherwise
        `draws` rows are simulated, shared by all the rows and scored on each row's cells, and the p-value is
        (r + 1)/(m + 1). With many different patterns of missing cells (or multinomial totals) fewer of them are used per
        pattern, at least 500, so that the work stays bounded.
        """
        x = self._rows_to_score(X)
        checks.whole("draws", draws, low=1)
        exact = self._exact_tail(x)
        if exact is not None:
            return exact
        key_labels, key_rows = jax.random.split(self._use_key("outliers", random_state))
        labels = self._draw_labels(key_labels, draws)
        return outliers.simulated_tail(self._density, self._working, x, labels, key_rows)

    def _exact_tail(self, x: np.ndarray) -> np.ndarray | None:
        """The tail of the quadratic form where it alone orders the density: one class, one elliptical block."""
        joint, df = self._density, self._working.get("df")
        family = joint.blocks[0].family
        if len(joint.blocks) > 1 or joint.num_classes > 1 or not isinstance(family, Gaussian):
            return None
        if df is not None and not family.covariance.elliptical:
            return None
        q, p = predict.quadratic(joint, self._working, x)[:, 0], np.sum(~np.isnan(x), 1)
        some = np.maximum(p, 1)
        tail = laws.chi2.sf(q, some) if df is None else laws.f.sf(q / some, some, np.ravel(df)[0])
        return np.where(p > 0, np.maximum(tail, np.finfo(float).tiny), 1.0)

    def _draw_labels(self, key, n: int) -> np.ndarray:
        with np.errstate(divide="ignore"):
            logits = np.log(self.priors_)
        return np.asarray(jax.random.categorical(key, logits, shape=(n,)))

    # -- generate
    @float64
    def sample(self, n: int = 1, y=None, given=None, random_state=None):
        """Draw synthetic rows from the fitted joint.

        Parameters
        ----------
        n : int
            How many rows.
        y : label or array-like (n,), optional
            Their classes; by default drawn too.
        given : dict, Series or one-row frame, optional
            Cells that are fixed, by column name (position for arrays); the others are drawn given them.
        random_state : int, Generator, JAX key, optional
            By default the fitted object's own: the same call gives the same rows.

        Returns
        -------
        (X, y) in the container, column names and dtypes of the training data.

        Examples
        --------
        >>> import numpy as np
        >>> from bayesgen import LDA
        >>> clf = LDA(random_state=0).fit(np.array([[0.0, 1.0], [1.0, 0.0], [5.0, 6.0], [6.0, 5.0]]), [0, 0, 1, 1])
        >>> rows, labels = clf.sample(3, y=1, given={0: 5.5})
        >>> rows[:, 0].tolist(), labels.tolist()
        ([5.5, 5.5, 5.5], [1, 1, 1])
        """
        check_is_fitted(self)
        checks.whole("n", n, low=1)
        codes = self._sample_codes(y, n)
        key_labels, key_rows = jax.random.split(self._use_key("sample", random_state))
        fixed = self._fixed_cells(given)
        if np.isnan(fixed).all():
            drawn = self._draw_labels(key_labels, n)
            codes = np.where(codes >= 0, codes, drawn)
            draw = predict.sample_sparse if self._schema.container == "sparse" else predict.sample
            x = draw(self._density, self._working, codes, key_rows)
        else:
            x, codes = self._completed(fixed, codes, key_rows)
        return self._schema.write(x), self._label_schema.write(self.classes_[codes])

    def _completed(self, fixed: np.ndarray, codes: np.ndarray, key):
        """Rows with some cells fixed and the others drawn; sparse ones are widened a few at a time."""
        n = len(codes)
        if self._schema.container != "sparse":
            return predict.complete(self._density, self._working, np.tile(fixed, (n, 1)), codes, key)
        step, parts = max(1, SPARSE_CELLS // len(fixed)), []
        for start in range(0, n, step):
            part = codes[start : start + step]
            rows = np.tile(fixed, (len(part), 1))
            x, drawn = predict.complete(self._density, self._working, rows, part, jax.random.fold_in(key, start))
            parts.append((sparse.csr_array(x), drawn))
        return sparse.vstack([x for x, _ in parts], format="csr"), np.concatenate([drawn for _, drawn in parts])

    def _fixed_cells(self, given) -> np.ndarray:
        """`given=` as one row, NaN where a cell is to be drawn."""
        if given is None:
            return np.full(self.n_features_in_, np.nan)
        fixed = self._schema.read_given(given)
        checks.given_counts(fixed, self._plan, self._schema)
        return fixed

    def _sample_codes(self, y, n: int) -> np.ndarray:
        if y is None or np.ndim(y) > 0 or hasattr(y, "iloc"):
            return self._codes(y, n)
        return tables.encode(np.full(n, y), np.zeros(n, bool), self.classes_)

    # -- fill in
    @float64
    def impute(self, X, y=None, draws: int | None = None, random_state=None):
        """Fill the missing cells.

        Parameters
        ----------
        X : array or data frame (n, d)
        y : array-like (n,), optional
            The classes of the rows; where missing (or not given) the class is averaged over (drawn, with `draws`).
        draws : int, optional
            None: the conditional mean E[x_mis | x_obs, D] (discrete columns: the mode), one table. m: a list of m tables
            with the missing cells drawn; under "posterior" each table has its own draw of the parameters from p(θ | D), as
            multiple imputation needs (the new rows themselves do not update θ; `sample(given=...)` draws from the exact
            predictive instead).
        random_state : int, Generator, JAX key, optional

        Returns
        -------
        A table like X (or a list of them): same container, names, index, and observed cells.
        """
        x = self._rows_to_score(X)
        codes = self._codes(y, x.shape[0])
        if draws is not None:
            checks.whole("draws", draws, low=1)
        if tables.is_sparse(X):  # nothing is missing in a sparse matrix
            return X.copy() if draws is None else [X.copy() for _ in range(draws)]
        if draws is None:
            filled = predict.impute(self._density, self._working, x, codes)
            return self._schema.fill(X, filled, self.handle_unknown)
        keys = jax.random.split(self._use_key("impute", random_state), draws + 1)
        thetas = self._imputation_parameters(keys[0], draws)
        tables_ = (predict.complete(self._plain, thetas[i], x, codes, keys[i + 1])[0] for i in range(draws))
        return [self._schema.fill(X, table, self.handle_unknown) for table in tables_]

    def _imputation_parameters(self, key, m: int) -> list[dict[str, np.ndarray]]:
        if self._posterior is None:
            return [self._working] * m
        draws = self._draw(key, m)
        return [{name: value[i] for name, value in draws.items()} for i in range(m)]

    # -- the model itself
    def model(self, X=None, y=None, num_rows: int | None = None):
        """The joint as a NumPyro model, with the priors resolved by `fit`.

        Ready for `MCMC(NUTS(clf.model)).run(key, X, y)`, `numpyro.render_model(clf.model, (X, y))`, `log_density` and the
        handlers. Rows whose label is missing are marginalised over the classes; `X=None` samples `num_rows` rows. `ridge`
        and `unbiased` are not part of it. Inside `jit`, numeric labels stay labels; classes that are text are given as their
        positions in `classes_` (−1: missing). Precision is that of the caller's JAX configuration.
        """
        check_is_fitted(self)
        checks.has_prior(self)
        checks.dense_model(X)
        x = X if X is None or isinstance(X, jax.Array) else self._read(X)
        checks.model_shapes(x, y, num_rows, self.n_features_in_)
        # NumPy copies in the caller's precision: constants that one precision has traced must not meet another.
        kind = jax.dtypes.canonicalize_dtype(np.float64)
        joint = jax.tree_util.tree_map(lambda leaf: np.array(leaf, kind), self._prior_joint)
        return joint.model(x, self._model_codes(y), num_rows)

    def _model_codes(self, y):
        """Class codes of labels that may be traced."""
        numeric = self.classes_.dtype.kind in "iufb"
        if y is None or (isinstance(y, jax.Array) and not numeric):
            return y
        if not isinstance(y, jax.core.Tracer):
            return self._codes(np.asarray(y) if isinstance(y, jax.Array) else y, len(y))
        classes = jax.numpy.asarray(self.classes_)
        place = jax.numpy.clip(jax.numpy.searchsorted(classes, y), 0, len(self.classes_) - 1)
        return jax.numpy.where(classes[place] == y, place, -1)

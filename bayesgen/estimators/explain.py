"""explain: the evidence behind an answer, feature by feature."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
from scipy import sparse

from bayesgen import evidence
from bayesgen.estimators import checks
from bayesgen.estimators.base import float64
from bayesgen.estimators.fitted import FittedJoint

DRAWN_TERMS = 2**24  # draws x terms x classes held at once


class Explains(FittedJoint):
    """Classifiers that can take their log odds apart."""

    @float64
    def explain(self, X, reference=None, *, feature_names=None, level: float = 0.9) -> pd.DataFrame:
        """The log posterior odds of each row, taken apart exactly.

            log p(y=k | x)/p(y=r | x) = log π_k/π_r + Σ_j log f_j(x_j | k)/f_j(x_j | r)

        One row of the table for the class prior, "(prior)", then one for each feature with its log density ratio, its
        weight of evidence: positive speaks for the class, negative for the reference. They add up to the log odds.

        Columns that are dependent within the class (a full covariance) have one ratio together. A missing cell has
        ratio 0. In a sparse matrix the stored cells are listed, and of a Bernoulli or Poisson model all the others
        together as "(absent)". Under "posterior" the ratios are those of the predictive; for multinomial counts the part of
        the row's total is shared out in proportion to the counts.

        Parameters
        ----------
        X : array, data frame or sparse matrix (n, d)
        reference : label, optional
            The class that the others are compared with; by default classes_[0].
        feature_names : array-like (d,), optional
            Names of the columns, for arrays and sparse matrices: `vectorizer.get_feature_names_out()`.
        level : float, default 0.9
            Under "posterior", the level of the intervals.

        Returns
        -------
        DataFrame with the columns row (position in X), class, reference, feature, log_ratio, and under "posterior" low and
        high: the central interval of the ratio over the draws of the parameters.

        Examples
        --------
        >>> import pandas as pd
        >>> from bayesgen import BernoulliNB
        >>> X = pd.DataFrame({"cough": [1, 1, 0, 0], "fever": [1, 0, 0, 0]})
        >>> clf = BernoulliNB().fit(X, ["ill", "ill", "well", "well"])
        >>> clf.explain(X[:1], reference="well").round(2)
           row class reference  feature  log_ratio
        0    0   ill      well  (prior)       0.00
        1    0   ill      well    cough       1.10
        2    0   ill      well    fever       0.69
        """
        checks.number("level", level, 0.0, 1.0)
        x = self._rows_to_score(X)
        against = checks.reference_class(reference, self.classes_)
        names = checks.names_of_features(feature_names, self._schema, self.n_features_in_)
        step = self._rows_at_once(x)
        parts = [self._explained(x[i : i + step], i, against, names, level) for i in range(0, x.shape[0], step)]
        return pd.concat(parts, ignore_index=True)

    def _rows_at_once(self, x) -> int:
        per_row = 1 + (max(1, x.nnz // max(1, x.shape[0])) if sparse.issparse(x) else x.shape[1])
        draws = self._num_drawn() if self._posterior is not None else 1
        return max(1, min(4096, DRAWN_TERMS // (draws * per_row * len(self.classes_))))

    def _explained(self, x, first: int, against: int, names: list, level: float) -> pd.DataFrame:
        """The table of some rows, the first of which is row `first` of X."""
        terms = evidence.layout(self._density, self._working, x)
        others = [k for k in range(len(self.classes_)) if k != against]
        columns = {"log_ratio": _ratios(evidence.values(self._density, self._working, x), others, against)}
        if self._posterior is not None:
            pieces = (evidence.values_of_draws(self._plain, draws, x) for draws in self._pieces_of_draws())
            drawn = np.concatenate([_ratios(piece, others, against) for piece in pieces])
            columns["low"], columns["high"] = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
        # by row, then class, then feature; codes of the prior are the lowest, those of what is left the highest
        order = np.lexsort([terms.feature, terms.row])
        starts = np.searchsorted(terms.row[order], np.arange(x.shape[0] + 1))
        pick = np.concatenate([np.tile(order[a:b], len(others)) for a, b in itertools.pairwise(starts)])
        sizes = np.repeat(np.diff(starts), len(others))
        classes = np.repeat(np.tile(np.arange(len(others)), x.shape[0]), sizes)
        labels = np.asarray([_name(code, terms, names) for code in terms.feature], dtype=object)
        table = {
            "row": first + terms.row[pick],
            "class": self.classes_[np.asarray(others)[classes]],
            "reference": np.repeat(self.classes_[[against]], len(pick)),
            "feature": labels[pick],
        }
        return pd.DataFrame(table | {key: value[pick, classes] for key, value in columns.items()})


def _ratios(values: np.ndarray, others: list[int], against: int) -> np.ndarray:
    """log f(· | k) − log f(· | reference), (..., m, K − 1); 0 where both are impossible."""
    with np.errstate(invalid="ignore"):
        ratio = values[..., others] - values[..., [against]]
    return np.where(np.isnan(ratio), 0.0, ratio)


def _name(code: int, terms: evidence.Terms, names: list):
    if code == evidence.PRIOR:
        return "(prior)"
    if code not in terms.named:
        return names[code]
    name, columns = terms.named[code]
    if name is not None:
        return name
    if len(columns) == len(names) and len(names) > 1:
        return "(all columns)"
    listed = " + ".join(str(names[j]) for j in columns[:4])
    return listed if len(columns) <= 4 else f"{listed} + ... ({len(columns)} columns)"

"""Multiple imputation is proper: intervals cover, tables differ as much as they should, and what was known stays.

Intervals are made of m draws, from the (m + 1)/20th in order to the 19(m + 1)/20th. A cell that comes from the same law as
its draws lies between these two with probability 90%, exactly.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import holes, make_rows
from scipy import stats

from bayesgen import LDA, QDA, GaussianNB, MixedNB, NormalWishart
from bayesgen.inference import Gibbs

MANY, FEW = 199, 19  # draws, less one than a multiple of 20


def covered(truth, gaps, tables):
    """Whether each removed cell lies in its 90% interval."""
    ordered, step = np.sort(np.array(tables), axis=0), (len(tables) + 1) // 20
    inside = (ordered[step - 1] < truth) & (truth < ordered[-step])
    return inside[np.isnan(gaps)]


# -- intervals
@pytest.fixture(scope="module")
def big():
    """4,000 rows of two overlapping classes, a quarter of the cells missing, and LDA's posterior given the others."""
    rng = np.random.default_rng(0)
    y = np.arange(4000) % 2
    root = np.tril(rng.normal(size=(4, 4))) + 2 * np.eye(4)
    x = rng.normal(size=(4000, 4)) @ root.T + 2 * y[:, None] * np.linspace(0.5, 1.5, 4)
    gaps = np.where(rng.random(x.shape) < 0.25, np.nan, x)
    engine = Gibbs(warmup=50, progress=False)
    return x, gaps, y, LDA(method="posterior", num_draws=400, engine=engine, random_state=0).fit(gaps, y)


@pytest.mark.parametrize("known", [True, False], ids=["class known", "class mixed"])
def test_intervals_of_removed_cells_cover(big, known):
    x, gaps, y, clf = big
    inside = covered(x, gaps, clf.impute(gaps, y if known else None, draws=MANY))
    assert inside.size > 3900  # a standard error of 0.005: the band is four of them to each side
    assert 0.88 < inside.mean() < 0.92


def test_intervals_of_new_rows_of_unknown_class_cover(big):
    x, gaps, _, clf = big
    rng = np.random.default_rng(1)
    new, _ = clf.sample(4000, random_state=2)
    lost = np.where(rng.random(new.shape) < 0.25, np.nan, new)
    assert 0.88 < covered(new, lost, clf.impute(lost, draws=MANY)).mean() < 0.92


PRIOR = NormalWishart(np.zeros(3), 0.5, 6.0, 3 * np.eye(3))


def small_tables(rng, count, n=10):
    """Classes of ten rows with means and covariances from the prior: small tables, each with seven cells missing."""
    covs = np.linalg.inv(stats.wishart(6, np.eye(3) / 3).rvs(count, random_state=rng))
    means = np.array([rng.multivariate_normal(np.zeros(3), cov / 0.5) for cov in covs])
    x = np.concatenate([rng.multivariate_normal(mean, cov, size=n) for mean, cov in zip(means, covs, strict=True)])
    lost = np.zeros((n, 3), bool)
    lost[:3, 0] = lost[3:6, 1] = lost[2, 2] = True
    return x, np.where(np.tile(lost, (count, 1)), np.nan, x), np.repeat(np.arange(count), n)


def small_coverage(method, fits, count=20):
    """The share of cells covered in each of the small tables."""
    shares, engine = [], Gibbs(warmup=60, thin=5, progress=False) if method == "posterior" else "auto"
    for seed in range(fits):
        x, gaps, y = small_tables(np.random.default_rng(seed), count)
        clf = QDA(prior=PRIOR, method=method, num_draws=FEW + 1, engine=engine, random_state=seed).fit(gaps, y)
        inside = covered(x, gaps, clf.impute(gaps, y, draws=FEW))
        shares.append(inside.reshape(count, -1).mean(1))
    return np.concatenate(shares)


def test_intervals_cover_in_tables_of_ten_rows_and_without_doubt_about_the_parameters_do_not():
    proper, plugged = small_coverage("posterior", fits=30), small_coverage("map", fits=30)
    assert proper.std() / np.sqrt(len(proper)) < 0.0055
    assert 0.88 < proper.mean() < 0.92
    less = plugged - proper  # the same tables
    assert less.mean() + 4 * less.std() / np.sqrt(len(less)) < 0
    assert plugged.mean() + 4 * plugged.std() / np.sqrt(len(plugged)) < 0.9


# -- tables differ as they should
SEEN, LOST = 10, 30
FLAT = NormalWishart(np.zeros(1), 0.0, 0.0, np.zeros(1))


@pytest.fixture(scope="module")
def column():
    """One column: ten cells seen, thirty missing."""
    seen = np.random.default_rng(3).normal(50.0, 4.0, SEEN)
    return np.concatenate([seen, np.full(LOST, np.nan)])[:, None]


def column_of_tables(column, method, prior, draws=4000):
    clf = GaussianNB(prior=prior, method=method, random_state=0).fit(column, np.zeros(len(column)))
    return np.array(clf.impute(column, draws=draws, random_state=1))[:, :, 0]


def near(estimates, value):
    """A variance of many draws is near its value: within five standard errors, from the draws' own fourth moment."""
    squares = (estimates - estimates.mean()) ** 2
    return abs(squares.mean() - value) < 5 * squares.std() / np.sqrt(len(squares))


def test_variance_between_tables_is_the_closed_form(column):
    """x̄ = (Σ seen + Σ lost)/n with lost = μ + σε: Var = (L² Var μ + L E σ²)/n², under σ² | D, μ | σ², D in closed form."""
    prior = NormalWishart(np.array([45.0]), 0.5, 5.0, np.array([30.0]))
    seen = column[:SEEN, 0]
    strength, df = 0.5 + SEEN, 5.0 + SEEN
    scatter = 30.0 + np.sum((seen - seen.mean()) ** 2) + 0.5 * SEEN / strength * (seen.mean() - 45.0) ** 2
    variance = scatter / (df - 2)
    total = SEEN + LOST
    posterior = column_of_tables(column, "posterior", prior).mean(1)
    assert near(posterior, (LOST**2 / strength + LOST) * variance / total**2)
    centre = (0.5 * 45.0 + seen.sum()) / strength
    mean = (seen.sum() + LOST * centre) / total
    assert abs(posterior.mean() - mean) < 5 * posterior.std() / np.sqrt(len(posterior))
    # at the mode of the parameters (mean and precision together) there is only the noise of the cells
    mode = scatter / (df - 1)
    assert near(column_of_tables(column, "map", prior).mean(1), LOST * mode / total**2)


def test_rubins_total_variance_is_that_of_the_cells_seen(column):
    """With a flat prior W + B = {(s−1)S² + L V}/{n(n−1)} + L V/(n s), V = (s−1)S²/(s−3): the mean of s cells, not of n."""
    tables = column_of_tables(column, "posterior", FLAT)
    total, variance = SEEN + LOST, np.var(column[:SEEN], ddof=1)
    spread = (SEEN - 1) / (SEEN - 3) * variance
    means, within = tables.mean(1), tables.var(1, ddof=1) / total
    expected = ((SEEN - 1) * variance + LOST * spread) / (total * (total - 1))
    assert abs(within.mean() - expected) < 5 * within.std() / np.sqrt(len(within))
    assert near(means, LOST * spread / (total * SEEN))
    rubin = within.mean() + (1 + 1 / len(means)) * means.var(ddof=1)
    naive = np.var(np.nan_to_num(column, nan=column[:SEEN].mean()), ddof=1) / total
    assert 1.0 < rubin / (variance / SEEN) < 1.4  # a little more, for the doubt about σ²
    assert naive < 0.1 * variance / SEEN


@pytest.mark.parametrize("make", [LDA, QDA])
def test_each_table_has_parameters_of_its_own(make):
    """A hundred copies of one row: their mean varies from table to table as much as the parameters do."""
    x, y = make_rows(n=24, d=2, k=2)
    rows = np.tile([x[y == 1, 0].mean(), np.nan], (100, 1))
    spread, within = {}, {}
    for method in ("map", "posterior"):
        clf = make(method=method, random_state=0).fit(x, y)
        tables = np.array(clf.impute(rows, np.ones(100, int), draws=300))[:, :, 1]
        spread[method], within[method] = tables.mean(1).var(), tables.var(1).mean()
    assert spread["map"] < 1.5 * within["map"] / 100
    assert spread["posterior"] > 3 * within["posterior"] / 100


def test_tables_and_calls_repeat_by_seed():
    x, y = make_rows()
    gaps, clf = holes(x), GaussianNB(method="posterior", random_state=0).fit(x, y)
    first, second = clf.impute(gaps, draws=2)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(clf.impute(gaps, draws=2), [first, second])
    np.testing.assert_array_equal(*(clf.impute(gaps, draws=2, random_state=7) for _ in range(2)))
    assert not np.array_equal(clf.impute(gaps, draws=1, random_state=7)[0], clf.impute(gaps, draws=1, random_state=8)[0])


# -- what was known stays
@pytest.mark.parametrize("method", ["map", "posterior"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_observed_cells_keep_their_bits(method, dtype):
    x, y = make_rows(n=80)
    gaps = holes(x * 10.0 ** np.arange(-8, 10, 8)[:3]).astype(dtype)
    before = gaps.copy()
    clf = GaussianNB(method=method, random_state=0).fit(gaps, y)
    seen = ~np.isnan(gaps)
    for table in [clf.impute(gaps), clf.impute(gaps, y), *clf.impute(gaps, draws=2), *clf.impute(gaps, y, draws=2)]:
        assert table.dtype == dtype and np.isfinite(table).all()
        assert table[seen].tobytes() == gaps[seen].tobytes()
    assert gaps.tobytes() == before.tobytes()


# -- the class given, and mixed over
@pytest.mark.parametrize("method", ["map", "posterior"])
@pytest.mark.parametrize("make", [LDA, QDA, GaussianNB])
def test_the_mixed_mean_is_that_of_the_classes_by_their_probabilities(make, method):
    x, y = make_rows(n=60)
    gaps = holes(x)
    clf = make(method=method, random_state=0).fit(x, y)
    within = np.array([clf.impute(gaps, np.full(60, label)) for label in clf.classes_])
    mixed = np.einsum("nk,knj->nj", clf.predict_proba(gaps), within)
    np.testing.assert_allclose(clf.impute(gaps), mixed, rtol=1e-9, atol=1e-9)
    assert np.abs(within[0] - mixed).max() > 0.5


def test_classes_that_are_not_known_are_drawn_by_their_probabilities():
    """Two classes far apart in the second column; the first, which is seen, says p(y | x)."""
    clf = QDA.from_parameters(["a", "b"], [0.5, 0.5], [[0.0, -50.0], [1.0, 50.0]], [np.eye(2), np.eye(2)])
    rows = np.tile([0.2, np.nan], (4000, 1))
    share = clf.predict_proba(rows[:1])[0, 1]
    (table,) = clf.impute(rows, draws=1, random_state=0)
    assert 0.2 < share < 0.8
    assert stats.binomtest(int((table[:, 1] > 0).sum()), 4000, share).pvalue > 1e-4
    (table,) = clf.impute(rows, np.repeat(["a", "b"], 2000), draws=1)
    assert (table[:2000, 1] < 0).all() and (table[2000:, 1] > 0).all()


def test_some_classes_may_be_known():
    x, y = make_rows(n=60)
    gaps = holes(x)
    clf = QDA(random_state=0).fit(x, y)
    some = np.where(np.arange(60) % 2, y.astype(object), None)
    filled = clf.impute(gaps, some)
    np.testing.assert_array_equal(filled[1::2], clf.impute(gaps, y)[1::2])
    np.testing.assert_array_equal(filled[::2], clf.impute(gaps)[::2])


# -- tables of mixed columns
def mixed_frame(n=90, seed=0):
    """A column of each kind, all with missing cells but those whose dtype has none."""
    rng = np.random.default_rng(seed)
    lost = rng.random((n, 6)) < 0.2
    colour = rng.choice(["red", "green", "blue"], n)
    frame = pd.DataFrame(
        {
            "mass": np.where(lost[:, 0], np.nan, rng.normal(3.0, 1.0, n)),
            "eggs": pd.array(np.where(lost[:, 1], None, rng.poisson(15, n)), dtype="Int64"),
            "year": rng.integers(2001, 2004, n),
            "tame": pd.array(np.where(lost[:, 2], None, rng.random(n) < 0.4), dtype="boolean"),
            "wild": rng.random(n) < 0.5,
            "colour": pd.Categorical(np.where(lost[:, 3], None, colour), categories=["blue", "green", "red", "grey"]),
            "size": pd.Categorical.from_codes(np.where(lost[:, 4], -1, rng.integers(0, 3, n)), list("SML"), ordered=True),
            "name": pd.array(np.where(lost[:, 5], None, colour), dtype="string"),
        },
        index=np.arange(n) * 3,
    )
    return frame, np.where(rng.random(n) < 0.4, "cat", "dog")


@pytest.mark.parametrize("method", ["map", "posterior"])
def test_frames_come_back_in_their_dtypes(method):
    frame, y = mixed_frame()
    clf = MixedNB(method=method, random_state=0).fit(frame, y)
    for table in [clf.impute(frame), *clf.impute(frame, y, draws=3)]:
        pd.testing.assert_series_equal(table.dtypes, frame.dtypes)
        pd.testing.assert_index_equal(table.index, frame.index)
        assert not table.isna().any(axis=None)
        for name in frame:
            seen = frame[name].notna()
            pd.testing.assert_series_equal(table.loc[seen, name], frame.loc[seen, name])
    assert table["size"].cat.ordered and set(table["colour"].cat.categories) == {"blue", "green", "red", "grey"}


# -- Rubin's rules
def example():
    """The functions of examples/multiple_imputation.py."""
    path = Path(__file__).parent.parent / "examples" / "multiple_imputation.py"
    spec = importlib.util.spec_from_file_location("multiple_imputation", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pooled_regressions_cover_where_filled_means_do_not():
    rules = example()
    count = 100
    found = np.array([rules.intervals(1000 + seed) for seed in range(count)])
    hits = dict(zip(rules.WAYS, rules.covers(found).sum(0).tolist(), strict=True))
    pooled, whole = hits["20 tables, posterior"], hits["no cell missing"]
    assert stats.binomtest(pooled, count, 0.95).pvalue > 0.01
    assert stats.binomtest(whole, count, 0.95).pvalue > 0.01
    for way in ("column means", "conditional means", "complete rows only"):
        assert stats.binomtest(hits[way], count, 0.95, alternative="less").pvalue < 1e-3, way
    centres, lengths = found.mean(2), found[..., 1] - found[..., 0]
    place = rules.WAYS.index("20 tables, posterior")
    assert abs(centres[:, place].mean() - rules.SLOPE) < 4 * centres[:, place].std() / np.sqrt(count)
    assert lengths[:, 0].mean() < lengths[:, place].mean() < lengths[:, rules.WAYS.index("complete rows only")].mean()


def test_pooling_follows_rubins_rules():
    """By hand: three estimates with mean 2 and variance 1, W = 0.5, T = 0.5 + 4/3."""
    estimate, total, free = example().pool([1.0, 2.0, 3.0], [0.4, 0.5, 0.6], 96)
    assert (estimate, total) == (2.0, pytest.approx(0.5 + 4 / 3))
    share = (4 / 3) / total
    assert 1 / free == pytest.approx(share**2 / 2 + 1 / (97 / 99 * 96 * (1 - share)))

"""Missing cells in training: EM against references, gradients, plain formulas and brute force."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import compiled, holes, make_rows
from numpyro import handlers
from numpyro.distributions import biject_to
from scipy import stats as laws
from sklearn.exceptions import ConvergenceWarning

from bayesgen import LDA, QDA, RDA, Categorical, Gaussian, GaussianNB, GenerativeClassifier, linalg
from bayesgen.families import Labels, NormalWishart
from bayesgen.inference import EM, Gibbs, em, incomplete
from bayesgen.joint import Block, ClassPrior, Joint

REFERENCES = json.loads((Path(__file__).parent / "data" / "em.json").read_text())
X, Y = make_rows(3, 90, 3, 3)
GAPS = holes(X, 0.25)


# -- references
@pytest.mark.parametrize("kind", [QDA, LDA])
@pytest.mark.parametrize("name", REFERENCES)
def test_maximum_likelihood_of_the_references(name, kind):
    ref = REFERENCES[name]
    rows = np.array(ref["X"], float)
    clf = kind(method="mle").fit(rows, np.zeros(len(rows)))
    scale = np.sqrt(np.diag(ref["cov"]))
    np.testing.assert_allclose(clf.means_[0] / scale, ref["mean"] / scale, rtol=0, atol=1e-7)
    np.testing.assert_allclose(clf.covariances_[0] / np.outer(scale, scale), ref["cov"] / np.outer(scale, scale), atol=1e-7)
    np.testing.assert_allclose(clf.score_samples(rows).sum(), ref["loglik"], rtol=0, atol=1e-8)
    np.testing.assert_allclose(clf.score_samples(rows), ref["row_loglik"], rtol=0, atol=1e-6)
    assert clf.converged_ and clf.n_iter_ > 3 and clf.engine_ == "em"


# -- the objective: its path and its gradient, from the NumPyro model
def objective(clf, rows, y, *, prior):
    """log p(rows, y | θ), with log p(θ) for map, over unconstrained coordinates without the Jacobian; and the fit's own."""
    model = handlers.seed(clf.model, 0)
    trace = handlers.trace(model).get_trace(rows, y)
    sites = {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
    transforms = {n: biject_to(s["fn"].support) for n, s in sites.items()}
    params = {"class_probs": clf.params_["class_probs"]}
    for block in clf._prior_joint.blocks:
        prefix = clf._prior_joint.prefix(block)
        mine = {k: jnp.asarray(v) for k, v in clf._prior_joint.params_of(block, clf._working).items()}
        params |= {prefix + k: v for k, v in block.family.sites(mine).items()}
    start = {n: transforms[n].inv(jnp.asarray(params[n])) for n in sites}

    def value(u):
        theta = {n: transforms[n](v) for n, v in u.items()}
        found = handlers.trace(handlers.substitute(model, theta)).get_trace(rows, y)
        kept = [s for n, s in found.items() if s["type"] == "sample" and (prior or s["is_observed"])]
        return sum(jnp.sum(s["fn"].log_prob(s["value"])) for s in kept)

    return value, start


CLASSIFIERS = {
    "LDA": LDA,
    "QDA": QDA,
    "spherical": lambda **kw: QDA(covariance="spherical", **kw),
    "stated prior": lambda **kw: QDA(prior=NormalWishart(0.5, 2.0, 7.0, 3.0), **kw),
    "smoothed classes": lambda **kw: LDA(class_smoothing=2.0, **kw),
}


@pytest.mark.parametrize("method", ["mle", "map"])
@pytest.mark.parametrize("labels", ["known", "missing"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_gradient_vanishes_and_the_path_rises(name, labels, method, x64):
    y = Y.astype(float)
    if labels == "missing":
        y[np.random.default_rng(0).random(len(y)) < 0.5] = np.nan
    clf = CLASSIFIERS[name](method=method).fit(GAPS, y)
    if labels == "known" and name == "spherical":
        assert clf.engine_ == "exact"
        return
    value, start = objective(clf, GAPS, y, prior=method == "map")
    slope = jax.jit(jax.grad(value))(start)
    assert max(float(jnp.max(jnp.abs(leaf))) for leaf in slope.values()) < 2e-5  # Σ log p is about -400
    assert len(clf._paths) == (3 if labels == "known" and not name.startswith(("LDA", "smoothed")) else 1)  # class by class
    for path in clf._paths:
        assert len(path) <= clf.n_iter_ + 1 and (np.diff(path) >= -1e-12 * abs(path[-1])).all()
    if method == "mle":
        total = sum(path[-1] for path in clf._paths)
        if len(clf._paths) > 1:
            total += np.sum(np.bincount(Y) * np.log(clf.priors_))
        np.testing.assert_allclose(total, float(value(start)), rtol=1e-10)


# -- the E step against plain formulas
def by_rows(x, weight, mean, cov):
    """Expected weight, mean and scatter, row by row."""
    filled, spread, logs = np.array(x), np.zeros_like(cov), np.zeros(len(x))
    for i, row in enumerate(x):
        o, m = np.flatnonzero(~np.isnan(row)), np.flatnonzero(np.isnan(row))
        gain = cov[np.ix_(m, o)] @ np.linalg.inv(cov[np.ix_(o, o)])
        filled[i, m] = mean[m] + gain @ (row[o] - mean[o])
        spread[np.ix_(m, m)] += weight[i] * (cov[np.ix_(m, m)] - gain @ cov[np.ix_(o, m)])
        logs[i] = laws.multivariate_normal(mean[o], cov[np.ix_(o, o)]).logpdf(row[o]) if len(o) else 0.0
    centre = weight @ filled / weight.sum()
    delta = filled - centre
    return weight.sum(), centre, (delta * weight[:, None]).T @ delta + spread, logs


def one_class(seed=0, n=30, d=5):
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(d, d))
    return (
        holes(rng.normal(size=(n, d)) @ mix + 3, 0.4),
        rng.uniform(0, 2, n),
        rng.normal(size=d),
        mix.T @ mix + 0.1 * np.eye(d),
    )


def test_expected_moments_of_scattered_gaps(x64):
    x, weight, mean, cov = one_class()
    cells = linalg.Placed(linalg.places(np.isnan(x), 5))
    for got, want in zip(linalg.expected_moments(x, weight, mean, cov, cells), by_rows(x, weight, mean, cov), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)


def test_expected_moments_of_a_shared_pattern(x64):
    x, weight, mean, cov = one_class()
    x[:] = np.where([False, True, False, True, True], np.nan, np.nan_to_num(x))
    cells = linalg.Shared(np.array([True, False, True, False, False]))
    for got, want in zip(linalg.expected_moments(x, weight, mean, cov, cells), by_rows(x, weight, mean, cov), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("tied", [False, True])
def test_expected_statistics_of_soft_weights(tied, x64):
    x, _, _, cov = one_class()
    r = np.random.default_rng(1).dirichlet(np.ones(2), len(x))
    means = np.random.default_rng(2).normal(size=(2, 5))
    params = {"mean": jnp.asarray(means), "covariance": jnp.asarray(cov if tied else np.stack([cov, 2 * cov]))}
    family = Gaussian("full", tied).bare()
    stats, logs = compiled(family, "e_step", params, x, r)
    for k in range(2):
        want = by_rows(x, r[:, k], means[k], cov * (1 if tied else k + 1))
        for got, value in zip(stats, want, strict=False):
            np.testing.assert_allclose(got[k], value, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(logs[:, k], want[3], rtol=1e-9, atol=1e-9)


def test_inverses_of_many_small_matrices(x64):
    rng = np.random.default_rng(0)
    for w in (1, 2, 5, 8):
        a = rng.normal(size=(40, w, w + 1)) * np.geomspace(1, 1e4, w)[:, None]
        blocks = a @ a.transpose(0, 2, 1)
        got, logdet = jax.jit(linalg.invert_blocks)(np.moveaxis(blocks, 0, -1).copy())
        want = np.linalg.inv(blocks)
        scale = np.sqrt(np.einsum("nii->ni", want))
        scale = scale[:, :, None] * scale[:, None, :]
        np.testing.assert_allclose(np.moveaxis(got, -1, 0) / scale, want / scale, atol=1e-8)
        np.testing.assert_allclose(logdet, np.linalg.slogdet(blocks)[1], rtol=1e-9, atol=1e-9)


def test_other_batches_give_the_same_answer(monkeypatch, x64):
    rng = np.random.default_rng(0)
    x, y = make_rows(1, 400, 6, 2)
    x = holes(x, 0.2)
    some = rng.random(len(x)) < 0.4
    x[some] = np.where([True, True, False, False, True, False], np.nan, make_rows(1, 400, 6, 2)[0])[some]
    plain = QDA(method="mle").fit(x, y)
    monkeypatch.setattr(linalg, "SMALL_TABLE", 0)
    monkeypatch.setattr(linalg, "ROWS_PER_PATTERN", 20)
    monkeypatch.setattr(incomplete, "LEAST_ROWS", 16)
    monkeypatch.setattr(incomplete, "MOST_ROWS", 32)
    sorted_ = QDA(method="mle").fit(x, y)
    np.testing.assert_allclose(sorted_.covariances_, plain.covariances_, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(sorted_.means_, plain.means_, rtol=1e-7)
    joint = Joint(ClassPrior(), (Block("gaussian", Gaussian().resolve(x, Labels(y, 2))),), 2, 6)
    batches = incomplete.Incomplete.of(joint, x, Labels(y, 2)).gaps
    kinds = {type(batch.cells) for batch in batches}
    assert kinds == {linalg.Shared, linalg.Placed} and len(batches) > 10
    there = np.concatenate([np.asarray(batch.x)[np.asarray(batch.weight) > 0] for batch in batches])
    partly = x[np.isnan(x).any(1) & ~np.isnan(x).all(1)]
    assert len(there) == len(partly)
    np.testing.assert_array_equal(*(rows[np.lexsort(np.nan_to_num(rows).T)] for rows in (there, partly)))


# -- complete tables, weights, units
@pytest.mark.parametrize("method", ["mle", "map"])
def test_em_on_a_complete_table_is_the_closed_form(method, x64):
    labels = Labels(Y, 3)
    for tied in (False, True):
        family = Gaussian("full", tied).resolve(X, labels)
        joint = Joint(ClassPrior(), (Block("gaussian", family),), 3, 3)
        data = incomplete.Incomplete.of(joint, X, labels)
        assert not data.gaps and not data.unlabelled
        found = em.run(data, incomplete.begin(joint, X, labels), method, EM())
        want = getattr(family, method)(family.stats(X, labels))
        for name, value in want.items():
            np.testing.assert_array_equal(found.params[name], value)


def test_one_column_with_gaps_is_a_regression_on_the_others():
    """A monotone pattern has a closed form: moments of the others from all the rows, a regression from those without gap."""
    rows = X.copy()
    rows[::3, 2] = np.nan
    clf = QDA(method="mle").fit(rows, Y)
    for k in range(3):
        mine = rows[k == Y]
        whole = mine[~np.isnan(mine[:, 2])]
        mean, cov = mine[:, :2].mean(0), np.cov(mine[:, :2].T, bias=True)
        design = np.column_stack([np.ones(len(whole)), whole[:, :2]])
        beta = np.linalg.lstsq(design, whole[:, 2], rcond=None)[0]
        noise = np.mean((whole[:, 2] - design @ beta) ** 2)
        np.testing.assert_allclose(clf.means_[k], [*mean, beta @ [1, *mean]], rtol=1e-7, atol=1e-8)
        cross = cov @ beta[1:]
        want = np.block([[cov, cross[:, None]], [cross[None, :], np.array([[noise + beta[1:] @ cross]])]])
        np.testing.assert_allclose(clf.covariances_[k], want, rtol=1e-7, atol=1e-8)


def test_no_gap_changes_nothing():
    for kind in (LDA, QDA):
        np.testing.assert_array_equal(kind().fit(X, Y).covariances_, kind(engine=EM()).fit(X, Y).covariances_)


@pytest.mark.parametrize("method", ["mle", "map"])
@pytest.mark.parametrize("kind", [LDA, QDA, RDA])
def test_whole_weights_are_repeated_rows(kind, method):
    if kind is RDA:
        method = "map"
    weight = np.random.default_rng(1).integers(0, 4, len(X))
    make = (lambda: RDA(alpha=0.6, gamma=0.4)) if kind is RDA else (lambda: kind(method=method))
    a = make().fit(GAPS, Y, sample_weight=weight)
    b = make().fit(np.repeat(GAPS, weight, 0), np.repeat(Y, weight))
    np.testing.assert_allclose(a.means_, b.means_, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(a.covariances_, b.covariances_, rtol=1e-7, atol=1e-7)


def test_units_and_origin_do_not_matter():
    a = QDA().fit(GAPS, Y)
    scale, shift = np.array([1e-6, 1.0, 1e7]), np.array([0.0, 1e6, 1e12])
    b = QDA().fit(GAPS * scale + shift, Y)
    np.testing.assert_allclose(b.covariances_ / np.outer(scale, scale), a.covariances_, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(b.predict_proba(GAPS * scale + shift), a.predict_proba(GAPS), atol=1e-4)


def test_the_order_of_rows_and_columns_does_not_matter():
    rows, columns = np.random.default_rng(0).permutation(len(X)), [2, 0, 1]
    a, b = LDA().fit(GAPS, Y), LDA().fit(GAPS[rows][:, columns], Y[rows])
    np.testing.assert_allclose(b.covariances_, a.covariances_[:, columns][:, :, columns], rtol=1e-7)


# -- nothing to go by
def test_rows_without_any_cell_count_for_the_class_alone():
    more = np.vstack([GAPS, np.full((5, 3), np.nan)])
    a, b = QDA().fit(GAPS, Y), QDA().fit(more, np.append(Y, [2] * 5))
    np.testing.assert_allclose(a.covariances_, b.covariances_, rtol=1e-6)
    np.testing.assert_allclose(b.priors_, np.bincount(np.append(Y, [2] * 5)) / 95)


@pytest.mark.parametrize("kind", [LDA, QDA, GaussianNB])
def test_a_column_without_cells_in_one_class_is_left_to_the_prior(kind):
    gap = X.copy()
    gap[Y == 1, 2] = np.nan
    clf = kind().fit(gap, Y)
    if kind is GaussianNB:  # with correlations a regression on the other columns adds to it
        np.testing.assert_allclose(clf.means_[1, 2], np.nanmean(gap[:, 2]), rtol=1e-9)
    else:
        assert clf.converged_ and np.isfinite(clf.means_).all()
    gap[:, 2] = np.nan
    clf = kind().fit(gap, Y)
    np.testing.assert_allclose(clf.means_[:, 2], 0.0, atol=1e-6)
    np.testing.assert_allclose(clf.predict_proba(gap), kind().fit(gap[:, :2], Y).predict_proba(gap[:, :2]), atol=0.02)


@pytest.mark.parametrize("kind", [LDA, QDA])
def test_columns_without_cells_have_the_law_of_the_prior(kind):
    """What the data say nothing of is drawn from the prior given the rest, and the rest is as without the column."""
    gap, num = X.copy(), 2000
    gap[:, 2] = np.nan
    prior = NormalWishart(0.5, 0.3, 6.0, [1.0, 2.0, 3.0])
    clf = kind(prior=prior, method="posterior", num_draws=num, random_state=0, engine=Gibbs(progress=False)).fit(gap, Y)
    assert clf.diagnostics_["r_hat"] < 1.02 and clf.diagnostics_["ess"] > 500
    less = kind(prior=NormalWishart(0.5, 0.3, 5.0, [1.0, 2.0]), method="posterior", random_state=0).fit(gap[:, :2], Y)
    cov, mean = clf.draws_["covariance"], clf.draws_["mean"]
    error = cov[..., :2, :2].std(0) / np.sqrt(500)
    assert (np.abs(cov[..., :2, :2].mean(0) - less.params_["covariance"]) < 4 * error).all()
    one, centre = (cov[:, 0], mean[:, 0]) if kind is QDA else (cov, mean[:, 0])
    slope = np.linalg.solve(one[:, :2, :2], one[:, :2, 2:])[..., 0]
    left = one[:, 2, 2] - np.einsum("si,si->s", slope, one[:, :2, 2])
    assert laws.kstest(left, laws.invgamma(3.0, scale=1.5).cdf).pvalue > 1e-3
    z = (centre[:, 2] - 0.5 - np.einsum("si,si->s", slope, centre[:, :2] - 0.5)) * np.sqrt(0.3 / left)
    assert laws.kstest(z, "norm").pvalue > 1e-3
    scaled = slope * np.sqrt(np.array([1.0, 2.0]) / left[:, None])  # N(0, Σ_uu.o Ψ_oo⁻¹), Ψ diagonal
    assert min(laws.kstest(column, "norm").pvalue for column in scaled.T) > 1e-3


def test_a_column_that_one_class_lacks_is_sampled_well():
    gap = X.copy()
    gap[Y == 1, 2] = np.nan
    for kind in (LDA, QDA):
        clf = kind(method="posterior", num_draws=800, random_state=0, engine=Gibbs(progress=False)).fit(gap, Y)
        assert clf.diagnostics_["r_hat"] < 1.05 and clf.diagnostics_["ess"] > 80


@pytest.mark.parametrize("kind", [LDA, QDA, GaussianNB])
def test_mle_names_the_class_and_the_column(kind):
    gap = X.copy()
    gap[Y == 1, 2] = np.nan
    with pytest.raises(ValueError, match="Class 1 has no observed cell in column 2.*method='map'"):
        kind(method="mle").fit(gap, Y)


def test_columns_that_are_never_seen_together():
    gap = X.copy()
    gap[::2, 0] = np.nan
    gap[1::2, 1] = np.nan
    with pytest.raises(ValueError, match="No row of class 0 has both column 0 and column 1.*method='map'"):
        QDA(method="mle").fit(gap, Y)
    with pytest.raises(ValueError, match="No row has both column 0 and column 1"):
        LDA(method="mle").fit(gap, Y)
    assert QDA().fit(gap, Y).converged_


def test_too_few_rows_for_a_covariance():
    x, y = make_rows(0, 12, 6, 2)
    with pytest.raises(ValueError, match=r"The covariance of class \d becomes singular.*RDA"):
        QDA(method="mle").fit(holes(x, 0.15), y)
    constant = GAPS.copy()
    constant[~np.isnan(constant[:, 1]), 1] = 7.0
    with pytest.raises(ValueError, match="becomes singular.*Constant: column 1"):
        QDA(method="mle").fit(constant, Y)
    assert QDA().fit(constant, Y).converged_ and QDA().fit(holes(x, 0.3), y).converged_


def test_a_search_that_is_cut_short_says_so():
    with pytest.warns(ConvergenceWarning, match=r"EM of the gaussian block did not converge in 3 steps.*EM\(max_iter=30\)"):
        clf = QDA(engine=EM(max_iter=3)).fit(GAPS, Y)
    assert not clf.converged_ and clf.n_iter_ == 3


def test_settings_of_the_search():
    for engine, words in ((EM(tol=-1.0), "tol"), (EM(max_iter=0), "max_iter")):
        with pytest.raises(ValueError, match=words):
            QDA(engine=engine).fit(GAPS, Y)
    with pytest.raises(ValueError, match="engine='em' finds mle and map"):
        QDA(method="posterior", engine="em").fit(GAPS, Y)
    with pytest.raises(ValueError, match="engine='exact'"):
        QDA(engine="exact").fit(GAPS, Y)
    np.testing.assert_array_equal(QDA(engine="em").fit(GAPS, Y).means_, QDA().fit(GAPS, Y).means_)


# -- variants
def test_the_correction_of_the_divisor_comes_last():
    a, b = (QDA(method="mle", unbiased=unbiased).fit(GAPS, Y) for unbiased in (False, True))
    n = np.array([(~np.isnan(GAPS[k == Y]).all(1)).sum() for k in range(3)])[:, None, None]
    np.testing.assert_allclose(b.covariances_, a.covariances_ * n / (n - 1), rtol=1e-7)


def test_a_ridge_is_part_of_every_step():
    clf = QDA(method="mle", ridge=0.5).fit(GAPS, Y)
    family = Gaussian("full", ridge=0.5)
    for k in range(3):
        rows = GAPS[k == Y]
        rows = rows[~np.isnan(rows).all(1)]
        n, mean, scatter, _ = by_rows(rows, np.ones(len(rows)), clf.means_[k], clf.covariances_[k])
        np.testing.assert_allclose(clf.means_[k], mean, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(clf.covariances_[k], scatter / n + 0.5 * np.eye(3), rtol=1e-6, atol=1e-7)
    assert family.ridge == 0.5 and clf.converged_


def test_regularised_analysis_reduces_to_its_corners():
    a, b = RDA(alpha=1, gamma=0.3).fit(GAPS, Y), QDA(method="mle").fit(GAPS, Y)
    np.testing.assert_allclose(a.covariances_, b.covariances_, rtol=1e-6, atol=1e-7)
    a, b = RDA(alpha=0, gamma=1).fit(GAPS, Y), LDA(method="mle").fit(GAPS, Y)
    np.testing.assert_allclose(a.covariances_, b.covariances_, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(a.means_, b.means_, rtol=1e-6, atol=1e-7)


def test_weights_of_regularised_analysis_are_chosen_with_gaps_too():
    full, few = RDA(random_state=0).fit(X, Y), RDA(random_state=0).fit(holes(X, 0.05), Y)
    assert abs(full.alpha_ - few.alpha_) < 0.15 and abs(full.gamma_ - few.gamma_) < 0.3
    tiny, y = make_rows(5, 14, 8, 2)
    clf = RDA(random_state=0).fit(holes(tiny, 0.2), y)  # fewer rows than columns: no mle of the pooled covariance
    assert np.isfinite(clf.covariances_).all() and 0 <= clf.alpha_ <= 1
    again = RDA(random_state=0).fit(holes(tiny, 0.2), y)
    assert (again.alpha_, again.gamma_) == (clf.alpha_, clf.gamma_)


@pytest.mark.parametrize("method", ["mle", "map"])
def test_blocks_are_fitted_each_by_its_engine(method):
    rng = np.random.default_rng(0)
    colour = rng.integers(0, 3, len(X)).astype(float)
    colour[rng.random(len(X)) < 0.2] = np.nan
    table = np.column_stack([GAPS, colour])
    clf = GenerativeClassifier([([0, 1, 2], Gaussian()), ([3], Categorical())], method).fit(table, Y)
    assert clf.engine_ == {"gaussian": "em", "categorical": "exact"} and clf.converged_
    alone = QDA(method=method).fit(GAPS, Y)
    np.testing.assert_array_equal(clf.params_["gaussian.mean"], alone.means_)
    np.testing.assert_array_equal(clf.params_["gaussian.covariance"], alone.covariances_)
    seen = ~np.isnan(colour)
    count = np.array([[np.sum((k == Y) & (colour == c)) for c in range(3)] for k in range(3)]) + (method == "map")
    np.testing.assert_allclose(clf.params_["categorical.prob"][:, 0], count / count.sum(1, keepdims=True))
    assert seen.sum() < len(X)


def test_available_cases_of_naive_bayes():
    clf = GaussianNB(method="mle").fit(GAPS, Y)
    for k in range(3):
        np.testing.assert_allclose(clf.means_[k], np.nanmean(GAPS[k == Y], 0), rtol=1e-12)
        np.testing.assert_allclose(clf.params_["variance"][k], np.nanvar(GAPS[k == Y], 0), rtol=1e-12)


def test_a_fit_with_gaps_has_all_the_uses():
    clf = QDA(random_state=0).fit(GAPS, Y)
    assert clf.sample(5)[0].shape == (5, 3) and not np.isnan(clf.impute(GAPS)).any()
    assert clf.outlier_pvalues(GAPS, draws=500).shape == (90,) and clf.explain(GAPS[:2]).shape[0] == 8
    for name in ("merge", "forget", "partial_fit", "loo_predict_proba", "log_evidence_"):
        assert not hasattr(clf, name)

"""Iris against R (MASS, klaR's data, sparsediscrim) and the worked examples of the lectures behind the project."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

from bayesgen import LDA, QDA, RDA, GaussianNB, NormalWishart

R = json.loads((Path(__file__).parent / "data" / "iris.json").read_text())
X, y = load_iris(return_X_y=True)
ROWS = X[R["rows"]]
ALT = [1 / 2, 1 / 3, 1 / 6]
VAGUE = NormalWishart(strength=0, df=0, scale=0)


@pytest.mark.parametrize("name", ["lda", "qda"])
@pytest.mark.parametrize("kind", ["mle", "moment"])
def test_plug_in_posteriors(name, kind):
    clf = {"lda": LDA, "qda": QDA}[name](method="mle", unbiased=kind == "moment")
    ref = R[name][kind]
    fitted = clf.fit(X, y)
    np.testing.assert_allclose(fitted.predict_proba(ROWS), ref["posterior"], rtol=0, atol=1e-8)
    np.testing.assert_allclose(fitted.log_joint(ROWS) - np.log(1 / 3), ref["log_density"], rtol=1e-10)
    np.testing.assert_allclose(fitted.with_priors(ALT).predict_proba(ROWS), ref["alt"], rtol=0, atol=1e-8)
    np.testing.assert_allclose(clf.set_params(priors=ALT).fit(X, y).predict_proba(ROWS), ref["alt"], rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["lda", "qda"])
@pytest.mark.parametrize("kind", ["mle", "moment"])
def test_leave_one_out_with_the_class_probabilities_held(name, kind):
    clf = {"lda": LDA, "qda": QDA}[name](method="mle", unbiased=kind == "moment", priors="uniform").fit(X, y)
    np.testing.assert_allclose(clf.loo_predict_proba()[R["rows"]], R[name][kind]["cv"], rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["lda", "qda"])
def test_exact_posterior_predictive_under_the_vague_prior(name):
    clf = {"lda": LDA, "qda": QDA}[name](method="posterior", prior=VAGUE, priors="uniform").fit(X, y)
    np.testing.assert_allclose(clf.predict_proba(ROWS), R[name]["predictive"], rtol=0, atol=1e-8)
    np.testing.assert_allclose(clf.log_joint(ROWS), R[name]["predictive_log_joint"], rtol=1e-10, atol=1e-8)
    assert not hasattr(clf, "log_evidence_")


@pytest.mark.parametrize("kind", ["mle", "moment"])
def test_lda_coordinates_up_to_sign(kind):
    scores = LDA(method="mle", unbiased=kind == "moment").fit(X, y).transform(ROWS)
    np.testing.assert_allclose(np.abs(scores), np.abs(R["lda"][kind]["scores"]), rtol=1e-8, atol=1e-10)


def test_diagonal_discriminant_analysis():
    for clf in (QDA(covariance="diag", method="mle"), GaussianNB(method="mle")):
        np.testing.assert_allclose(clf.fit(X, y).predict_proba(ROWS), R["diag"]["qda_diag"], rtol=0, atol=1e-10)
    for clf in (LDA(covariance="diag", method="mle"), GaussianNB(method="mle", shared_variance=True)):
        np.testing.assert_allclose(clf.fit(X, y).predict_proba(ROWS), R["diag"]["lda_diag"], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("key", "alpha", "gamma"),
    [("lambda=0,gamma=0", 1, 0.3), ("lambda=1,gamma=0", 0, 1), ("lambda=1,gamma=0.5", 0, 0.5), ("lambda=1,gamma=1", 0, 0)],
)
def test_rda_where_friedmans_mix_is_the_same(key, alpha, gamma):
    clf = RDA(alpha=alpha, gamma=gamma).fit(X, y)
    np.testing.assert_allclose(clf.log_joint(ROWS), R["rda"][key], rtol=1e-10)
    np.testing.assert_allclose(clf.predict_proba(ROWS), R["rda_posterior"][key], rtol=0, atol=1e-10)


# -- worked examples of the lectures (where a printed value was wrong, the corrected one)
SIGMA = np.array(
    [
        [1.4434009546022053, 0.3155273076854768, -0.41184977210581836],
        [0.3155273076854768, 1.4286966956565323, -0.6249996895839106],
        [-0.41184977210581836, -0.6249996895839106, 4.092621750537536],
    ]
)
SIGMA_0 = np.array(
    [
        [2.9914703916045893, 3.0270226297413423, 1.2527781444797172],
        [3.0270226297413423, 8.00593198370906, 2.215705290856668],
        [1.2527781444797172, 2.215705290856668, 1.9324791081044157],
    ]
)
MU_1, MU_0 = (
    [0.4116305363741328, 1.0425133694426776, -0.12853466294403426],
    [1.3664634705496859, -0.6651946734866135, 0.3515100700930197],
)
POINT = np.array([[0.9034701816518086, 0.09401229776087457, -0.7434992493538084]])
BALANCE = np.array([[500.0], [1980.0], [60.0], [2810.0], [1400.0], [300.0], [2000.0], [940.0], [1630.0], [2170.0]])
DEFAULT = np.array(["N", "Y", "N", "Y", "N", "N", "Y", "N", "Y", "Y"])


def odds(table):
    return table[:, 1] - table[:, 0]


def test_two_gaussian_generating_model():
    clf = QDA.from_parameters([0, 1], [0.4, 0.6], [[0, 0], [2, 2]], [0.5 * np.eye(2), [[1, -0.5], [-0.5, 1]]])
    points = [[0.0, 0], [1, 1], [2, 2], [0, 2], [1, 0]]
    expected = [-8.14384103622589, -0.1438410362258904, 7.85615896377411, 1.1894922971074435, -3.810507702892558]
    np.testing.assert_allclose(odds(clf.predict_log_proba(points)), expected, rtol=1e-10)
    np.testing.assert_allclose(odds(clf.discriminants(points)), expected, rtol=1e-10)


def test_lda_and_qda_log_odds_by_their_coefficients():
    lda = LDA.from_parameters([0, 1], [0.7, 0.3], [MU_0, MU_1], SIGMA)
    qda = QDA.from_parameters([0, 1], [0.7, 0.3], [MU_0, MU_1], [SIGMA_0, SIGMA])
    for clf, expected in ((lda, -0.995038517995896), (qda, -0.2824824115970568)):
        quadratic, linear, constant = clf.discriminant_coefficients()
        by_hand = np.einsum("ni,kij,nj->nk", POINT, quadratic, POINT) + POINT @ linear.T + constant
        for table in (clf.discriminants(POINT), by_hand, clf.predict_log_proba(POINT), clf.log_joint(POINT)):
            np.testing.assert_allclose(odds(table), expected, rtol=1e-10)
    assert not lda.discriminant_coefficients()[0].any()


def test_lda_of_one_predictor():
    clf = LDA(method="mle", unbiased=True).fit(BALANCE, DEFAULT)
    np.testing.assert_allclose(clf.discriminants([[1500.0]])[0], [2.500290035331126, 3.2565240459449054], rtol=1e-10)
    _, slope, intercept = clf.discriminant_coefficients()
    np.testing.assert_allclose(slope[:, 0], [0.0027063027253314163, 0.008956170581643656], rtol=1e-10)
    np.testing.assert_allclose(intercept, [-1.5591640526659987, -10.177731826520578], rtol=1e-10)
    np.testing.assert_allclose(clf.predict_proba([[1500.0]])[0, 1], 0.6805355388924117, rtol=1e-10)
    np.testing.assert_allclose(clf.predict_proba([[1379.0]])[0], [0.5, 0.5], atol=1e-12)


def test_gaussian_naive_bayes_of_one_predictor():
    clf = GaussianNB(method="mle", unbiased=True).fit(BALANCE, DEFAULT)
    assert clf.means_[1, 0] == 2118.0
    np.testing.assert_allclose(np.sqrt(clf.params_["variance"][1, 0]), 433.7856613582335, rtol=1e-12)
    np.testing.assert_allclose(np.exp(clf.log_joint([[2080.0]])[0, 1]) / 0.5, 0.0009161540473947143, rtol=1e-10)


def test_iris_naive_bayes_confusion():
    guess = GaussianNB(method="mle").fit(X, y).predict(X)
    assert [[int(np.sum((guess == i) & (y == j))) for j in range(3)] for i in range(3)] == [
        [50, 0, 0],
        [0, 47, 3],
        [0, 3, 47],
    ]


def test_iris_two_columns():
    clf = LDA(method="mle", unbiased=True).fit(X[:, :2], y)
    np.testing.assert_allclose(clf.means_, [[5.006, 3.428], [5.936, 2.77], [6.588, 2.974]], rtol=1e-12)
    expected = [[0.2650081632653061, 0.09272108843537413], [0.09272108843537413, 0.11538775510204084]]
    np.testing.assert_allclose(clf.covariance_, expected, rtol=1e-10)
    assert clf.score(X[:, :2], y) == QDA(method="mle").fit(X[:, :2], y).score(X[:, :2], y) == 0.8


def test_rda_at_zero_zero_is_a_sphere():
    clf = RDA(alpha=0, gamma=0).fit(X, y)
    pooled = LDA(method="mle").fit(X, y).covariance_
    np.testing.assert_allclose(
        clf.covariances_, np.tile(np.trace(pooled) / 4 * np.eye(4), (3, 1, 1)), rtol=1e-12, atol=1e-14
    )


def test_equal_variance_boundary_and_bivariate_density():
    clf = LDA.from_parameters([1, 2], [0.7, 0.3], [[1.0], [3.0]], [[1.5**2]])
    np.testing.assert_allclose(clf.predict_proba([[2.953210092935604]]), [[0.5, 0.5]], atol=1e-12)
    cov = [[1.44, 0.4 * 1.2 * 0.7], [0.4 * 1.2 * 0.7, 0.49]]
    one = LDA.from_parameters(["only"], [1.0], [[0.0, 0.0]], cov)
    np.testing.assert_allclose(np.exp(one.score_samples([[0.3, -0.5]])), 0.1350275717807815, rtol=1e-12)


def test_cost_sensitive_threshold():
    # C_FP = 1, C_FN = 5, π = 0.2: predict 1 where log f1/f0 > log(C_FP (1−π) / (C_FN π)) = −0.2231...
    clf = LDA.from_parameters([0, 1], [0.8, 0.2], [[0.0], [1.0]], [[1.0]])
    boundary = 0.5 + -0.2231435513142097
    costs = [[0, 1], [5, 0]]
    assert clf.predict([[boundary - 1e-9], [boundary + 1e-9]], costs=costs).tolist() == [0, 1]


def test_given_precision_that_is_not_positive_definite_is_refused():
    precision = [[0.0022, 0.0132, 0.0095], [0.0132, 0.0074, 0.0108], [0.0095, 0.0108, 0.018]]
    with pytest.raises(ValueError, match="not positive definite"):
        LDA.from_parameters(["fail", "pass"], [0.24, 0.76], [[51.4, 42.3, 35.6], [73.9, 68.2, 63.7]], precision=precision)

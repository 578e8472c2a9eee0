"""What readers broke in the discrete and mixed classifiers, each mended once."""

from functools import partial

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import initialize_model

from bayesgen import BernoulliNB, CategoricalNB, GenerativeClassifier, MixedNB, MultinomialNB, PoissonNB

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(2, (60, 5)).astype(float)
Y = RNG.integers(0, 2, 60)


def test_the_model_of_several_blocks_takes_a_frame():
    frame = pd.DataFrame({"a": COUNTS[:, 0] + 0.5, "b": COUNTS[:, 1] > 1, "c": np.where(COUNTS[:, 2] > 1, "x", "y")})
    clf = MixedNB().fit(frame, Y)
    start = initialize_model(jax.random.key(0), clf.model, model_args=(frame, Y))
    by_names = jax.jit(jax.value_and_grad(start.potential_fn))(start.param_info.z)
    again = initialize_model(jax.random.key(0), clf.model, model_args=(frame.iloc[::-1], Y[::-1]))
    other_order = jax.jit(jax.value_and_grad(again.potential_fn))(start.param_info.z)
    jax.tree_util.tree_map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), by_names, other_order)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree_util.tree_leaves(by_names))


def test_sparse_rows_beside_a_multinomial_block():
    blocks = [([0, 1], "multinomial"), ([2], "poisson"), ([3, 4], "poisson")]
    dense = GenerativeClassifier(blocks, random_state=0).fit(COUNTS, Y)
    wide = GenerativeClassifier(blocks, random_state=0).fit(scipy.sparse.csr_matrix(COUNTS), Y)
    np.testing.assert_array_equal(wide.outlier_pvalues(scipy.sparse.csr_matrix(COUNTS)), dense.outlier_pvalues(COUNTS))
    table = wide.explain(scipy.sparse.csr_matrix(COUNTS[:3]))
    assert not table.duplicated(["row", "class", "feature"]).any()


def test_totals_and_rates_of_any_size_end():
    huge = np.array([[3e14, 1e14], [2e14, 2e14], [5.0, 1.0], [2.0, 2.0]])
    y = ["big", "big", "small", "small"]
    counts = MultinomialNB(random_state=0).fit(huge, y)
    rows, _ = counts.sample(3)
    assert np.all(rows.sum(1) == np.rint(huge.sum(1).mean()))
    assert np.all(counts.outlier_pvalues(huge) > 0)
    rates = PoissonNB(random_state=0).fit(huge, y)
    filled = rates.impute(np.array([[np.nan, 1.5e14], [np.nan, 1.0]]))
    np.testing.assert_allclose(filled[:, 0], [(5e14 + 1) / 3, 2.0], rtol=1e-6)  # the modes of the two rates


def test_sparse_rows_with_given_cells_are_widened_a_few_at_a_time(monkeypatch):
    clf = BernoulliNB(random_state=0).fit(scipy.sparse.csr_matrix(COUNTS > 1).astype(float), Y)
    monkeypatch.setattr("bayesgen.estimators.uses.SPARSE_CELLS", 20)
    rows, labels = clf.sample(2000, given={0: 1})
    assert isinstance(rows, scipy.sparse.csr_matrix) and rows.shape == (2000, 5)
    assert np.all(rows[:, [0]].toarray() == 1)
    share = clf.predict_proba(np.array([[1, np.nan, np.nan, np.nan, np.nan]]))[0, 1]
    assert abs((labels == 1).mean() - share) < 5 * np.sqrt(share * (1 - share) / 2000)


def test_the_linear_view_is_not_there_where_a_probability_is_zero():
    x = np.array([[3.0, 0, 1], [1, 0, 0], [0, 2, 0], [0, 1, 1]])
    for clf in (MultinomialNB(method="mle"), BernoulliNB(method="mle", binarize=0.0), MultinomialNB(method="posterior")):
        assert not hasattr(clf.fit(x, [0, 0, 1, 1]), "coef_")
    assert hasattr(MultinomialNB().fit(x, [0, 0, 1, 1]), "coef_")


def test_the_warning_on_impossible_rows_points_to_the_caller():
    clf = CategoricalNB(method="mle").fit(np.array([["a"], ["a"], ["b"], ["b"]]), [0, 0, 0, 0])
    frame = CategoricalNB(method="mle").fit(
        pd.DataFrame({"c": pd.Categorical(["a", "b"], categories=["a", "b", "z"])}), [0, 1]
    )
    with pytest.warns(UserWarning, match="density 0 under every class") as caught:
        proba = frame.predict_proba(pd.DataFrame({"c": ["z"]}))
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(proba, [[0.5, 0.5]])
    assert clf.predict_proba(np.array([["a"]])).tolist() == [[1.0]]


def test_shapes_that_the_compiler_once_died_of():
    # jaxlib 0.9.2 divides by zero in its loop vectoriser on sums of masked look-ups beside masked squares
    frame = pd.DataFrame(
        {"f": [0.1, 0.5, 0.2, 0.9, 0.3, 0.4], "c": list("ababab"), "b": [True, False, True, True, False, False]}
    )
    gaps = frame.astype(object)
    gaps.iloc[0, 0] = None
    filled = MixedNB().fit(frame, [0, 1, 2] * 2).impute(gaps)
    assert not filled.isna().any().any()


def test_models_of_categories_serve_both_precisions_in_one_process():
    frame = pd.DataFrame({"c": list("aabbab"), "d": list("xyzxyz")})
    clf = CategoricalNB(random_state=0).fit(frame, [0, 1] * 3)
    before = clf.predict_proba(frame)
    chain = MCMC(NUTS(clf.model), num_warmup=5, num_samples=5, progress_bar=False)
    chain.run(jax.random.key(0), frame, np.array([0, 1] * 3))
    assert chain.get_samples()["prob"].dtype == np.float32
    np.testing.assert_array_equal(clf.predict_proba(frame), before)
    assert clf.sample(3)[0].shape == (3, 2)


class OtherFrame:
    """A table of another library: columns, but not pandas'."""

    columns = ("a", "c")

    def __array__(self, dtype=None, copy=None):
        return np.array([[1.0, 2.0], [3.0, 4.0]])


WORDS = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "c": list("xyxy")})
BOTH = [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: MixedNB().fit(OtherFrame(), [0, 1]), TypeError, r"OtherFrame.*X\.to_pandas\(\)"),
        (lambda: MixedNB().fit(WORDS, BOTH).predict(OtherFrame()), TypeError, r"X\.to_pandas\(\)"),
        (lambda: MixedNB().fit(WORDS[:0], []), ValueError, r"0 sample\(s\) \(shape=\(0, 2\)\)"),
        (lambda: MixedNB().fit(WORDS, "c"), ValueError, r"y='c' is a name.*X\['c'\]"),
        (lambda: MixedNB().fit(scipy.sparse.eye_array(4), BOTH), TypeError, r"passed to MixedNB.*X\.toarray\(\)"),
        (lambda: BernoulliNB(binarize=np.inf).fit(COUNTS, Y), ValueError, r"binarize=inf: must be a finite number\."),
        (
            lambda: MixedNB(method="mle").fit(WORDS.assign(a=1.0), BOTH),
            ValueError,
            r"Constant: column 'a'.*map.*drop what is constant",
        ),
        (
            lambda: MixedNB(handle_unknown="missing").fit(WORDS, BOTH).sample(2, given={"c": "z"}),
            ValueError,
            r"given has unknown categories in column 'c': 'z'\. Known: 'x', 'y'\.$",
        ),
    ],
)
def test_refusals_name_the_remedy(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_smoothing_may_be_an_array_without_axes():
    small = PoissonNB(alpha=np.array(0.5)).fit(COUNTS, Y)
    np.testing.assert_array_equal(small.params_["rate"], PoissonNB(alpha=0.5).fit(COUNTS, Y).params_["rate"])


def test_forgotten_categories_are_unknown_again_unless_the_dtype_names_them():
    table = pd.DataFrame({"c": list("xyxyz"), "d": pd.Categorical(list("uvuvw"))})
    y = [*BOTH, 0]
    left = MixedNB().fit(table, y).forget(table[4:], y[4:])
    assert {name: values.tolist() for name, values in left.categories_.items()} == {"c": ["x", "y"], "d": ["u", "v", "w"]}
    with pytest.raises(ValueError, match=r"unknown categories in column 'c': 'z'"):
        left.predict(table)
    assert left.merge(MixedNB().fit(table[4:], y[4:])).categories_["c"].tolist() == ["x", "y", "z"]

"""One small table for every classifier whose fit is a function of sums over rows, for the tests of streams and weights."""

import numpy as np
import pandas as pd
from conftest import make_rows
from scipy import sparse
from sklearn.base import clone

from bayesgen import (
    LDA,
    QDA,
    RDA,
    BernoulliNB,
    Categorical,
    CategoricalNB,
    ComplementNB,
    Gaussian,
    GaussianNB,
    GenerativeClassifier,
    MixedNB,
    Multinomial,
    MultinomialNB,
    PoissonNB,
)

METHODS = ["mle", "map", "posterior"]
N = 96
CLASSES = np.array(["ham", "jam", "spam"])


def _gaps(x, share=1 / 6):
    """A copy of an array or frame with some cells missing; one row without any cell."""
    rng = np.random.default_rng(5)
    missing = rng.random(x.shape) < share
    missing[7] = True
    return x.mask(missing) if hasattr(x, "mask") else np.where(missing, np.nan, x)


def _tables():
    rng = np.random.default_rng(3)
    numbers, code = make_rows(seed=2, n=N)
    counts = rng.poisson(np.array([[1.0, 4, 2, 3], [3, 1, 2, 1], [2, 2, 5, 1]])[code]).astype(float)
    frame = pd.DataFrame(
        {
            "mass": numbers[:, 0],
            "sky": np.array(["fog", "rain", "sun"])[(code + rng.integers(0, 3, N)) % 3],
            "eggs": counts[:, 0].astype(int),
            "car": np.array(["no", "yes"])[rng.integers(0, 2, N)],
            "ringed": rng.random(N) < 0.3 + 0.2 * code,
        }
    )
    whole = frame.assign(size=numbers[:, 1], w1=counts[:, 1], w2=counts[:, 2])
    whole[["sky", "eggs"]] = _gaps(whole[["sky", "eggs"]])
    tables = {
        "numbers": numbers,
        "cells": _gaps(numbers),
        "counts": counts,
        "sparse": sparse.csr_array(counts),
        "holed counts": _gaps(counts),
        "binary": _gaps((counts > 1).astype(float)),
        "categories": _gaps(frame[["sky", "car"]]),
        "mixed": _gaps(frame),
        "blocks": whole[["size", "sky", "w1", "mass", "eggs", "w2"]],
    }
    return tables, CLASSES[code]


TABLES, Y = _tables()
BLOCKS = [
    (["mass", "size"], Gaussian("full", tied=True)),
    ("sky", Categorical(0.5)),
    (["w1", "w2"], Multinomial(0.5)),
    ("eggs", "poisson"),
]
# name: (classifier, its table)
CASES = {
    "LDA": (LDA(), "numbers"),
    "LDA, diagonal": (LDA("diag"), "cells"),
    "LDA, spherical": (LDA("spherical"), "cells"),
    "QDA": (QDA(), "numbers"),
    "QDA, diagonal": (QDA("diag"), "cells"),
    "QDA, spherical": (QDA("spherical"), "cells"),
    "QDA, ridge and fixed priors": (QDA(ridge=0.1, priors=[0.2, 0.3, 0.5]), "numbers"),
    "RDA": (RDA(0.3, 0.6), "numbers"),
    "GaussianNB": (GaussianNB(class_smoothing=0.5), "cells"),
    "GaussianNB, shared": (GaussianNB(shared_variance=True), "cells"),
    "BernoulliNB": (BernoulliNB(0.7), "binary"),
    "CategoricalNB": (CategoricalNB(0.6), "categories"),
    "MultinomialNB": (MultinomialNB(0.8), "counts"),
    "MultinomialNB, sparse": (MultinomialNB(0.8), "sparse"),
    "PoissonNB": (PoissonNB(0.5, 1.5), "holed counts"),
    "PoissonNB, sparse": (PoissonNB(0.5, 1.5), "sparse"),
    "MixedNB": (MixedNB({"eggs": "poisson"}), "mixed"),
    "GenerativeClassifier": (GenerativeClassifier(BLOCKS), "blocks"),
    "ComplementNB": (ComplementNB(0.3), "counts"),
}
# what each method refuses, or does not know
WITHOUT = {"RDA": {"mle"}, "QDA, ridge and fixed priors": {"posterior"}, "ComplementNB": {"mle", "posterior"}}
ALL = [(name, method) for name in CASES for method in METHODS if method not in WITHOUT.get(name, ())]


def classifier(name, method):
    """An unfitted classifier; its draws are few, and the same at every fit."""
    clf = clone(CASES[name][0])
    return clf if name == "ComplementNB" else clf.set_params(method=method, num_draws=20, random_state=0)


def rows(X, index):
    return X.iloc[index] if hasattr(X, "iloc") else X[index]


def close(got, want, rtol, what=""):
    """Equal within rtol; numbers near 0 are measured by the largest of their array."""
    got, want = np.asarray(got), np.asarray(want)
    finite = want[np.isfinite(want)]
    atol = 1e-2 * rtol * np.max(np.abs(finite), initial=0.0)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=what)


def same_model(a, b, X, rtol, draws=True):
    """The same parameters, draws of them, evidence, densities and class probabilities."""
    np.testing.assert_array_equal(a.classes_, b.classes_)
    assert a.params_.keys() == b.params_.keys()
    for key in a.params_:
        close(a.params_[key], b.params_[key], rtol, key)
    close(a.predict_log_proba(X), b.predict_log_proba(X), rtol)
    assert hasattr(a, "log_evidence_") == hasattr(b, "log_evidence_")
    if hasattr(a, "log_evidence_"):
        close(a.log_evidence_, b.log_evidence_, rtol)
    if hasattr(a, "log_joint"):
        close(a.priors_, b.priors_, rtol)
        close(a.log_joint(X), b.log_joint(X), rtol)
    for key in a.draws_ if draws and hasattr(a, "draws_") else ():
        close(a.draws_[key], b.draws_[key], 100 * rtol, key)  # a draw is a solution of equations with these numbers

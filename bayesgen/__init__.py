"""Bayesian generative classifiers on JAX and NumPyro.

One fitted joint model p(x, y) classifies, says how sure it is, generates rows, fills in missing cells and flags
outliers.
"""

from bayesgen.estimators.comparing import compare
from bayesgen.estimators.complement import ComplementNB
from bayesgen.estimators.discrete import BernoulliNB, CategoricalNB, MultinomialNB, PoissonNB
from bayesgen.estimators.discriminant import LDA, QDA, RDA
from bayesgen.estimators.imputer import GenerativeImputer
from bayesgen.estimators.mixed import GenerativeClassifier, MixedNB
from bayesgen.estimators.naive_bayes import GaussianNB
from bayesgen.families import (
    Bernoulli,
    Categorical,
    Family,
    Gamma,
    Gaussian,
    LogNormal,
    Multinomial,
    NegativeBinomial,
    NormalWishart,
    Poisson,
    StudentT,
)
from bayesgen.laws import check_family

__version__ = "0.1.0"

__all__ = [
    "LDA",
    "QDA",
    "RDA",
    "Bernoulli",
    "BernoulliNB",
    "Categorical",
    "CategoricalNB",
    "ComplementNB",
    "Family",
    "Gamma",
    "Gaussian",
    "GaussianNB",
    "GenerativeClassifier",
    "GenerativeImputer",
    "LogNormal",
    "MixedNB",
    "Multinomial",
    "MultinomialNB",
    "NegativeBinomial",
    "NormalWishart",
    "Poisson",
    "PoissonNB",
    "StudentT",
    "check_family",
    "compare",
]

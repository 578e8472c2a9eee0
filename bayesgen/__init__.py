"""Bayesian generative classifiers on JAX and NumPyro.

One fitted joint model p(x, y) classifies, says how sure it is, generates rows, fills in missing cells and flags
outliers.
"""

from bayesgen.estimators.discriminant import LDA, QDA, RDA
from bayesgen.estimators.naive_bayes import GaussianNB
from bayesgen.families import Family, Gaussian, NormalWishart

__version__ = "0.1.0"

__all__ = ["LDA", "QDA", "RDA", "Family", "Gaussian", "GaussianNB", "NormalWishart"]

"""Class-conditional density families: one file per density."""

from bayesgen.families.base import Conjugate, Family, Labels, static
from bayesgen.families.bernoulli import Bernoulli
from bayesgen.families.categorical import Categorical
from bayesgen.families.counts import Counting, Counts
from bayesgen.families.gamma import Gamma, GammaPrior
from bayesgen.families.gaussian import Gaussian, NormalWishart, Shrinkage
from bayesgen.families.lognormal import LogNormal, LogNormalPrior
from bayesgen.families.multinomial import Multinomial
from bayesgen.families.negative_binomial import NegativeBinomial, NegativeBinomialPrior
from bayesgen.families.poisson import Poisson
from bayesgen.families.student_t import StudentT, StudentTPrior

__all__ = [
    "Bernoulli",
    "Categorical",
    "Conjugate",
    "Counting",
    "Counts",
    "Family",
    "Gamma",
    "GammaPrior",
    "Gaussian",
    "Labels",
    "LogNormal",
    "LogNormalPrior",
    "Multinomial",
    "NegativeBinomial",
    "NegativeBinomialPrior",
    "NormalWishart",
    "Poisson",
    "Shrinkage",
    "StudentT",
    "StudentTPrior",
    "static",
]

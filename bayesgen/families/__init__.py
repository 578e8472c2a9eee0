"""Class-conditional density families: one file per density."""

from bayesgen.families.base import Conjugate, Family, Labels, static
from bayesgen.families.bernoulli import Bernoulli
from bayesgen.families.categorical import Categorical
from bayesgen.families.counts import Counting, Counts
from bayesgen.families.gaussian import Gaussian, NormalWishart, Shrinkage
from bayesgen.families.multinomial import Multinomial
from bayesgen.families.poisson import Poisson

__all__ = [
    "Bernoulli",
    "Categorical",
    "Conjugate",
    "Counting",
    "Counts",
    "Family",
    "Gaussian",
    "Labels",
    "Multinomial",
    "NormalWishart",
    "Poisson",
    "Shrinkage",
    "static",
]

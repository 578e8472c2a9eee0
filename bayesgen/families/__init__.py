"""Class-conditional density families: one file per density."""

from bayesgen.families.base import Conjugate, Family, Labels, static
from bayesgen.families.gaussian import Gaussian, NormalWishart, Shrinkage

__all__ = ["Conjugate", "Family", "Gaussian", "Labels", "NormalWishart", "Shrinkage", "static"]

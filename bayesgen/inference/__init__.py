"""Engines: joint model and data in, parameters or draws out."""

from bayesgen.inference.settings import EM, NUTS, SVI, Gibbs, Laplace

__all__ = ["EM", "NUTS", "SVI", "Gibbs", "Laplace"]

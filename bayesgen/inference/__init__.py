"""Engines: joint model and data in, parameters or draws out."""

from bayesgen.inference.settings import NUTS, SVI, Gibbs, Laplace

__all__ = ["NUTS", "SVI", "Gibbs", "Laplace"]

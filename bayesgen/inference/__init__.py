"""Engines: joint model and data in, draws of the parameters out."""

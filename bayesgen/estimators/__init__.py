"""scikit-learn estimators over the joint models."""

"""Parts of docstrings that many classifiers share, written once."""

COMMON = """    method : {"map", "mle", "posterior"}
        Maximum likelihood (no prior), the mode of the posterior, or the whole posterior.
    engine : {"auto", "exact", "gibbs", "nuts", "svi", "laplace"} or settings such as bayesgen.inference.NUTS(chains=2)
        How a posterior is found. "auto" takes the closed form where there is one ("exact"), Gibbs sampling where there would
        be one without missing cells or pooled means, and NUTS otherwise; `engine_` says which, `diagnostics_` how it went.
    priors : array (K,), "uniform" or None
        Fixed class probabilities in the order of `classes_`; None estimates them.
    class_smoothing : float, default 0
        Class probabilities have the prior Dirichlet(1 + class_smoothing).
    num_draws : int, default 1000
        Draws of the posterior behind `draws_`, intervals and `predict_proba_draws`.
    random_state : int, numpy Generator, JAX key or None
    unlabelled : label or None
        A value of y that stands for a missing label.
    handle_unknown : {"error", "missing"}
        Categories that were not seen in training are an error, or count as missing cells."""

FITTED = """    classes_ : array (K,)
    priors_ : array (K,)
        Class probabilities.
    params_, draws_ : dict
        Point estimate (posterior mean), and draws with a leading axis.
    prior_ : Family
        The prior's numbers.
    log_evidence_ : float
        log p(X, y), the parameters integrated out (not for "mle")."""


def with_common(cls, fitted: str = FITTED):
    """Put the shared parts in the place of {common} and {fitted}."""
    cls.__doc__ = cls.__doc__.replace("{common}", COMMON.strip()).replace("{fitted}", fitted.strip())
    return cls

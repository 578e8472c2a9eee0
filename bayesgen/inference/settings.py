"""How an engine runs: what `engine="nuts"` and its like stand for, to be given instead of the name.

QDA(method="posterior", engine=NUTS(chains=2, target_accept=0.95))
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class NUTS:
    """The no-U-turn sampler, chains side by side, from the mode and in coordinates scaled by the curvature there.

    Parameters
    ----------
    chains : int or None
        None: the largest of 4, 3, 2, 1 that divides num_draws.
    warmup : int
        Steps of each chain that adapt step size and scales, and are dropped.
    target_accept : float
        Raise it towards 1 when draws diverge: smaller steps.
    max_tree_depth : int
    progress : bool
        A progress bar where the sampler runs on the rows (on statistics it takes no time worth a bar).
    """

    chains: int | None = None
    warmup: int = 500
    target_accept: float = 0.8
    max_tree_depth: int = 10
    progress: bool = True


@dataclasses.dataclass(frozen=True)
class Gibbs:
    """Data augmentation: missing cells given the parameters, parameters given the completed rows, in turn.

    Parameters
    ----------
    chains : int or None
        None: the largest of 4, 3, 2, 1 that divides num_draws.
    warmup : int
        Sweeps of each chain that are dropped.
    thin : int
        Sweeps from one draw to the next.
    progress : bool
    """

    chains: int | None = None
    warmup: int = 200
    thin: int = 1
    progress: bool = True


@dataclasses.dataclass(frozen=True)
class SVI:
    """Variational inference: the normal law over unconstrained coordinates with the best evidence bound.

    Parameters
    ----------
    guide : {"multivariate", "normal"}
        NumPyro's AutoMultivariateNormal (correlated) or AutoNormal (independent coordinates; too narrow where they depend).
    steps : int
    batch_rows : int
        Rows that a step looks at, where there are more.
    step_size : float
        Of Adam, in units of posterior standard deviations; falls to a hundredth of it.
    progress : bool
    """

    guide: str = "multivariate"
    steps: int = 2000
    batch_rows: int = 4096
    step_size: float = 0.05
    progress: bool = True


@dataclasses.dataclass(frozen=True)
class Laplace:
    """The normal law over unconstrained coordinates that has the density's mode and curvature. It covers one mode."""


@dataclasses.dataclass(frozen=True)
class EM:
    """Expectation-maximisation, for mle and map where labels are missing or cells of full covariances.

    Parameters
    ----------
    tol : float
        The search ends when a step changes the log likelihood (map: log posterior density) by at most this share of it, and
        no parameter by more than this in units of the columns' standard deviations (probabilities: as they are).
    max_iter : int
        Steps, at most.
    progress : bool
    """

    tol: float = 1e-9
    max_iter: int = 1000
    progress: bool = True


SAMPLERS = {"nuts": NUTS, "gibbs": Gibbs, "svi": SVI, "laplace": Laplace}
ENGINES = SAMPLERS | {"em": EM}


def name_of(engine) -> str:
    """The name of an engine given as a name or as settings."""
    return engine if isinstance(engine, str) else type(engine).__name__.lower()


def settings_of(engine):
    return ENGINES[engine]() if isinstance(engine, str) else engine


def chains_of(settings, num_draws: int) -> int:
    """How many chains make up num_draws draws."""
    return settings.chains or next(c for c in (4, 3, 2, 1) if num_draws % c == 0)

"""Whether a family keeps its contract: what it returns, in which shapes. Nothing is computed or compiled.

The methods are traced on abstract values, so the check is cheap enough to stand before every fit of a user's family.
Whether the numbers are right is another question: `bayesgen.check_family` asks it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers

from bayesgen.families.base import Family
from bayesgen.linalg import Shared
from bayesgen.programs import tracing

RESERVED = {"class_probs", "likelihood", "y", "x"}  # sites of the joint model and of the engines
PLATE = 'with numpyro.plate("class", num_classes):'
SIGNATURES = {"model": "model(self, num_classes, num_features)", "distribution": "distribution(self, params)"}


def check_contract(family: Family, num_classes: int, num_features: int) -> None:
    """Raise an error that says what is wrong with a family, and where, if it breaks its contract.

    `model` must return a dict of arrays, sampled under a plate of the classes; `distribution` a NumPyro distribution with
    batch shape (K,) and event shape (p,); `log_prob` a table (n, K) and `sample` rows (n, p).

    A family that is still to take numbers from the data (a field that is None or "auto" beside a `resolve` of its own) is
    checked as far as its methods run.

    Parameters
    ----------
    family : Family
    num_classes, num_features : int
        K and p.

    Raises
    ------
    TypeError
        Something is of the wrong type: a class for an instance, a missing method, no dict, no distribution.
    ValueError
        A shape is wrong, a parameter is discrete or has an improper prior, or the family's own code raised an error.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> class Exponential(Family):
    ...     def model(self, num_classes, num_features):
    ...         with numpyro.plate("class", num_classes):
    ...             return {"rate": numpyro.sample("rate", dist.Gamma(2.0, 1.0).expand([num_features]).to_event(1))}
    ...     def distribution(self, params):
    ...         return dist.Exponential(params["rate"])
    >>> check_contract(Exponential(), 2, 3)  # doctest: +NORMALIZE_WHITESPACE
    Traceback (most recent call last):
        ...
    ValueError: Exponential.distribution: batch shape (2, 3) and event shape (), not (2,) and (3,), for 2 classes and 3
    columns. The columns must be part of the event: add .to_event(1).
    """
    check_methods(family)
    with jax.enable_x64(True):
        try:
            params = _trace_model(family, num_classes, num_features)
            _check_distribution(family, params, num_classes, num_features)
            _check_rows(family, params, num_classes, num_features)
        except (TypeError, ValueError) as error:
            if error.__cause__ is None or not unresolved(family):
                raise


def unresolved(family: Family) -> bool:
    """Whether the family seems to wait for data: a `resolve` of its own, and a field that is None or "auto"."""
    own = type(family).resolve is not Family.resolve
    values = [getattr(family, field.name) for field in dataclasses.fields(family)]  # type: ignore[arg-type]
    return own and any(v is None or (isinstance(v, str) and v == "auto") for v in values)


def classless(family: Family, num_classes: int, num_features: int) -> set[str]:
    """Names of the parameters that have no class axis: their shape stays as it is with one class more."""
    with jax.enable_x64(True):
        here = _trace_model(family, num_classes, num_features)
        try:
            more = _trace_model(family, num_classes + 1, num_features)
        except (TypeError, ValueError):  # prior numbers by class: only the shape is left to go by
            return {name for name, value in here.items() if value.shape[:1] != (num_classes,)}
    return {name for name, value in here.items() if value.shape == more[name].shape}


# -- is it a family
def check_methods(family: Any) -> None:
    if isinstance(family, type):
        raise TypeError(f"A family is an instance: give {family.__name__}(), not {family.__name__}.")
    if not isinstance(family, Family):
        raise TypeError(
            f"{_short(family)} is not a family: inherit from bayesgen.Family and define {' and '.join(SIGNATURES.values())}."
        )
    for name, signature in SIGNATURES.items():
        if getattr(type(family), name) is getattr(Family, name):
            raise TypeError(f"{type(family).__name__} has no method {name}: define {signature}.")


def _short(value: Any) -> str:
    if isinstance(value, jax.Array):
        return f"an array of shape {tuple(value.shape)}"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


class _Refused(Exception):
    """An error of ours that was raised while the family's code ran: it needs no words about where."""


def _run(family: Family, method: str, num_classes: int, num_features: int, function, *args) -> Any:
    """function(*args) on abstract values; an error of the family's code comes back with the method's name."""
    try:
        return jax.eval_shape(function, *args)
    except _Refused as error:
        raise error.args[0] from None
    except Exception as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        where = f"{type(family).__name__}.{method} with {_size(num_classes, num_features)}"
        raise kind(f"{where} raised {type(error).__name__}: {error}{_hint(method, error)}") from error


def _hint(method: str, error: Exception) -> str:
    if isinstance(error, jax.errors.ConcretizationTypeError | jax.errors.TracerArrayConversionError):
        return " The method must run under jax.jit: use jax.numpy, and jnp.where instead of if."
    if method == "model" and isinstance(error, ValueError) and "broadcast" in str(error):
        return ". Inside the plate the columns of a parameter are its event: add .to_event(1) to its prior."
    if method == "log_prob" and isinstance(error, TypeError):
        return ". It is called as log_prob(params, x, cells)."
    return ""


def _size(num_classes: int, num_features: int) -> str:
    classes = f"{num_classes} class{'' if num_classes == 1 else 'es'}"
    return f"{classes} and {num_features} column{'' if num_features == 1 else 's'}"


# -- the model
def _trace_model(family: Family, num_classes: int, num_features: int) -> dict[str, Any]:
    name = f"{type(family).__name__}.model"
    latent: list[str] = []

    def look(site):
        if site["type"] == "sample" and not site["is_observed"]:
            _check_site(name, site)
            latent.append(site["name"])
        return None  # draw as usual

    def run():
        return traced(family)

    def traced(family):
        with tracing, handlers.block(), handlers.seed(rng_seed=0), handlers.substitute(substitute_fn=look):
            params = family.model(num_classes, num_features)
        _check_params(name, params)
        return params

    params = _run(family, "model", num_classes, num_features, run)
    _check_fields(family, traced)
    if not latent:
        raise ValueError(f"{name} has no numpyro.sample statement: the parameters need a prior, stated there.")
    return params


def _check_fields(family: Family, traced) -> None:
    """Fields are traced when a family is fitted: sizes and words among them must be declared as structure."""
    try:
        jax.eval_shape(traced, family)
    except _Refused as error:
        raise error.args[0] from None
    except Exception as error:
        names = [f.name for f in dataclasses.fields(family) if not f.metadata.get("static")]  # type: ignore[arg-type]
        raise TypeError(
            f"{type(family).__name__}.model runs with the values of its fields {names}, but not when JAX traces them: a "
            "field that is structure (a size, a name, a flag) must be declared with bayesgen.families.static(), as in "
            f"`size: int = static(2)`. ({type(error).__name__}: {str(error).splitlines()[0]})"
        ) from error


def _check_site(name: str, site: dict) -> None:
    fn = site["fn"]
    if site["name"] in RESERVED:
        raise _Refused(ValueError(f"{name}: the name {site['name']!r} is taken; give the site another one."))
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution | dist.MaskedDistribution):
        fn = fn.base_dist
    if not isinstance(fn, dist.Distribution):
        return
    if fn.support is not None and fn.support.is_discrete:
        raise _Refused(
            ValueError(
                f"{name}: the site {site['name']!r} is discrete ({type(fn).__name__}). Discrete parameters are not "
                "supported: sum them out in distribution, with dist.MixtureSameFamily for example."
            )
        )
    if isinstance(fn, dist.ImproperUniform):
        raise _Refused(
            ValueError(f"{name}: the site {site['name']!r} has an improper prior, which cannot be drawn: give a proper one.")
        )


def _check_params(name: str, params: Any) -> None:
    if not isinstance(params, Mapping):
        what = "None: end it with return" if params is None else f"{_short(params)}: return"
        raise _Refused(TypeError(f'{name} returned {what} a dict of the parameters, such as {{"rate": rate}}.'))
    for key, value in params.items():
        number = isinstance(value, jax.Array | np.ndarray | int | float)
        if not isinstance(key, str) or not number:
            raise _Refused(TypeError(f"{name} returned a dict with {key!r}: {_short(value)}; names and arrays are needed."))


# -- the distribution
def _check_distribution(family: Family, params: dict, num_classes: int, num_features: int) -> None:
    name = f"{type(family).__name__}.distribution"
    found: list[tuple] = []

    def run(params):
        density = family.distribution(params)
        if not isinstance(density, dist.Distribution):
            what = "None: end it with return" if density is None else f"{_short(density)}: return"
            raise _Refused(TypeError(f"{name} returned {what} a NumPyro distribution."))
        found.append((tuple(density.batch_shape), tuple(density.event_shape)))
        return 0

    try:
        _run(family, "distribution", num_classes, num_features, run, params)
    except (TypeError, ValueError) as error:
        if error.__cause__ is None:
            raise
        raise type(error)(f"{error} (parameters: {_shapes(params)})") from error.__cause__
    if found[0] != ((num_classes,), (num_features,)):
        raise ValueError(_wrong_shape(family, params, found[0], num_classes, num_features))


def _shapes(params: dict) -> str:
    return ", ".join(f"{name} {tuple(value.shape)}" for name, value in params.items())


def _wrong_shape(family: Family, params: dict, found: tuple, k: int, p: int) -> str:
    """Which shape is wrong, and the most likely reason."""
    name, (batch, event) = type(family).__name__, found
    text = f"{name}.distribution: batch shape {batch} and event shape {event}, not {(k,)} and {(p,)}, for {_size(k, p)}."
    bare = sorted(classless(family, k, p))
    if batch == (k, p) and event == ():
        return f"{text} The columns must be part of the event: add .to_event(1)."
    if bare and batch != (k,):
        each = ", ".join(f"{key!r} has shape {tuple(params[key].shape)}" for key in bare)
        return f"{text} No class axis: {each} in {name}.model. Sample it inside `{PLATE}`."
    advice = " A row needs a column axis: sample parameters with .expand([num_features]).to_event(1)."
    return f"{text} The parameters are {_shapes(params)}.{advice if batch in ((), (k,)) else ''}"


# -- what follows from it
def _check_rows(family: Family, params: dict, k: int, p: int) -> None:
    """The table of log_prob, called as the rest of the package does, and the rows of sample."""
    n = k + p + 1  # unlike K and p, so that no axis passes for another
    table, labels = jax.ShapeDtypeStruct((n, p), jnp.float64), jax.ShapeDtypeStruct((n,), jnp.int64)
    every = Shared(np.ones(p, bool))
    shapes = {
        "log_prob": _run(family, "log_prob", k, p, lambda t, x: family.log_prob(family.working(t), x, every), params, table),
        "sample": _run(
            family, "sample", k, p, lambda t, y: family.sample(jax.random.key(0), family.working(t), y), params, labels
        ),
    }
    for method, expected in (("log_prob", (n, k)), ("sample", (n, p))):
        found = getattr(shapes[method], "shape", None)
        if found != expected:
            meaning = "(rows, classes)" if method == "log_prob" else "(rows, columns)"
            raise ValueError(
                f"{type(family).__name__}.{method} with {_size(k, p)} returned shape {found} for {n} rows, "
                f"not {expected}: {meaning}."
            )

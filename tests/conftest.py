"""Shared cases: small data with unequal classes, and every covariance structure."""

import os
from functools import partial
from importlib.metadata import version
from pathlib import Path

# Most of the suite's time is compilation: compiled programs are kept on disk, for both workers and for the next run, and
# the compiler optimises little. `normal_settings` undoes the latter for what test_optimised.py and others run in processes
# of their own. To run everything as users do: JAX_DISABLE_MOST_OPTIMIZATIONS=0 XLA_FLAGS= pytest
CACHE = Path(__file__).resolve().parent.parent / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
QUICK = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
if version("jaxlib").startswith(("0.8.", "0.9.")):  # flags that a release does not have end the process
    QUICK["XLA_FLAGS"] = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
for name, value in QUICK.items():
    os.environ.setdefault(name, value)

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

STRUCTURES = [(name, tied) for name in ("full", "diag", "spherical") for tied in (False, True)]


@pytest.fixture(params=STRUCTURES, ids=lambda case: f"{case[0]}-{'tied' if case[1] else 'free'}")
def structure(request):
    return request.param


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


def normal_settings():
    """The environment of a process whose programs are compiled as those of users are."""
    ours = [*QUICK.items(), ("PYTEST_ADDOPTS", os.environ.get("PYTEST_ADDOPTS"))]
    return {name: value for name, value in os.environ.items() if (name, value) not in ours}


@partial(jax.jit, static_argnums=1)
def compiled(owner, method, *args):
    """`owner.method(*args)` as one program; outside jit each of its operations would be compiled by itself."""
    return getattr(owner, method)(*args)


def make_rows(seed=0, n=40, d=3, k=3):
    """Rows of k correlated normal classes of unequal sizes."""
    rng = np.random.default_rng(seed)
    y = np.sort(rng.choice(k, n, p=np.arange(1, k + 1) / np.arange(1, k + 1).sum()))
    mix = rng.normal(size=(k, d, d)) + 2 * np.eye(d)
    x = np.einsum("nij,nj->ni", mix[y], rng.normal(size=(n, d))) + 2 * rng.normal(size=(k, d))[y]
    return x, y


def holes(x, share=0.3, seed=1):
    """A copy with a share of the cells missing, some rows entirely."""
    rng = np.random.default_rng(seed)
    out = np.array(x, float)
    out[rng.random(x.shape) < share] = np.nan
    out[0] = np.nan
    return out


@pytest.fixture(autouse=True, scope="module")
def _forget_compiled_programs():
    """Compiled programs of one module are of little use to the next, and thousands of them take gigabytes."""
    yield
    jax.clear_caches()

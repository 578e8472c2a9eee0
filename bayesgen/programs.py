"""Compiled programs, and room for more of them.

XLA on the CPU keeps a compiled program in dozens to hundreds of memory mappings, of which Linux allows a process 65,530
by default; the next one ends the process with a segmentation fault. A long session over many tables compiles that much,
so programs compiled by `jit` of this module are dropped when half of the mappings are in use. Dropped programs compile
again when they are called again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
from jax import monitoring

COMPILED = "/jax/core/compile/backend_compile_duration"
EVERY = 32  # compilations between two looks at the mappings
MAPS, MOST_MAPS = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")

_programs: list = []
_since = 0

# NumPyro's handlers live on one stack per process: only one thread at a time may trace a model.
tracing = threading.RLock()


def jit(function: Callable | None = None, **options) -> Callable:
    """`jax.jit`, remembered by `make_room`."""
    if function is None:
        return partial(jit, **options)
    compiled = jax.jit(function, **options)
    _programs.append(compiled)
    return compiled


def _count(event: str, duration_secs: float, **kwargs: str | int) -> None:
    global _since
    _since += event == COMPILED


monitoring.register_event_duration_secs_listener(_count)


def make_room() -> bool:
    """Drop this package's compiled programs if half of the process's memory mappings are in use; whether it did.

    Looks only once in `EVERY` compilations: listing many mappings takes milliseconds.
    """
    global _since
    if _since < EVERY:
        return False
    _since = 0
    try:
        with MAPS.open("rb") as lines:
            used = sum(1 for _ in lines)
        full = used > int(MOST_MAPS.read_text()) // 2
    except OSError:  # not Linux: no such limit
        return False
    if full:
        for compiled in _programs:
            compiled.clear_cache()
    return full

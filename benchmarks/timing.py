"""Least times of tasks that take turns, shared by the scripts here."""

from __future__ import annotations

import time

import numpy as np


def least_times(tasks: dict, repeats: int) -> dict[str, float]:
    """Least seconds of each task, the tasks taking turns."""
    best = dict.fromkeys(tasks, np.inf)
    for _ in range(repeats):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def cell(times: dict[str, float]) -> str:
    """Ours, the peer's, and the ratio, as cells of a table."""
    return f"{times['ours'] * 1e3:.1f} | {times['peer'] * 1e3:.1f} | {times['peer'] / times['ours']:.2f}"

"""Simulation-based calibration of the engines: a few replications here, hundreds behind `-m slow` (see `simulation`).

`benchmarks/calibration.py` does the long run with its table and figure.
"""

import numpy as np
import pytest
import simulation
from simulation import APART, COUNTS, GAPS, GAUSSIAN, ONE_COLUMN, POOLED, POOLED_GAPS, RANKED, ranks

FALSE_ALARM = 1e-3  # one in a thousand runs of a test, over all its quantities

SHORT = [("nuts", "Gaussian full, free", 24), ("nuts", "Poisson", 24), ("gibbs", next(iter(GAPS)), 60)]
LONG = {
    "exact": GAUSSIAN | COUNTS,
    "gibbs": {"Gaussian full, free": 0, "Categorical": 0} | GAPS | POOLED | POOLED_GAPS,
    "nuts": GAUSSIAN | COUNTS | ONE_COLUMN | dict([next(iter(GAPS.items()))]) | dict([next(iter(POOLED.items()))]),
}


@pytest.mark.parametrize("engine, name, replications", SHORT)
def test_ranks_are_uniform_in_a_few_replications(engine, name, replications, x64):
    found = ranks(name, engine, replications)
    assert found.worth.min() > APART * RANKED
    assert found.level(bins=5) > FALSE_ALARM


def test_a_posterior_that_is_too_narrow_or_beside_the_truth_is_found(x64, monkeypatch):
    """The check itself: ranks are not uniform when every row is counted twice, or when draws are moved a little."""

    def twice(table, key, num):
        labels = simulation.Labels(np.tile(table.labels.codes, 2), 2)
        return simulation.by_exact(table._replace(x=np.tile(table.x, (2, 1)), labels=labels), key, num)

    def beside(table, key, num):
        draws, worth = simulation.by_exact(table, key, num)
        return {name: value + 0.5 * value.std(0) for name, value in draws.items()}, worth

    assert ranks("Poisson", "exact", 100).level(bins=5) > FALSE_ALARM
    for wrong in (twice, beside):
        monkeypatch.setitem(simulation.ENGINES, "wrong", wrong)
        assert ranks("Poisson", "wrong", 100).level(bins=5) < FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("engine, name", [(engine, name) for engine, cases in LONG.items() for name in cases])
def test_ranks_are_uniform(engine, name, x64):
    found = ranks(name, engine, 300)
    assert found.worth.min() > APART * RANKED
    assert found.level() > FALSE_ALARM

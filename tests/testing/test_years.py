"""Long virtual times in tests of users: what a fire costs does not depend on how many came before it."""

from __future__ import annotations

import time

from holdfast.testing.sim import Sim
from tests.testing.hourly_flows import count_visits

ENDED = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
INSERT INTO runs (id, workflow, version, state, input, digest, created_at, started_at, finished_at, output)
SELECT 'old-' || i, 'w', '1', 'succeeded', x'', x'', 1.0 + i, 1.0 + i, 2.0 + i, x'31' FROM n
"""


def passed(sim: Sim, hours: int) -> float:
    """Let this many hours pass, and return how much of the processor's time that took."""
    begun = time.process_time()
    sim.advance(hours=hours)
    return time.process_time() - begun


def test_ended_runs_do_not_make_time_pass_slower() -> None:
    """With three years of ended runs in its store, an hour takes as long as the first one."""
    with Sim() as sim:
        passed(sim, 5)  # whatever is done once is done then
        empty_s = passed(sim, 24)
        sim.stage.world.connection.execute(ENDED)
        assert passed(sim, 24) < 3 * empty_s
        assert len(sim.calls(count_visits)) == 53


def test_a_virtual_year_of_an_hourly_schedule() -> None:
    """It takes less than a minute of the processor's time, on a busy machine, too."""
    with Sim() as sim:
        assert passed(sim, 365 * 24) < 60
        assert len(sim.calls(count_visits)) == 365 * 24

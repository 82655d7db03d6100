"""Long virtual times in tests of users: what a fire costs does not depend on how many came before it."""

from __future__ import annotations

import time
from collections import Counter
from datetime import timedelta

from holdfast.testing.sim import Sim
from holdfast.testing.stage import Activity
from tests.testing.hourly_flows import count_visits, sleepy

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


def test_an_hour_is_few_looks_and_statements() -> None:
    """What a fire costs is counted, so that a slow machine does not matter: 73 statements with one step, and 15 looks at what is
    going on. A year of them stays below half a minute of a processor's time."""
    with Sim() as sim:
        sim.advance(hours=5)
        statements, looks = Counter[int](), Counter[int]()
        number, look = 0, sim.stage._look

        def traced(cursor: object, sql: str, bindings: object) -> bool:
            statements[number] += 1
            return True

        def looked() -> Activity:
            looks[number] += 1
            return look()

        sim.stage.world.connection.exec_trace = traced
        sim.stage._look = looked  # type: ignore[method-assign]  # it is counted
        for number in (24, 240):
            sim.advance(hours=number)
        sim.stage.world.connection.exec_trace = None
    for number in (24, 240):
        assert statements[number] / number < 73
        assert looks[number] / number < 15


def test_a_process_stays_while_no_run_is_open() -> None:
    """Nothing is there to be replayed, so an hour costs no other process. Every time is decided when it comes."""
    with Sim() as sim:
        sim.advance(hours=2)
        opened = sim.stage.opened
        sim.advance(days=2)
        assert sim.stage.opened == opened
        fires = sim.ask(lambda hf: hf.schedules.fires("hourly", 100))
        assert [fire.fate for fire in fires] == ["started"] * 50
        assert max(fire.decided_at - fire.at for fire in fires) < timedelta(seconds=1)


def test_a_process_that_stayed_can_die() -> None:
    """After a long wait its leases are no longer than others: another process goes on at once, and loses no time."""
    with Sim() as sim:
        sim.advance(days=1)
        opened = sim.stage.opened
        sim.kill_agent()
        sim.advance(days=1)
        assert sim.stage.opened == opened + 1
        assert len(sim.calls(count_visits)) == 48


def test_a_run_that_sleeps_is_replayed_by_another_process() -> None:
    """While a run is open, each long wait ends in another process."""
    with Sim() as sim:
        run = sim.start(sleepy)
        opened = sim.stage.opened
        sim.advance(hours=5)
        assert sim.stage.opened >= opened + 5
        sim.advance(days=1)
        assert run.result() == 2
        opened = sim.stage.opened
        sim.advance(hours=5)
        assert sim.stage.opened <= opened + 1


def test_a_virtual_year_of_an_hourly_schedule() -> None:
    """It takes less than a minute of the processor's time, on a busy machine, too."""
    with Sim() as sim:
        assert passed(sim, 365 * 24) < 60
        assert len(sim.calls(count_visits)) == 365 * 24

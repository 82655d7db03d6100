"""The same operations on the model, on SQLite and on PostgreSQL: the same answers, and the same rows after each.

`HOLDFAST_EXAMPLES=2000 pytest tests/differential` looks longer. A failure prints the operations that lead to it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.differential.questions import Asking
from tests.differential.rules.alerts import Alerts
from tests.differential.rules.gates import Gates
from tests.differential.rules.quarantine import Quarantines
from tests.differential.rules.reads import Reads
from tests.differential.rules.runs import Begun, Runs
from tests.differential.rules.twins import Twins
from tests.differential.rules.workflows import Workflows
from tests.differential.subjects import Asked, Postgres
from tests.differential.test_verbs import asked_verbs

EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES", "100"))
"""Shared by the machines."""
MANY = 1000
"""In so many examples chance reaches every rule."""
STEPS = 40


class AllRules(Begun, Gates, Quarantines, Twins, Alerts, Reads, Workflows):
    """Whatever may come together. The others have fewer rules, and come further in as many steps."""


class RunsAlone(Runs, Reads):
    pass


class RunsGated(Begun, Gates, Quarantines):
    pass


class RunsHedged(Begun, Twins):
    pass


class RunsAlerted(Begun, Alerts):
    pass


class RunsDeclared(Begun, Workflows):
    pass


RAN: set[type[Asking]] = set()
MACHINES: list[type[Asking]] = [AllRules, RunsAlone, RunsGated, RunsHedged, RunsAlerted, RunsDeclared]


@pytest.fixture
def stores(pg_url: str) -> Iterator[None]:
    with asyncio.Runner() as runner:
        postgres = Postgres(pg_url)
        Asking.runner, Asking.postgres = runner, postgres
        runner.run(postgres.store.open())
        yield
        runner.run(postgres.store.close())
        postgres.close()


@pytest.mark.timeout(120 + 10 * EXAMPLES)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_both_stores_do_what_the_model_does(machine: type[Asking], stores: None) -> None:
    """Whatever is asked, in whatever order, by holders of current and of stale fences and epochs: the model, SQLite and
    PostgreSQL give the same answer and have the same rows."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(1, EXAMPLES // len(MACHINES)),
            stateful_step_count=STEPS,
            deadline=None,
            derandomize="HOLDFAST_EXAMPLES" not in os.environ,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
            report_multiple_bugs=False,
        ),
    )
    RAN.add(machine)


def test_each_verb_was_reached() -> None:
    """A rule whose precondition never holds compares nothing: in a long run every verb that rules ask is asked."""
    if set(MACHINES) != RAN or EXAMPLES < MANY:
        pytest.skip(f"not all machines ran, or fewer than {MANY} examples")
    assert asked_verbs() - Asked.times.keys() == set()

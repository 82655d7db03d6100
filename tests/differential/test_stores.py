"""The same operations on the model, on SQLite and on PostgreSQL give the same answers, and the same rows after each.

`HOLDFAST_EXAMPLES=2000 pytest tests/differential` runs more examples. A failure prints the operations that lead to it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.differential.questions import Asking
from tests.differential.rules.acts import Acts
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
"""How many examples all machines have together."""
MANY = 1000
"""How many examples it takes until every rule has been drawn."""
STEPS = 40


class AllRules(Begun, Gates, Quarantines, Twins, Alerts, Reads, Workflows, Acts):
    """All rules together. The other machines have fewer rules, and so get further with the same number of steps."""


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


class RunsActedOn(Begun, Quarantines, Acts):
    pass


RAN: set[type[Asking]] = set()
MACHINES: list[type[Asking]] = [
    AllRules,
    RunsAlone,
    RunsGated,
    RunsHedged,
    RunsAlerted,
    RunsDeclared,
    RunsActedOn,
]


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
    """Whatever is asked in whatever order, with current or old fences and epochs, the model, SQLite and PostgreSQL give
    the same answers and have the same rows."""
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
    """A rule whose precondition is never true compares nothing. So with many examples, every verb in the rules must
    have been asked."""
    if set(MACHINES) != RAN or EXAMPLES < MANY:
        pytest.skip(f"not all machines ran, or fewer than {MANY} examples")
    assert asked_verbs() - Asked.times.keys() == set()

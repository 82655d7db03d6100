"""Steps that do not end when they are cancelled: their code catches that and goes on. Only the leader can end
such an attempt, because its agent is alive and waits for it."""

from __future__ import annotations

from contextlib import ExitStack

from tests.simulation.mutants import mutant, sql
from tests.simulation.parts.part import Part


class Hangs(Part):
    name = "hangs"
    share = 0.08

    def behaviours(self) -> tuple[str, ...]:
        return ("clings", "clings")


@mutant("the leader ends an attempt that is overdue, if its agent does not", within=60, part="hangs")
def overdue_attempts_stay(stack: ExitStack) -> None:
    sql(stack, "overdue_steps", "WHERE s.state = 'running'", "WHERE s.state = 'running' AND s.fence < 0")


@mutant("the leader's one look sees attempts that are overdue", within=30, part="hangs")
def the_one_look_sees_no_overdue_attempts(stack: ExitStack) -> None:
    sql(stack, "duties", "WHERE s.state = 'running' AND", "WHERE s.state = 'running' AND s.fence < 0 AND")

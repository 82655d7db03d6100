"""Callbacks, which some seeds play: runs ask another system for results, and two of its servers answer each of them, early, late
or twice, with different values, while processes die, commits get lost, time runs out, and operators cancel runs and retry them. One
answer counts for each request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast import here, step, workflow
from holdfast.errors import Gone, UnknownCallback, UnknownRun
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import CALLBACK_PREFIX, REQUEST_PREFIX, call_key, callback_key
from holdfast.policy import Retry
from holdfast.store import retries
from tests.simulation import program
from tests.simulation.mutants import code, mutant, sql
from tests.simulation.nodes import carried_out
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from holdfast.testing.world import Process
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.simulation import Simulation

ENDS = "SELECT verb, count(*) FROM journal WHERE run_id = ? AND n = ? AND verb IN ('answer', 'expire') GROUP BY verb"
CALLBACKS = "SELECT run_id, n, key, state, complete_by, timeout_s, delivered_seq, fence FROM steps WHERE kind = 'callback'"
REQUESTED = (
    "SELECT 1 FROM steps WHERE run_id = ? AND n = ? AND key = ? AND state = 'succeeded' AND delivered_seq > 0"
)
RETRIED = "SELECT retry_of FROM runs WHERE id = ?"
IS_THERE = "SELECT 1 FROM steps WHERE run_id = ? AND n = ?"
ANSWERS = 2


@step(callback=True, expires=0.7, retry=Retry(attempts=50, timeouts=3, losses=50, delay=0.05, max_delay=0.2))
async def request_paper(number: int) -> int:
    await program._do(number, "ok")
    return here.later()


@workflow
async def waits_for_paper(number: int) -> int:
    return await request_paper(number)


def I61_one_end(checker: Checker, commit: Commit) -> Iterable[str]:
    """A callback that has ended was answered once or has expired once, and no other one was. Its time begins with the commit in
    which the code gets the end of its request. A call asks again when the code knows that nobody answered in time."""
    if "steps" not in commit.tables:
        return
    execute = checker.connection.execute
    rows = execute(CALLBACKS).fetchall()
    open_ = {(row[0], row[2]) for row in rows if row[3] != "failed" or not row[6]}
    for run_id, n, key, state, complete_by, timeout_s, _, fence in rows:
        if (before := _before(key)) is not None and (run_id, before) in open_:
            yield f"{key} of {run_id} is asked for, and {before} has not expired"
        wanted = {"succeeded": {"answer": 1}, "failed": {"expire": 1}}.get(state, {})
        ends = _ends(checker, run_id, n, has_ended=bool(wanted))
        if ends not in (wanted, None) or fence > 1:
            yield f"the callback {n} of {run_id} is {state}, and has ended by {ends}"
        if state == "waiting" and timeout_s is not None and complete_by is None:
            if execute(REQUESTED, (run_id, n - 1, f"request:{key}")).fetchall():
                yield f"the time of callback {n} of {run_id} has not begun, although its request was made"


def _ends(checker: Checker, run_id: str, n: int, *, has_ended: bool) -> dict[str, int] | None:
    """Return by what a callback has ended. A retry keeps those of the run before that have ended, and the journal of that run
    says it: None if it is gone, or about to be."""
    execute = checker.connection.execute
    while True:
        found = dict(execute(ENDS, (run_id, n)).fetchall())
        if found or not has_ended:
            return found
        runs = execute(RETRIED, (run_id,)).fetchall()
        if not runs or runs[0][0] is None:
            return {} if runs and execute(IS_THERE, (run_id, n)).fetchall() else None
        run_id = runs[0][0]


def _before(key: str) -> str | None:
    """Return the key of the callback that expired before the one with this key was asked for; None for the first one."""
    if not key.startswith(CALLBACK_PREFIX):
        return None
    number = int(key.removeprefix(CALLBACK_PREFIX + "#").partition(":")[0])
    return callback_key(call_key(key), number - 1)


class Callbacks(Part):
    name = "callbacks"
    share = 0.08
    known = (request_paper, waits_for_paper)
    checks = (I61_one_end,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._runs: list[str] = []
        self._taken: dict[str, set[int]] = {}
        """By run, of what the other system heard that it is taken. Retries of a run count as the run."""
        self._cancels: set[str] = set()
        """The runs that an operator still cancels or retries."""

    def begin(self, simulation: Simulation) -> None:
        for number in range(self.dice.randint(1, 4)):
            run_id = f"paper-{number}"
            self._runs.append(run_id)
            simulation.limits_s[run_id] = None
            simulation.drive(self._start(simulation, run_id, number))
            for server in range(ANSWERS):
                pause_s = self.dice.choice((0.05, 0.3, 0.8, 2.0))
                simulation.drive(self._answer(simulation, run_id, server, pause_s))
            if self.dice.random() < 0.5:
                self._cancels.add(run_id)
                simulation.drive(self._cancel_and_retry(simulation, run_id, self.dice.random() * 3))

    async def _cancel_and_retry(self, simulation: Simulation, run_id: str, pause_s: float) -> None:
        """Cancel a run at some moment, and let a retry go on from there."""
        await asyncio.sleep(pause_s)
        await simulation.asked(partial(_cancelled, run_id), tries=4)
        while (run := simulation.checker.runs.get(run_id)) is None or run.state not in RUN_ENDED:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        if run.state != "succeeded":
            await simulation.asked(partial(_retried, run_id), tries=3)
        self._cancels.discard(run_id)

    async def _start(self, simulation: Simulation, run_id: str, number: int) -> None:
        await asyncio.sleep(self.dice.random() * 2)
        await simulation.asked(lambda process: process.start(waits_for_paper.using(id=run_id), number))

    async def _answer(self, simulation: Simulation, run_id: str, server: int, pause_s: float) -> None:
        """Answer whatever the run waits for, until it has ended."""
        value = server * 1000
        while not self._has_ended(simulation, run_id):
            await asyncio.sleep(pause_s * (0.5 + self.dice.random()))
            value += 1
            newest = self._newest(simulation, run_id)
            found = await simulation.asked(partial(_answered, newest, value), tries=3)
            if found == "new":
                self._taken.setdefault(run_id, set()).add(value)
            if found is not None:
                simulation.sometimes(f"a callback was {found}")

    def _newest(self, simulation: Simulation, run_id: str) -> str:
        """Return the newest run in the chain of retries that begins with this one."""
        retries = {run.retry_of: run.id for run in simulation.checker.runs.values()}
        while run_id in retries:
            run_id = retries[run_id]
        return run_id

    def _has_ended(self, simulation: Simulation, run_id: str) -> bool:
        run = simulation.checker.runs.get(self._newest(simulation, run_id))
        return run is not None and run.state in RUN_ENDED and run_id not in self._cancels

    def observe(self, simulation: Simulation, commit: Commit) -> None:
        """A request counts as made if its answer is kept. Its code may not have begun: operators answer without an address."""
        checker = simulation.checker
        for _, before, after in commit.steps:
            if before is None and after is not None and after.key.startswith(REQUEST_PREFIX):
                run = checker.runs[after.run_id]
                other = checker.steps.get((run.retry_of or run.forked_from or "", after.n))
                if after.state == "succeeded" and other is not None and other.state != "succeeded":
                    checker.skipped.add((after.run_id, after.n))
                    simulation.sometimes("a request counted as made")

    def waits_for(self, simulation: Simulation) -> Iterator[str]:
        for run_id in self._runs:
            if not self._has_ended(simulation, run_id):
                yield f"{run_id}, which waits for a callback, has not ended"

    def endings(self, simulation: Simulation) -> Iterator[str]:
        """A run that succeeded returned what the other system heard that it is taken, if it heard anything. A run that was
        answered is not answered again by its retry: it goes on with the answer that it has."""
        if simulation.parts.plays("retention"):
            return
        for run_id in self._runs:
            newest = self._newest(simulation, run_id)
            run, taken = simulation.checker.runs.get(newest), self._taken.get(run_id, set())
            if newest != run_id and taken:
                simulation.sometimes("a run with a callback was answered and retried")
            if run is None:
                yield f"I4 run {run_id} was accepted and is lost"
            elif run.state == "succeeded" and taken and json.loads(run.output or b"null") not in taken:
                yield f"G2 run {run_id} returned {run.output!r}, and {taken} was taken"
            elif len(taken) > 1:
                yield f"G2 {len(taken)} answers to {run_id} were taken: {taken}"
            elif run.state == "failed" and taken:
                yield f"G2 run {run_id} failed although {taken} was taken"


async def _answered(run_id: str, value: int, process: Process) -> str | None:
    try:
        found = await process.callbacks.answer(run_id, value)
    except (UnknownRun, UnknownCallback):
        return "unknown"
    except Gone:
        return "gone"
    return "new" if found.new else "the same"


async def _cancelled(run_id: str, process: Process) -> Any:
    return await carried_out(process, process.store.operators.cancel_run(run_id, "sim", "no more"))


async def _retried(run_id: str, process: Process) -> Any:
    return await carried_out(process, process.store.operators.retry_run(run_id, "sim"))


@mutant("the time of a callback begins when its request has been made", within=60, part="callbacks")
def callbacks_never_expire(stack: ExitStack) -> None:
    sql(stack, "begin_callbacks", "+kind = 'callback'", "+kind = 'ask'")


@mutant("a callback that has ended takes no further answer", within=60, part="callbacks")
def callbacks_are_answered_again(stack: ExitStack) -> None:
    sql(stack, "lock_callback", "state, complete_by,", "'waiting' AS state, NULL AS complete_by,")
    sql(stack, "answer_steps", "AND +state = 'waiting' ", "")


@mutant("a retry keeps an answer that came before the end of its request", within=100, part="callbacks")
def early_answers_are_lost(stack: ExitStack) -> None:
    real = retries.pairs

    def pairs(steps: Any, kept: Any, *rest: Any) -> Any:
        found = real(steps, kept, *rest)
        lost = {n + 1 for n in found.made}  # the callback is the step after its request
        return found._replace(made=set(), apart=found.apart | lost)

    code(stack, retries, "pairs", pairs)

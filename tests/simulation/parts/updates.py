"""Updates, which some seeds play: a run serves calls while everything goes wrong, and callers repeat their keys.

Each key has one effect and one answer, whoever died in between. The value of a call is its key, so the run's result
says how often each was served.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from holdfast import Refused, Update, UpdateFailed, workflow
from holdfast.access import Identity
from holdfast.decider import updates as served
from holdfast.desk.signals import LocalSignalDesk
from holdfast.model import UPDATE_PREFIX, UpdateAnswer
from holdfast.scheduler import scheduler as scheduling
from tests.simulation.mutants import code, mutant
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from holdfast.testing.world import Process
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.simulation import Simulation

RUN_ID = "u1"

tally = Update("tally", str, int)


@workflow
async def counts(seconds: float) -> list[str]:
    """Serve calls for a while, and return the values that were served, in order."""
    served: list[str] = []

    async def serve(value: str) -> int:
        if value.startswith("refused"):
            raise Refused(value)
        await asyncio.sleep(0.05)
        served.append(value)
        if value.startswith("fails"):
            raise LookupError(value)
        return len(served)

    async with tally.serve(serve):
        await asyncio.sleep(seconds)
    return served


class Updates(Part):
    name = "updates"
    share = 0.1
    known = (counts,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._got: dict[str, set[tuple[str, str]]] = {}
        """By key, the different answers that callers got."""
        self._is_started = False

    def begin(self, simulation: Simulation) -> None:
        """Start a run that serves calls, and call it, each key up to three times."""
        dice = self.dice
        simulation.drive(self._start(simulation, 0.5 + dice.random() * 3))
        for i in range(dice.randint(1, 5)):
            key = f"{dice.choice(('plain', 'plain', 'fails', 'refused'))} {i}"
            for _ in range(dice.randint(1, 3)):
                simulation.drive(self._call(simulation, key, dice.random() * 4))

    async def _start(self, simulation: Simulation, seconds: float) -> None:
        simulation.limits_s[RUN_ID] = None
        await asyncio.sleep(0.1 + self.dice.random())
        await simulation.asked(lambda process: process.start(counts.using(id=RUN_ID), seconds))
        self._is_started = True

    async def _call(self, simulation: Simulation, key: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        got = await simulation.asked(lambda process: _called(process, key), tries=40)
        if got is not None:
            self._got.setdefault(key, set()).add(got)
            simulation.sometimes(f"an update was answered: {got[0]}")

    def waits_for(self, simulation: Simulation) -> Iterator[str]:
        if not self._is_started:
            yield f"the start of {RUN_ID} was never answered"

    def endings(self, simulation: Simulation) -> Iterator[str]:
        """The run served each key at most once, and exactly those that have an answer that says so. Callers got what is
        recorded."""
        if simulation.parts.plays("retention"):
            return  # the run may have been pruned, with its answers
        run = simulation.checker.runs.get(RUN_ID)
        if run is None:
            yield f"I4 run {RUN_ID} was accepted and is lost"
            return
        if run.state != "succeeded":
            yield f"G2 run {RUN_ID}, which serves updates, {run.state}: {run.error}"
            return
        served: list[str] = json.loads(run.output or b"[]")
        rows: list[tuple[Any, ...]] = simulation.checker.connection.execute(
            "SELECT key, answer, reply FROM signals WHERE run_id = ? AND name = ?",
            (RUN_ID, UPDATE_PREFIX + tally.name),
        ).fetchall()
        answered = {key: answer for key, answer, _ in rows}
        ended = {
            key for key, answer in answered.items() if answer in (UpdateAnswer.RETURNED, UpdateAnswer.RAISED)
        }
        if len(served) != len(set(served)) or set(served) != ended:
            yield f"G2 run {RUN_ID} served {served}; answered are {answered}"
        replies = {
            key: bytes(reply).decode() for key, answer, reply in rows if answer == UpdateAnswer.RETURNED
        }
        for key, got in self._got.items():
            if len(got) > 1:
                yield f"G2 the key {key!r} got several answers: {sorted(got)}"
            for how, value in got:
                if (how == UpdateAnswer.RETURNED) != (key in replies) or (
                    key in replies and value != replies[key]
                ):
                    yield f"G2 the key {key!r} got {how} {value}; recorded is {answered.get(key)} {replies.get(key)}"


async def _called(process: Process, key: str) -> tuple[str, str]:
    """Call the run once. What was not answered in time raises, and is called again."""
    try:
        raw = await process.call_update(RUN_ID, tally.name, json.dumps(key).encode(), key, 0.8)
    except Refused as no:
        return UpdateAnswer.REFUSED, str(no)
    except UpdateFailed as failed:
        return "failed", failed.error_type
    return UpdateAnswer.RETURNED, raw.decode()


def I41_one_answer(checker: Checker, commit: Commit) -> Iterator[str]:
    """An update that is answered stays so. Only pruning removes it."""
    for _, before, after in commit.signals:
        if before is None or before.answer is None or commit.verb == "prune":
            continue
        if after is None or (after.answer, after.reply) != (before.answer, before.reply):
            yield f"the answer of {before} became {after}"


@mutant("the answer to an update is written with what the function did last", within=20, part="updates")
def answers_are_not_written(stack: ExitStack) -> None:
    real: Any = vars(scheduling)["complete"]

    def complete(hop: Any, turn: Any, owned: Any, now: float) -> None:
        turn.replies = []
        real(hop, turn, owned, now)

    code(stack, scheduling, "complete", complete)


@mutant("the same key is the same call of an update", within=20, part="updates")
def each_call_has_its_own_key(stack: ExitStack) -> None:
    real = LocalSignalDesk.send_update

    async def send(
        self: LocalSignalDesk, who: Identity, run: str, name: str, payload: bytes, key: str | None
    ) -> Any:
        return await real(self, who, run, name, payload, None)

    code(stack, LocalSignalDesk, "send_update", send)


@mutant("a replay does not answer an update again", within=60, part="updates")
def replays_answer_again(stack: ExitStack) -> None:
    real = served.Updates.deliver

    def deliver(self: served.Updates, seq: int, name: str, payload: bytes, answer: str | None) -> bool:
        return real(self, seq, name, payload, None)

    code(stack, served.Updates, "deliver", deliver)


Updates.checks = (I41_one_answer,)

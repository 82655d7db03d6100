"""Events, which some seeds play: senders repeat them to whichever process answers, one run waits for some of them, and others
start a run each, while processes die and commits get lost. Each event has one effect, and none is missed."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from msgspec import structs

from holdfast import continue_as_new, workflow
from holdfast.events import Event
from holdfast.lifecycle import RUN_ENDED
from holdfast.scheduler.scheduler import Scheduler
from holdfast.store import events as storing
from holdfast.store.verbs import Verb
from holdfast.supervisor.events import EventKeeper
from holdfast.wire.cloudevents import CloudEvent
from tests.simulation.mutants import code, mutant
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from holdfast.testing.world import Process
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.simulation import Simulation

RUN_ID = "waits-for-events"
ARRIVED = "SELECT id FROM events WHERE type = 'sim.sent' ORDER BY received_at, source, id"
TAKERS = "SELECT run_id, wait FROM event_takers WHERE source = ? AND id = ?"

AHEAD_S = 0.03
"""The run says that it began when its node believes it did. The clock of a node may be ahead of the store's by so much here."""

sent = Event("sim.sent", str)


@workflow
async def waits(many: int, pause_s: float, is_anew: bool, got: list[str]) -> list[str]:
    """Take so many events, with a pause between two of them: some come before they are waited for. If it is so drawn, each
    is taken by a new generation."""
    while len(got) < many:
        got.append(await sent.wait("one"))
        await asyncio.sleep(pause_s)
        if is_anew:
            continue_as_new(many, pause_s, is_anew, got)
    return got


@workflow(on="sim.made")
async def begins(id: str) -> str:
    return id


def I60_one_effect(checker: Checker, commit: Commit) -> Iterable[str]:
    """An event is in the store with all that it started. It sends a run one signal for each wait, and no more."""
    if "events" not in commit.tables and "event_takers" not in commit.tables:
        return
    execute = checker.connection.execute
    for source, name, kind in execute("SELECT source, id, type FROM events").fetchall():
        started = [run for run, wait in execute(TAKERS, (source, name)).fetchall() if not wait]
        if kind == "sim.made" and len(started) != 1:
            yield f"the event {name} has started {started}"
    for run_id, name, count in execute(
        "SELECT run_id, name, count(*) - count(DISTINCT payload) FROM signals WHERE name LIKE '$event:%' GROUP BY 1, 2"
    ).fetchall():
        if count:
            yield f"an event came twice to {run_id} as {name}"


class Events(Part):
    name = "events"
    share = 0.1
    goes_by_time = True
    known = (waits, begins)
    checks = (I60_one_effect,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._many = 0
        self._is_started = False
        self._sent: set[str] = set()
        self._started: dict[str, set[str]] = {}
        """By event, the runs that senders were answered."""

    def begin(self, simulation: Simulation) -> None:
        dice = self.dice
        self._many = dice.randint(1, 6)
        simulation.drive(self._start(simulation, dice.choice((0.0, 0.2, 1.0))))
        for number in range(self._many + dice.randint(0, 3)):
            kind = "sim.sent" if number < self._many else "sim.made"
            for _ in range(dice.randint(1, 3)):
                simulation.drive(self._send(simulation, kind, f"e{number}", dice.random() * 4))

    async def _start(self, simulation: Simulation, pause_s: float) -> None:
        simulation.limits_s[RUN_ID] = None
        await asyncio.sleep(self.dice.random())
        is_anew = self.dice.random() < 0.5
        await simulation.asked(
            lambda process: process.start(waits.using(id=RUN_ID), self._many, pause_s, is_anew, [])
        )
        self._is_started = True

    async def _send(self, simulation: Simulation, kind: str, name: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        while not self._is_started:  # what comes before the run began does not count  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await asyncio.sleep(AHEAD_S)
        while kind == "sim.made" and not _is_declared(simulation):  # noqa: ASYNC110  before that, it starts nothing
            await asyncio.sleep(0.1)
        event = CloudEvent(kind, "sim", name, json.dumps(name).encode(), "one")
        found = await simulation.asked(lambda process: _emitted(process, event))
        self._sent.add(name)
        if kind == "sim.made":
            self._started.setdefault(name, set()).update(found.started)
        simulation.sometimes("an event was sent" if found.is_new else "an event was sent again")
        if found.woke and kind == "sim.sent":
            simulation.sometimes("an event woke a run")

    def waits_for(self, simulation: Simulation) -> Iterator[str]:
        if not self._is_started:
            yield f"the start of {RUN_ID} was never answered"
        missing = {f"e{number}" for number in range(self._many)} - self._sent
        if missing:
            yield f"events {sorted(missing)} were never answered"

    def endings(self, simulation: Simulation) -> Iterator[str]:
        """The run that waits got each event once, in the order in which they came, and each event that starts a run has
        started one."""
        if simulation.parts.plays("retention"):
            return  # the runs may have been pruned
        run = simulation.checker.runs.get(RUN_ID)
        if run is None:
            yield f"I4 run {RUN_ID} was accepted and is lost"
            return
        if run.state == "succeeded":
            got: list[str] = json.loads(run.output or b"[]")
            came = [row[0] for row in simulation.checker.connection.execute(ARRIVED).fetchall()]
            if got != came or len(got) != self._many:
                yield f"G2 run {RUN_ID} got the events {got}, and {came} came, of {self._many}"
        elif run.state == "cancelled" and simulation.parts.plays("acts"):
            return  # an operator has cancelled it with others
        elif run.state in RUN_ENDED:
            yield f"G2 run {RUN_ID}, which waits for events, {run.state}: {run.error}"
        for name, runs in self._started.items():
            if len(runs) != 1 or not runs <= simulation.checker.runs.keys():
                yield f"G2 the event {name} has started {sorted(runs)}"


def _is_declared(simulation: Simulation) -> bool:
    """True if the leader has taken up what events of this type start."""
    return bool(simulation.checker.connection.execute("SELECT 1 FROM triggers").fetchall())


async def _emitted(process: Process, event: CloudEvent) -> Any:
    (found,) = await process.desk.events.emit(process.who, [event])
    if event.type == "sim.made" and not found.started:
        raise LookupError("no node has declared yet what this event starts")
    return found


@mutant("an event is known by its source and id, in the transaction that writes it", within=20, part="events")
def every_event_is_new(stack: ExitStack) -> None:
    real, numbers = storing.emit, itertools.count()

    async def emit(session: Any, arrivals: Any, *known: Any) -> Any:
        others = [
            one._replace(event=structs.replace(one.event, id=f"{one.event.id}/{next(numbers)}"))
            for one in arrivals
        ]
        return await real(session, others, *known)

    code(stack, storing, "emit", emit)


@mutant("whoever begins to wait looks for what came before", within=20, part="events")
def nobody_looks_back(stack: ExitStack) -> None:
    code(stack, Scheduler, "_look_soon", lambda self, waits: None)

    async def look_again(self: Any) -> int:
        return 0

    code(stack, EventKeeper, "look_again", look_again)


@mutant("what a run has got is noted with what it is sent", within=100, part="events")
def takers_are_not_noted(stack: ExitStack) -> None:
    class Forgetful:
        def __init__(self, session: Any) -> None:
            self._session = session

        def __getattr__(self, name: str) -> Any:
            return getattr(self._session, name)

        async def each(self, verb: Verb, rows: Any, *same: Any) -> int:
            return 0 if verb is Verb.add_event_takers else await self._session.each(verb, rows, *same)

    async def send_missed(session: Any, awaited: Any) -> Any:
        return await real(Forgetful(session), awaited)

    real = storing._send_missed
    code(stack, storing, "_send_missed", send_missed)
    code(stack, storing, "signal_key", lambda source, name: f"{source}{name}{object()}")

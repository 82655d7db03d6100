"""Composed triggers, which some seeds play: senders repeat the parts of a few occasions to whichever process answers, a time is the
last part of one, and one is never complete. An operator starts one without what is missing, and drops another. Processes die and
commits get lost meanwhile. Each occasion starts one run, and the one that was dropped none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast import workflow
from holdfast.errors import WrongState
from holdfast.events import all_of, several, when
from holdfast.occasions import Collected, counted, is_complete, read_composition
from holdfast.schedules import every
from holdfast.store import events as sending
from holdfast.store import occasions as storing
from holdfast.store.verbs import Verb
from holdfast.supervisor.occasions import OccasionKeeper
from holdfast.testing.world import EPOCH
from holdfast.wire.cloudevents import CloudEvent
from tests.simulation.mutants import code, mutant
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from holdfast.testing.world import Process
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.simulation import Simulation

YEAR = f"{datetime.fromtimestamp(EPOCH, UTC):%Y}"
TIMED = f"timed@when:{YEAR}"
OCCASIONS = "SELECT o.id, o.state, c.body, o.digest = c.digest FROM occasions o JOIN composed c ON c.name = o.trigger_name"
HELD = "SELECT occasion, part, source, id, at FROM collected WHERE occasion = ?"
RUNS = "SELECT id FROM runs WHERE id LIKE '%@when:%' AND retry_of IS NULL AND forked_from IS NULL"


@workflow(name="sim.pairs")
async def pairs(arrived: dict[str, Any]) -> dict[str, Any]:
    return arrived


@workflow(name="sim.timed")
async def timed(arrived: dict[str, Any]) -> dict[str, Any]:
    return arrived


@workflow(name="sim.never")
async def never(arrived: dict[str, Any]) -> dict[str, Any]:
    return arrived


@workflow(name="sim.handed")
async def handed(arrived: dict[str, Any]) -> dict[str, Any]:
    return arrived


when(all_of(h="sim.h", i="sim.i"), within=3600)(handed)
when(all_of(a="sim.a", b=several("sim.b", 2)), within=3600)(pairs)
when(all_of(c="sim.c", time=every("2s")), time_as="%Y", within=3600)(timed)
when(all_of(a="sim.a", d="sim.d"), within=2, otherwise="run")(never)


def I65_complete_is_started(checker: Checker, commit: Commit) -> Iterable[str]:
    """An occasion that is complete has been started in the same commit. One that was started has its run, and each such run
    an occasion that was started."""
    if not commit.tables & {"occasions", "collected"}:
        return
    execute = checker.connection.execute
    started = set()
    for occasion, state, body, is_current in execute(OCCASIONS).fetchall():
        held = [Collected(*row) for row in execute(HELD, (occasion,)).fetchall()]
        if state == "started":
            started.add(occasion)
        elif is_current and is_complete(read_composition(body).needs, counted(held)):
            yield f"the occasion {occasion} is complete and {state}"
    runs = {row[0] for row in execute(RUNS).fetchall()}
    lost = set() if checker.world.parts.plays("retention") else started - runs
    if lost or runs - started:
        yield f"the occasions {sorted(started)} were started, and there are the runs {sorted(runs)}"


class Occasions(Part):
    name = "occasions"
    share = 0.1
    goes_by_time = True
    known = (pairs, timed, never, handed)
    checks = (I65_complete_is_started,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._wanted: set[str] = set()
        self._answered: set[str] = set()

    def begin(self, simulation: Simulation) -> None:
        dice = self.dice
        events = [("sim.c", YEAR, "c")]
        for number in range(dice.randint(1, 3)):
            events += [(f"sim.{kind[0]}", f"p{number}", f"{kind}{number}") for kind in ("a", "b-", "bb-")]
        for verb in ("start", "drop"):
            events.append(("sim.h", verb, f"h-{verb}"))
            simulation.drive(self._end(simulation, verb, dice.random() * 4))
        for kind, subject, name in events:
            self._wanted.add(name)
            for _ in range(dice.randint(1, 3)):
                simulation.drive(self._send(simulation, kind, subject, name, dice.random() * 4))

    async def _send(self, simulation: Simulation, kind: str, subject: str, name: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        while not _is_declared(simulation):  # noqa: ASYNC110  before that, nobody takes it
            await asyncio.sleep(0.1)
        event = CloudEvent(kind, "sim", name, json.dumps(name).encode(), subject)
        found = await simulation.asked(lambda process: _emitted(process, event))
        self._answered.add(name)
        if found.is_new and found.started:
            simulation.sometimes("an event was the last part of an occasion")

    async def _end(self, simulation: Simulation, verb: str, after_s: float) -> None:
        """Let an operator end an occasion, who looks first, and again whenever nobody answers."""
        await asyncio.sleep(after_s)
        while (state := await simulation.asked(lambda process: _ended(process, verb))) in {  # noqa: ASYNC110  it asks the store
            "",
            "open",
        }:
            await asyncio.sleep(0.2)
        simulation.sometimes(f"an operator ended an occasion: {state}")

    def waits_for(self, simulation: Simulation) -> Iterator[str]:
        if missing := self._wanted - self._answered:
            yield f"events {sorted(missing)} were never answered"
            return
        states = dict(simulation.checker.connection.execute("SELECT id, state FROM occasions").fetchall())
        for occasion, state in sorted(states.items()):
            if state == "open":
                yield f"the occasion {occasion} is still open"

    def endings(self, simulation: Simulation) -> Iterator[str]:
        """Each occasion has given its run what arrived, once."""
        if simulation.parts.plays("retention"):
            return  # the runs may have been pruned
        for number in range(sum(name.startswith("a") for name in self._wanted)):
            wanted = {"a": f"a{number}", "b": {f"b-{number}", f"bb-{number}"}}
            yield from self._ended(simulation, f"pairs@when:p{number}", wanted)
            yield from self._ended(simulation, f"never@when:p{number}", {"a": f"a{number}"})
        yield from self._ended(simulation, TIMED, {"c": "c"})
        yield from self._ended(simulation, "handed@when:start", {"h": "h-start"})
        if "handed@when:drop" in simulation.checker.runs:
            yield "G2 an occasion that was dropped has started a run"

    def _ended(self, simulation: Simulation, run_id: str, wanted: dict[str, Any]) -> Iterator[str]:
        run = simulation.checker.runs.get(run_id)
        if run is None:
            yield f"G2 the occasion {run_id} has started nothing"
            return
        if run.state != "succeeded":
            return  # an operator has cancelled it, or held its workflow
        if "time" in (got := json.loads(run.output or b"{}")):
            simulation.sometimes("a time arrived at an occasion")
        found = {
            name: set(one) if isinstance(one, list) else one for name, one in got.items() if name != "time"
        }
        if found != wanted:
            yield f"G2 run {run_id} got {found}, and {wanted} arrived"


def _is_declared(simulation: Simulation) -> bool:
    return bool(simulation.checker.connection.execute("SELECT 1 FROM composed").fetchall())


async def _ended(process: Process, verb: str) -> str:
    """End the occasion of this verb if it is open. Return its state before."""
    desk, occasion = process.desk.triggers, f"handed@when:{verb}"
    found = {one.id: one for one in await desk.occasions(process.who, "handed")}
    if occasion not in found:
        return ""
    if found[occasion].state == "open":
        try:
            await (desk.start if verb == "start" else desk.drop)(process.who, occasion, "by hand")
        except WrongState:
            pass  # a commit that got lost, or so it seemed
    return found[occasion].state


async def _emitted(process: Process, event: CloudEvent) -> Any:
    (found,) = await process.desk.events.emit(process.who, [event])
    return found


class Careless:
    """A session that leaves something out."""

    def __init__(self, session: Any, verb: Verb) -> None:
        self._session, self._verb = session, verb

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def all(self, verb: Verb, rows: Any, *same: Any) -> Any:
        return [] if verb is self._verb else await self._session.all(verb, rows, *same)

    async def rows(self, verb: Verb, *values: Any) -> Any:
        return [] if verb is self._verb else await self._session.rows(verb, *values)


@mutant("whoever brings a part looks at what has arrived before", within=20, part="occasions")
def earlier_parts_are_not_seen(stack: ExitStack) -> None:
    real = storing.collect

    async def collect(session: Any, comings: Any) -> Any:
        return await real(Careless(session, Verb.collected_of), comings)

    code(stack, storing, "collect", collect)
    code(stack, sending, "collect", collect)


@mutant("the last part and the start are one transaction", within=20, part="occasions")
def complete_occasions_do_not_start(stack: ExitStack) -> None:
    real = storing._conclude

    async def conclude(session: Any, judged: Any) -> Any:
        return await real(Careless(session, Verb.start_runs), judged)

    code(stack, storing, "_conclude", conclude)


@mutant("who drops an occasion ends it", within=20, part="occasions")
def dropped_occasions_stay_open(stack: ExitStack) -> None:
    async def drop_occasion(self: Any, occasion: str, actor: str, note: str) -> None:
        """Forget what was asked."""

    code(stack, storing.Occasions, "drop_occasion", drop_occasion)


@mutant("the leader ends what was not complete in time", within=60, part="occasions")
def nobody_ends_occasions(stack: ExitStack) -> None:
    async def mind(self: Any, epoch: int) -> int:
        return 0

    code(stack, OccasionKeeper, "mind", mind)

"""Random workflows. A plan is a small tree that is drawn from the seed. One workflow walks the tree, and a pure function
says which result it must have.

Every step has its own tag. The ledger, which is outside the product, finds the effects of a step by this tag.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import (
    Retry,
    RetryIn,
    Signal,
    Stop,
    continue_as_new,
    here,
    keep,
    now,
    publish,
    saga,
    set_progress,
    step,
    undo_with,
    workflow,
)
from holdfast.errors import Conflict, InvalidInput
from holdfast.workflow.step import Step
from tests.simulation.ledger import ledger

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

QUICK = Retry(attempts=3, delay=0.1, max_delay=0.4)
ANY = "?"
"""In an expected result: any value, because it depends on timing."""
Plan = list[Any]

note = Signal("note", str)


# --- steps ------------------------------------------------------------------------------------------------------------


class ReplyLost(ConnectionError):
    """The service did its work, and its reply got lost."""


async def _do(tag: int, how: str, *, shop: bool = False) -> int:
    """Execute a step: call the shop if it needs it, and have the step's effect."""
    simulation = ledger.simulation
    node = simulation.began(tag)
    simulation.use_place(node)
    try:
        if shop:
            await simulation.call_shop()
        return await _have_effect(simulation, tag, how)
    finally:
        simulation.free_place(node)


async def _have_effect(simulation: Simulation, tag: int, how: str) -> int:
    """Have the effect of a step, once per key as a good service does, or fail as `how` says."""
    match how:
        case "flaky" if here.attempt <= 2:
            raise ConnectionError("not yet")
        case "put off" if here.attempt == 1:
            raise RetryIn(0.1)
        case "stop":
            await asyncio.sleep(0.02)
            raise Stop("no")
        case "mended later" if "~" not in here.run_id:
            raise Stop("this must be mended")
        case "saves":
            simulation.looks_for_checkpoint()
            if here.saved is None:
                await here.save(tag)
                simulation.saved(tag)
                here.beat(0.5, "saved")
                if (drawn := simulation.dice.random()) < 0.3:
                    raise ConnectionError("after the checkpoint")
                if drawn < 0.7:
                    await asyncio.sleep(drawn * 2)
                if drawn < 0.5:
                    raise ConnectionError("after the checkpoint and more")
            else:
                simulation.sometimes("an attempt found the checkpoint of an earlier one")
        case "puts off":
            raise RetryIn(0.1)
        case "never ends":
            await asyncio.sleep(30)
        case "hangs" if here.attempt == 1:
            await asyncio.sleep(30)
        case "clings" if here.attempt == 1:
            await _cling()
        case "slow":
            here.beat(0.5, "half")
            await asyncio.sleep(0.3 + simulation.dice.random())
        case "slower":
            await asyncio.sleep(
                0.8 + simulation.dice.random() if here.attempt == 1 else simulation.dice.random() * 0.8
            )
        case "stops late":
            await asyncio.sleep(0.6 + simulation.dice.random())
            raise Stop("no")
        case "first stops late" if here.attempt == 1:
            await asyncio.sleep(0.6 + simulation.dice.random())
            raise Stop("not here")
        case "first fails late" if here.attempt == 1:
            await asyncio.sleep(0.6 + simulation.dice.random())
            raise ConnectionError("not here")
        case "broken" if not simulation.healed:
            raise ConnectionError("not while things go wrong")
        case "kills" if not simulation.healed:
            await simulation.kill_process()
        case "quick":
            pass
        case _:
            await asyncio.sleep(simulation.dice.random() * 0.2)
    simulation.did(here.key, tag)
    if how == "unsure" and here.attempt == 1:
        await asyncio.sleep(0.05)
        raise ReplyLost("the reply was lost")
    if how == "lingers":
        await asyncio.sleep(simulation.dice.random())
    return _unstorable() if how == "unstorable" else tag


async def _cling() -> None:
    """Go on, whoever cancels this, until the attempt has ended in the store."""
    simulation = ledger.simulation
    while simulation.is_attempted():
        try:
            await asyncio.sleep(0.5)
        except asyncio.CancelledError:
            simulation.sometimes("a step did not end when it was cancelled")
    raise asyncio.CancelledError


def _unstorable() -> Any:
    """Return a text, which cannot be stored because the step declares a number."""
    return "not a number"


async def _undo(done: int | None, tag: int, how: str, *, shop: bool = False) -> None:
    simulation = ledger.simulation
    node = simulation.began(tag)
    simulation.use_place(node)
    try:
        if shop:
            await simulation.call_shop()
        await _undo_effect(simulation, done, tag, how)
    finally:
        simulation.free_place(node)


async def _undo_effect(simulation: Simulation, done: int | None, tag: int, how: str) -> None:
    if simulation.dice.random() < 0.2:
        await asyncio.sleep(simulation.dice.random() * 0.3)
    if how == "gives up" and not simulation.healed:
        raise Stop("this cannot be undone")
    if simulation.dice.random() < 0.1 and not simulation.healed:
        raise ConnectionError("not now")
    simulation.undid(here.undoes, tag, done)
    if simulation.dice.random() < 0.2:
        await asyncio.sleep(simulation.dice.random() * 0.3)


@step(retry=QUICK, timeout=2.5)
async def work(tag: int, how: str) -> int:
    done = await _do(tag, how)
    if how == "no reply" and not ledger.simulation.healed:
        raise ReplyLost("no reply comes")
    return done


@step(retry=Retry(attempts=3, delay=0.1, max_delay=0.4, jitter="none"), timeout=2.5)
async def book(tag: int, how: str) -> int:
    return await _do(tag, how)


@book.undo(retry=Retry(attempts=6, delay=0.1, max_delay=0.3))
async def unbook(done: int | None, tag: int, how: str) -> None:
    await _undo(done, tag, how)


@step(retry=Retry(attempts=2, delay=0.1), timeout=2.5, undo_failed=True)
async def pay(tag: int, how: str) -> int:
    return await _do(tag, how)


@pay.undo(retry=Retry(attempts=6, delay=0.1, max_delay=0.3))
async def unpay(done: int | None, tag: int, how: str) -> None:
    await _undo(done, tag, how)


@step(retry=Retry(attempts=3, delay=0.1, max_delay=0.4, jitter="equal"), timeout=2.5)
def compute(tag: int, how: str) -> int:
    """A plain function. In a real process, an agent runs it in a thread. The simulation has no threads."""
    simulation = ledger.simulation
    simulation.began(tag)
    if how in ("stop", "stops late", "never ends"):
        raise Stop("no")
    if how == "puts off":
        raise RetryIn(0.1)
    if how == "flaky" and here.attempt <= 1:
        raise ConnectionError("not yet")
    simulation.did(here.key, tag)
    return _unstorable() if how == "unstorable" else tag


@step(retry=Retry(attempts=6, delay=0.1, max_delay=0.3))
async def tidy(tag: int) -> None:
    ledger.simulation.began(tag)


# Only some seeds use the steps below: see `parts.py`.

SLOW = Retry(attempts=3, delay=0.8)


@step(retry=SLOW, timeout=2.5, hedge=True)
async def fetch(tag: int, how: str) -> int:
    return await _do(tag, how)


@step(retry=SLOW, timeout=2.5, hedge=True, undo_failed=True)
async def rent(tag: int, how: str) -> int:
    return await _do(tag, how)


@rent.undo(retry=Retry(attempts=6, delay=0.1, max_delay=0.3))
async def unrent(done: int | None, tag: int, how: str) -> None:
    await _undo(done, tag, how)


@step(retry=Retry(attempts=2, delay=0.1, quarantine=True), timeout=1.5, hedge=True)
async def send(tag: int, how: str) -> int:
    """When its attempts are spent, this step waits in quarantine for a person."""
    return await _do(tag, how)


@send.undo(retry=Retry(attempts=6, delay=0.1, max_delay=0.3))
async def unsend(done: int | None, tag: int, how: str) -> None:
    await _undo(done, tag, how)


PATIENT = Retry(attempts=8, delay=0.1, max_delay=0.4)


@step(retry=PATIENT, timeout=2.5, depends="shop", undo_failed=ReplyLost)
async def order(tag: int, how: str) -> int:
    return await _do(tag, how, shop=True)


@order.undo(retry=PATIENT, depends="shop")
async def unorder(done: int | None, tag: int, how: str) -> None:
    await _undo(done, tag, how, shop=True)


@step(retry=PATIENT, timeout=2.5, depends="shop", hedge=True)
async def ask(tag: int, how: str) -> int:
    return await _do(tag, how, shop=True)


NEWER: tuple[Step[Any, Any], ...] = (fetch, rent, unrent, send, unsend, order, unorder, ask)
HEDGED = (fetch, rent, send, ask)
STEPS = {
    "work": work, "book": book, "pay": pay, "compute": compute, "fetch": fetch, "rent": rent, "send": send, "order": order,
    "ask": ask,
}  # fmt: skip


UNDOABLE = {"book", "pay"}
"""Steps that have an undo."""


# --- the workflow -----------------------------------------------------------------------------------------------------


class Refused(Exception):
    """The exception with which a plan fails on purpose."""


async def _walk(plan: Plan) -> Any:
    """Do what a plan says, and return its result."""
    match plan:
        case ["do", name, tag, how]:
            return await STEPS[name](tag, how)
        case ["seq", parts]:
            return [await _walk(part) for part in parts]
        case ["par", parts]:
            return list(await asyncio.gather(*[_walk(part) for part in parts]))
        case ["group", parts]:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_walk(part)) for part in parts]
            return [task.result() for task in tasks]
        case ["race", parts]:
            tasks = [asyncio.ensure_future(_walk(part)) for part in parts]
            done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            return next(task.result() for task in tasks if task in done)
        case ["limit", seconds, part]:
            try:
                async with asyncio.timeout(seconds):
                    return await _walk(part)
            except TimeoutError:
                return "late"
        case ["nap", seconds]:
            began = now()
            await asyncio.sleep(seconds)
            ledger.simulation.napped(seconds, (now() - began).total_seconds())
            return None
        case ["wait", limit]:
            try:
                return await note.wait(limit)
            except TimeoutError:
                return "no signal"
        case ["send", run_id, key]:
            await note.send(run_id, key, key)
            return None
        case ["child", part]:
            return json.loads(await program(json.dumps(part)))
        case ["named", run_id, joins]:
            child = program.using(id=run_id, existing="join") if joins else program.using(id=run_id)
            try:
                return json.loads(await child(json.dumps(ledger.simulation.plan_of(run_id))))
            except Conflict:
                return "conflict"
        case ["saga", part, fails]:
            try:
                async with saga():
                    value = await _walk(part)
                    if fails:
                        raise Refused
                    return value
            except Refused:
                return "undone"
        case ["try", part]:
            try:
                return await _walk(part)
            except (Stop, InvalidInput):
                return "stopped"
        case ["keep"]:
            keep()
            return None
        case ["undo with", tag]:
            undo_with(tidy, tag)
            return None
        case ["publish", text]:
            publish("message", text)
            set_progress(0.5, text)
            return None
        case ["fail"]:
            raise Refused
        case [kind, *_]:
            return await CASES[kind].walk(plan)
        case _:
            raise AssertionError(plan)


class Case(NamedTuple):
    """A kind of plan that a part of the simulation adds. See `parts/part.py`."""

    draw: Callable[[Draw, int, bool], Plan]
    """Draws such a plan, for a depth, and bounded or not."""
    walk: Callable[[Plan], Awaitable[Any]]
    foretell: Callable[[Plan], Any] = lambda plan: ANY
    """Returns the expected result, or raises MustFail."""


CASES: dict[str, Case] = {}


@workflow
async def program(plan: str) -> str:
    tree = json.loads(plan)
    match tree:
        case ["again", first, then]:
            await _walk(first)
            continue_as_new(json.dumps(then))
    return json.dumps(await _walk(tree))


# --- expected results -------------------------------------------------------------------------------------------------


WITHOUT_END = ("never ends", "puts off")
"""Behaviours with which a step uses up its attempts."""
SHORT = ("grind", "press")
"""Steps that do not behave so: see `parts/threads.py`."""


class MustFail(Exception):
    """A run with this plan must not succeed."""


def expected_result(plan: Plan) -> Any:
    """Return the result of a run with this plan that succeeds. Raise MustFail if such a run must not succeed."""
    match plan:
        case ["do", name, tag, how]:
            if how in ("stop", "stops late", "unstorable") or (how in WITHOUT_END and name not in SHORT):
                raise MustFail
            return tag
        case ["seq" | "par" | "group", parts]:
            return [expected_result(part) for part in parts]
        case ["race" | "limit", *_]:
            return ANY
        case ["wait", limit]:
            return WaitResult(limit is not None)
        case ["child", part]:
            return ChildResult(expected_result(part), _may_stick(part))
        case ["again", first, part]:
            expected_result(first)
            return expected_result(part)
        case ["named", run_id, _]:
            return NamedResult(run_id)
        case ["saga", part, fails]:
            value = expected_result(part)
            return "undone" if fails else SagaResult(value)
        case ["try", ["do", _, _, "first stops late"]]:
            return ANY  # its twin may have been first
        case ["try", part] if "mended later" in json.dumps(part):
            return ANY  # it stops in a run that is no retry
        case ["try", part]:
            try:
                return expected_result(part)
            except MustFail:
                return "stopped"
        case ["fail"]:
            raise MustFail
        case [str() as kind, *_] if kind in CASES:
            return CASES[kind].foretell(plan)
        case _:
            return None


class NamedResult(NamedTuple):
    """In an expected result: the result of the run with this id, or "conflict" if the store refused that run as a child."""

    run_id: str


class ChildResult(NamedTuple):
    """In an expected result: the result of a child, which gets signals of its own. A child that may stick may also
    raise Refused."""

    value: Any
    may_stick: bool


class WaitResult(NamedTuple):
    """In an expected result: the value of a signal that the run got, or "no signal" if the wait had a limit."""

    is_limited: bool


class SagaResult(NamedTuple):
    """In an expected result: the value of a saga, or "undone" if a run that the saga waits for raised Refused."""

    value: Any


def _may_stick(plan: Any) -> bool:
    """True if a run of this plan may get stuck because a saga cannot undo its part. A person then moves it on, and it
    ends undone."""
    if not isinstance(plan, list):
        return False
    if plan[:1] == ["saga"] and plan[2] and "gives up" in json.dumps(plan[1]):
        return True
    return any(map(_may_stick, plan))


def _may_refuse(expected: Any) -> bool:
    """True if a run that the code waits for here may raise Refused, which ends the saga around it."""
    match expected:
        case NamedResult(run_id):
            try:
                expected_result(ledger.simulation.plan_of(run_id))
            except MustFail:
                return True
            return False
        case SagaResult() | WaitResult():
            return False
        case ChildResult(value, may_stick):
            return may_stick or _may_refuse(value)
        case [*parts]:
            return any(map(_may_refuse, parts))
    return bool(expected == ANY)


SKIPPED = -1
"""The result that operators give to the steps they skip."""


def matches(result: Any, expected: Any, heard: list[str] | None = None) -> bool:
    """True if a run that succeeded may have this result. `heard` gets what its waits returned."""
    if expected == ANY or result == SKIPPED:
        return True
    if isinstance(expected, WaitResult):
        if result == "no signal":
            return expected.is_limited
        if heard is not None:
            heard.append(result)
        return isinstance(result, str)
    if isinstance(expected, NamedResult):
        if result == "conflict":
            return True
        try:
            return matches(result, expected_result(ledger.simulation.plan_of(expected.run_id)))
        except MustFail:
            return False
    if isinstance(expected, ChildResult):
        return matches(result, expected.value)
    if isinstance(expected, SagaResult):
        return (result == "undone" and _may_refuse(expected.value)) or matches(result, expected.value, heard)
    if isinstance(expected, list):
        return (
            isinstance(result, list)
            and len(result) == len(expected)
            and all(matches(one, other, heard) for one, other in zip(result, expected, strict=True))
        )
    return bool(result == expected)


def signals_awaited(plan: Any) -> int:
    """Return how many signals a plan waits for."""
    if not isinstance(plan, list):
        return 0
    if plan[:1] == ["wait"]:
        return 1
    return sum(signals_awaited(part) for part in plan)


# --- drawing plans ----------------------------------------------------------------------------------------------------

USUAL = ("work", "book", "book", "pay", "compute")
"""Steps that all seeds draw from. One that is listed twice is drawn twice as often."""
BEHAVIOURS = (
    "ok",
    "ok",
    "quick",
    "quick",
    "quick",
    "flaky",
    "put off",
    "slow",
    "saves",
    "unsure",
    "lingers",
    "hangs",
    "gives up",
)


class Draw:
    """Draws plans. Each step has its own tag."""

    def __init__(
        self,
        dice: Random,
        others: list[str],
        steps: tuple[str, ...] = USUAL,
        behaviours: tuple[str, ...] = BEHAVIOURS,
        named: tuple[str, ...] = (),
        kinds: tuple[str, ...] = (),
    ) -> None:
        """Runs may send signals to `others`, and may start or join those in `named` as children. `kinds` are drawn beside
        the kinds of parts that all seeds draw from."""
        self.dice, self._others, self._named = dice, others, named
        self._steps, self._behaviours = steps, behaviours
        self.tags = 0
        self._kinds = dice.sample(
            (
                "par",
                "group",
                "race",
                "limit",
                "nap",
                "wait",
                "child",
                "saga",
                "try",
                "keep",
                "undo with",
                "publish",
                "send",
            ),
            dice.randint(2, 6),
        )
        self._kinds += kinds
        self._stops = dice.random() < 0.3

    def program(self) -> Plan:
        """Draw a whole workflow. Some workflows fail at their end, or continue as new."""
        dice = self.dice
        parts = [self.part(dice.randint(1, 3), bounded=False) for _ in range(dice.randint(1, 4))]
        plan: Plan = ["seq", parts]
        if dice.random() < 0.35:
            parts.append(["fail"])
        if dice.random() < 0.12:
            then = [self.do(), self.do()]
            if dice.random() < 0.5:
                then.insert(0, ["wait", None])
                parts.append(["wait", None])
            return ["again", plan, ["seq", then]]
        return plan

    def wide(self) -> Plan:
        """Draw a whole workflow that begins with some parallel steps. So more steps run in the same time."""
        plan = self.program()
        first = plan[1] if plan[0] == "again" else plan
        first[1].insert(0, ["par", [self.do() for _ in range(self.dice.randint(2, 3))]])
        return plan

    def bounded(self) -> Plan:
        """Draw a workflow that waits for no signal without a time limit, because that signal may never come."""
        return ["seq", [self.part(1, bounded=True) for _ in range(self.dice.randint(1, 3))]]

    def do(self) -> Plan:
        dice = self.dice
        self.tags += 1
        name = dice.choice(self._steps)
        how = dice.choice(self._behaviours)
        if self._stops and dice.random() < 0.15:
            how = "stop"
        return ["do", name, self.tags, how]

    def part(self, depth: int, *, bounded: bool) -> Plan:
        """Draw a part of a workflow. A bounded part waits for no signal without a time limit."""
        dice = self.dice
        kind = dice.choice(self._kinds) if depth > 0 and dice.random() < 0.6 else "do"
        match kind:
            case "par" | "group":
                return [kind, [self.part(depth - 1, bounded=bounded) for _ in range(dice.randint(2, 3))]]
            case "race":
                return [
                    "race",
                    [self.part(depth - 1, bounded=bounded), ["nap", dice.choice((0.05, 0.3, 1.0))]],
                ]
            case "limit":
                return ["limit", dice.choice((0.1, 0.5, 2.0)), self.part(depth - 1, bounded=bounded)]
            case "nap":
                return ["nap", dice.choice((0.01, 0.2, 1.0, 2.0))]
            case "wait":
                return ["wait", dice.choice((0.3, 1.0)) if bounded or dice.random() < 0.5 else None]
            case "send" if self._others:
                self.tags += 1
                return ["send", dice.choice(self._others), f"sent {self.tags}"]
            case "child":
                parts = [self.part(depth - 1, bounded=True) for _ in range(dice.randint(1, 2))]
                return ["child", ["seq", parts]]
            case "named":
                named = ["named", dice.choice(self._named), dice.random() < 0.6]
                return ["limit", dice.choice((0.3, 1.0)), named] if dice.random() < 0.4 else named
            case "saga":
                return [
                    "saga",
                    ["seq", [self.do(), self.part(depth - 1, bounded=True)]],
                    dice.random() < 0.6,
                ]
            case "try":
                return ["try", self.do()]
            case "keep":
                return ["keep"]
            case "undo with":
                self.tags += 1
                return ["undo with", self.tags]
            case "publish":
                return ["publish", f"message {dice.randint(1, 9)}"]
        if kind in CASES:
            return CASES[kind].draw(self, depth, bounded)
        return self.do()

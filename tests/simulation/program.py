"""Random workflows. A plan is a small tree drawn from the seed; one workflow walks it, one pure function foretells its result.

Every step has a tag of its own, by which the ledger outside of the product knows what it did.
"""

from __future__ import annotations

import asyncio
import json
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
"""In a foretold result: whatever came of a race."""
Plan = list[Any]

note = Signal("note", str)


# --- steps ------------------------------------------------------------------------------------------------------------


class ReplyLost(ConnectionError):
    """The call was made."""


async def _act(tag: int, how: str, *, shop: bool = False) -> int:
    """What a step does outside: once per key, as a good service would."""
    now = ledger.now
    place = now.began(tag)
    now.takes_place(place)
    try:
        if shop:
            await now.call_shop()
        return await _do(now, tag, how)
    finally:
        now.left(place)


async def _do(now: Simulation, tag: int, how: str) -> int:
    match how:
        case "flaky" if here.attempt <= 2:
            raise ConnectionError("not yet")
        case "put off" if here.attempt == 1:
            raise RetryIn(0.1)
        case "stop":
            await asyncio.sleep(0.02)
            raise Stop("no")
        case "saves":
            if here.saved is None:
                await here.save(tag)
                if now.dice.random() < 0.5:
                    raise ConnectionError("after the checkpoint")
            else:
                now.sometimes("an attempt found the checkpoint of an earlier one")
        case "hangs" if here.attempt == 1:
            await asyncio.sleep(30)
        case "slow":
            here.beat(0.5, "half")
            await asyncio.sleep(0.3 + now.dice.random())
        case "slower":
            await asyncio.sleep(0.8 + now.dice.random() if here.attempt == 1 else now.dice.random() * 0.8)
        case "stops late":
            await asyncio.sleep(0.6 + now.dice.random())
            raise Stop("no")
        case "first stops late" if here.attempt == 1:
            await asyncio.sleep(0.6 + now.dice.random())
            raise Stop("not here")
        case "first fails late" if here.attempt == 1:
            await asyncio.sleep(0.6 + now.dice.random())
            raise ConnectionError("not here")
        case "broken" if not now.healed:
            raise ConnectionError("not while things go wrong")
        case "kills" if not now.healed:
            await now.poisoned()
        case "quick":
            pass
        case _:
            await asyncio.sleep(now.dice.random() * 0.2)
    now.did(here.key, tag)
    if how == "unsure" and here.attempt == 1:
        await asyncio.sleep(0.05)
        raise ReplyLost("the reply was lost")
    if how == "lingers":
        await asyncio.sleep(now.dice.random())
    return _unstorable() if how == "unstorable" else tag


def _unstorable() -> Any:
    return "what is declared as a number"


async def _take_back(done: int | None, tag: int, how: str, *, shop: bool = False) -> None:
    now = ledger.now
    place = now.began(tag)
    now.takes_place(place)
    try:
        if shop:
            await now.call_shop()
        await _undo(now, tag, how)
    finally:
        now.left(place)


async def _undo(now: Simulation, tag: int, how: str) -> None:
    if now.dice.random() < 0.2:
        await asyncio.sleep(now.dice.random() * 0.3)
    if how == "gives up" and not now.healed:
        raise Stop("this cannot be taken back")
    if now.dice.random() < 0.1 and not now.healed:
        raise ConnectionError("not now")
    now.undid(here.undoes, tag)
    if now.dice.random() < 0.2:
        await asyncio.sleep(now.dice.random() * 0.3)


@step(retry=QUICK, timeout=2.5)
async def work(tag: int, how: str) -> int:
    done = await _act(tag, how)
    if how == "no reply" and not ledger.now.healed:
        raise ReplyLost("no reply comes")
    return done


@step(retry=QUICK, timeout=2.5)
async def book(tag: int, how: str) -> int:
    return await _act(tag, how)


@book.undo(retry=Retry(attempts=6, delay=0.1, max_delay=0.3))
async def unbook(done: int | None, tag: int, how: str) -> None:
    await _take_back(done, tag, how)


@step(retry=Retry(attempts=2, delay=0.1), timeout=2.5, undo_failed=True)
async def pay(tag: int, how: str) -> int:
    return await _act(tag, how)


@pay.undo(retry=Retry(attempts=6, delay=0.1, max_delay=0.3))
async def unpay(done: int | None, tag: int, how: str) -> None:
    await _take_back(done, tag, how)


@step(retry=QUICK, timeout=2.5)
def compute(tag: int, how: str) -> int:
    """In a thread, where threads are."""
    now = ledger.now
    now.began(tag)
    if how in ("stop", "stops late"):
        raise Stop("no")
    if how == "flaky" and here.attempt <= 1:
        raise ConnectionError("not yet")
    now.did(here.key, tag)
    return _unstorable() if how == "unstorable" else tag


@step(retry=Retry(attempts=6, delay=0.1, max_delay=0.3))
async def tidy(tag: int) -> None:
    now = ledger.now
    now.began(tag)
    now.by_hand(here.key, tag)


# What only some seeds play: see `parts`.

SLOW = Retry(attempts=3, delay=0.8)


@step(retry=SLOW, timeout=2.5, hedge=True)
async def fetch(tag: int, how: str) -> int:
    return await _act(tag, how)


@step(retry=SLOW, timeout=2.5, hedge=True, undo_failed=True)
async def rent(tag: int, how: str) -> int:
    return await _act(tag, how)


@rent.undo(retry=Retry(attempts=6, delay=0.1, max_delay=0.3))
async def unrent(done: int | None, tag: int, how: str) -> None:
    await _take_back(done, tag, how)


@step(retry=Retry(attempts=2, delay=0.1, quarantine=True), timeout=1.5, hedge=True)
async def send(tag: int, how: str) -> int:
    """Waits for a person when its attempts are spent."""
    return await _act(tag, how)


@send.undo(retry=Retry(attempts=6, delay=0.1, max_delay=0.3))
async def unsend(done: int | None, tag: int, how: str) -> None:
    await _take_back(done, tag, how)


PATIENT = Retry(attempts=8, delay=0.1, max_delay=0.4)


@step(retry=PATIENT, timeout=2.5, depends="shop", undo_failed=ReplyLost)
async def order(tag: int, how: str) -> int:
    return await _act(tag, how, shop=True)


@order.undo(retry=PATIENT, depends="shop")
async def unorder(done: int | None, tag: int, how: str) -> None:
    await _take_back(done, tag, how, shop=True)


@step(retry=PATIENT, timeout=2.5, depends="shop", hedge=True)
async def ask(tag: int, how: str) -> int:
    return await _act(tag, how, shop=True)


NEWER: tuple[Step[Any, Any], ...] = (fetch, rent, unrent, send, unsend, order, unorder, ask)
HEDGED = (fetch, rent, send, ask)
STEPS = {
    "work": work, "book": book, "pay": pay, "compute": compute, "fetch": fetch, "rent": rent, "send": send, "order": order,
    "ask": ask,
}  # fmt: skip


# --- the workflow -------------------------------------------------------------------------------------------------------


class Refused(Exception):
    pass


async def _walk(plan: Plan) -> Any:
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
            await asyncio.sleep(seconds)
            return None
        case ["hear", limit]:
            try:
                return await note.wait(limit)
            except TimeoutError:
                return "unheard"
        case ["tell", run_id, key]:
            await note.send(run_id, key, key)
            return None
        case ["kid", part]:
            return json.loads(await program(json.dumps(part)))
        case ["named", run_id, joins]:
            child = program.using(id=run_id, existing="join") if joins else program.using(id=run_id)
            try:
                return json.loads(await child(json.dumps(ledger.now.plan_of(run_id))))
            except Conflict:
                return "taken"
        case ["saga", part, fails]:
            try:
                async with saga():
                    value = await _walk(part)
                    if fails:
                        raise Refused
                    return value
            except Refused:
                return "taken back"
        case ["try", part]:
            try:
                return await _walk(part)
            except (Stop, InvalidInput):
                return "stopped"
        case ["keep"]:
            keep()
            return None
        case ["by hand", tag]:
            undo_with(tidy, tag)
            return None
        case ["say", text]:
            publish("said", text)
            set_progress(0.5, text)
            return None
        case ["fail"]:
            raise Refused
        case _:
            raise AssertionError(plan)


@workflow
async def program(plan: str) -> str:
    tree = json.loads(plan)
    match tree:
        case ["again", first, then]:
            await _walk(first)
            continue_as_new(json.dumps(then))
    return json.dumps(await _walk(tree))


# --- what comes of it ---------------------------------------------------------------------------------------------------


class Fails(Exception):
    """The plan ends in an exception, if nothing else ends it before."""


def foretell(plan: Plan) -> Any:
    """The result of a run that succeeds; raises Fails when it must not succeed."""
    match plan:
        case ["do", _, tag, how]:
            if how in ("stop", "stops late", "unstorable"):
                raise Fails
            return tag
        case ["seq" | "par" | "group", parts]:
            return [foretell(part) for part in parts]
        case ["race" | "limit", *_] | ["hear", float()]:
            return ANY
        case ["hear", None]:
            return ANY
        case ["kid", part] | ["again", _, part]:
            if plan[0] == "again":
                foretell(plan[1])
            return foretell(part)
        case ["named", run_id, _]:
            return Named(run_id)
        case ["saga", part, fails]:
            value = foretell(part)
            return "taken back" if fails else Whole(value)
        case ["try", ["do", _, _, "first stops late"]]:
            return ANY  # or it was the twin that was first
        case ["try", part]:
            try:
                return foretell(part)
            except Fails:
                return "stopped"
        case ["fail"]:
            raise Fails
        case _:
            return None


class Named(NamedTuple):
    """In a foretold result: what the run with this id comes to, or that somebody else has it."""

    run_id: str


class Whole(NamedTuple):
    """In a foretold result: what a saga comes to, unless a run that it waits for refuses."""

    value: Any


def _refuses(foretold: Any) -> bool:
    """Whether a run that is waited for here fails, and so the saga around it."""
    match foretold:
        case Named(run_id):
            try:
                foretell(ledger.now.plan_of(run_id))
            except Fails:
                return True
            return False
        case Whole():
            return False
        case [*parts]:
            return any(map(_refuses, parts))
    return bool(foretold == ANY)


SKIPPED = -1
"""The result that an operator gave to a step that was skipped."""


def agrees(told: Any, foretold: Any) -> bool:
    if foretold == ANY or told == SKIPPED:
        return True
    if isinstance(foretold, Named):
        if told == "taken":
            return True
        try:
            return agrees(told, foretell(ledger.now.plan_of(foretold.run_id)))
        except Fails:
            return False
    if isinstance(foretold, Whole):
        return (told == "taken back" and _refuses(foretold.value)) or agrees(told, foretold.value)
    if isinstance(foretold, list):
        return (
            isinstance(told, list)
            and len(told) == len(foretold)
            and all(agrees(one, other) for one, other in zip(told, foretold, strict=True))
        )
    return bool(told == foretold)


def waits(plan: Any) -> int:
    """How many signals a plan waits for."""
    if not isinstance(plan, list):
        return 0
    if plan[:1] == ["hear"]:
        return 1
    return sum(waits(part) for part in plan)


# --- drawing ------------------------------------------------------------------------------------------------------------

HOWS = (
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
    """Draws plans, each step with a tag of its own."""

    def __init__(
        self,
        dice: Random,
        others: list[str],
        steps: tuple[str, ...] = ("work", "book", "book", "pay", "compute"),
        hows: tuple[str, ...] = HOWS,
        named: tuple[str, ...] = (),
        kinds: tuple[str, ...] = (),
    ) -> None:
        """`others` are runs that may be told something, `named` those that may be asked for as a child; `kinds` are drawn besides."""
        self._dice, self._others, self._named = dice, others, named
        self._steps, self._hows = steps, hows
        self.tags = 0
        self._kinds = dice.sample(
            (
                "par",
                "group",
                "race",
                "limit",
                "nap",
                "hear",
                "kid",
                "saga",
                "try",
                "keep",
                "by hand",
                "say",
                "tell",
            ),
            dice.randint(2, 6),
        )
        self._kinds += kinds
        self._stops = dice.random() < 0.3

    def program(self) -> Plan:
        """A whole workflow, some of which fail at their end, or begin again."""
        dice = self._dice
        parts = [self._part(dice.randint(1, 3), kid=False) for _ in range(dice.randint(1, 4))]
        plan: Plan = ["seq", parts]
        if dice.random() < 0.35:
            parts.append(["fail"])
        if dice.random() < 0.12:
            then = [self._do(), self._do()]
            if dice.random() < 0.5:
                then.insert(0, ["hear", None])
                parts.append(["hear", None])
            return ["again", plan, ["seq", then]]
        return plan

    def wide(self) -> Plan:
        """A whole workflow that begins with some steps beside each other: more of them for the same time."""
        plan = self.program()
        first = plan[1] if plan[0] == "again" else plan
        first[1].insert(0, ["par", [self._do() for _ in range(self._dice.randint(2, 3))]])
        return plan

    def part(self) -> Plan:
        """A workflow that waits for nothing that may never come."""
        return ["seq", [self._part(1, kid=True) for _ in range(self._dice.randint(1, 3))]]

    def _do(self) -> Plan:
        dice = self._dice
        self.tags += 1
        name = dice.choice(self._steps)
        how = dice.choice(self._hows)
        if self._stops and dice.random() < 0.15:
            how = "stop"
        return ["do", name, self.tags, how]

    def _part(self, depth: int, *, kid: bool) -> Plan:
        dice = self._dice
        kind = dice.choice(self._kinds) if depth > 0 and dice.random() < 0.6 else "do"
        match kind:
            case "par" | "group":
                return [kind, [self._part(depth - 1, kid=kid) for _ in range(dice.randint(2, 3))]]
            case "race":
                return ["race", [self._part(depth - 1, kid=kid), ["nap", dice.choice((0.05, 0.3, 1.0))]]]
            case "limit":
                return ["limit", dice.choice((0.1, 0.5, 2.0)), self._part(depth - 1, kid=kid)]
            case "nap":
                return ["nap", dice.choice((0.01, 0.2, 1.0, 2.0))]
            case "hear":
                return ["hear", dice.choice((0.3, 1.0)) if kid or dice.random() < 0.5 else None]
            case "tell" if self._others:
                self.tags += 1
                return ["tell", dice.choice(self._others), f"told {self.tags}"]
            case "kid":
                parts = [self._part(depth - 1, kid=True) for _ in range(dice.randint(1, 2))]
                return ["kid", ["seq", parts]]
            case "named":
                named = ["named", dice.choice(self._named), dice.random() < 0.6]
                return ["limit", dice.choice((0.3, 1.0)), named] if dice.random() < 0.4 else named
            case "saga":
                return ["saga", ["seq", [self._do(), self._part(depth - 1, kid=True)]], dice.random() < 0.6]
            case "try":
                return ["try", self._do()]
            case "keep":
                return ["keep"]
            case "by hand":
                self.tags += 1
                return ["by hand", self.tags]
            case "say":
                return ["say", f"said {dice.randint(1, 9)}"]
        return self._do()

"""Payloads through the whole product: a value comes back as it was, or is refused where it is passed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast, Signal, here, publish, step, workflow
from holdfast.codec.likeness import find_change
from holdfast.config import Config
from holdfast.errors import DefinitionError, InvalidInput, RunFailed, UnknownRun
from holdfast.workflow.workflow import Workflow
from tests.roles.conftest import FAST
from tests.unit.payload_cases import KEPT, REFUSED

NUL = "a\0b"
HALF = "a\ud800b"
sends: dict[int, Signal[Any]] = {}
flows: dict[int, Workflow[Any, Any]] = {}
arrived: dict[int, list[Any]] = {}
"""The values that code got, by case."""


def declare(i: int, kind: Any) -> None:
    """Declare a step, a signal and a workflow that take and give values of this type."""
    send = sends[i] = Signal(f"case_{i}", kind)
    tagged = "_or_" in str(send.payload.form.type)
    """A union of records: what is saved does not say which of them it is, so it is loaded as the one it was."""

    async def echo(value: Any) -> Any:
        arrived.setdefault(i, []).append(value)
        await here.save(value)
        arrived[i].append(value if tagged else here.load(kind))
        return value

    echo.__annotations__ = {"value": kind, "return": kind}
    echo_step: Any = step(name=f"payloads.echo_{i}")(echo)

    async def flow(value: Any, me: str) -> Any:
        arrived.setdefault(i, []).append(value)
        back = await echo_step(value)
        await send.send(me, back)
        return await send.wait()

    flow.__annotations__ = {"value": kind, "me": str, "return": kind}
    flows[i] = workflow(name=f"payloads.flow_{i}")(flow)


for number, (declared, _) in enumerate(KEPT):
    declare(number, declared)
for number, (declared, _, _) in enumerate(REFUSED, 1000):
    declare(number, declared)


@step
async def taken(value: Any) -> Any:
    return value


@workflow
async def publishing(values: list[str]) -> list[str]:
    """Publish all values, and return the errors of those that were refused."""
    errors = []
    for name in values:
        try:
            publish(name, PUBLISHED[name])
        except InvalidInput as error:
            errors.append(str(error))
    return errors


@workflow
async def calling(i: int) -> str:
    """Pass a value to a step that cannot be passed."""
    try:
        await taken(REFUSED[i][1])
    except InvalidInput as error:
        return str(error)
    return "?"


PUBLISHED: dict[str, Any] = {
    "fine": {"a": [1, None]},
    "bytes": b"x",
    "tuple": (1,),
    "keys": {1: 2},
    "nul": NUL,
}


@pytest.fixture(autouse=True)
def nothing_arrived() -> None:
    arrived.clear()


@pytest.fixture
async def hf(store_url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(store_url, config=FAST) as found:
        yield found


def same(value: Any, back: Any) -> bool:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return isinstance(back, datetime) and back.timestamp() == value.timestamp()
    return find_change(value, back) is None


async def test_every_type_comes_back_as_it_was(hf: Holdfast) -> None:
    """This holds for inputs, arguments, checkpoints, results and signals, and for the run's result: they are equal and
    of the same class."""

    async def one(i: int, value: Any) -> None:
        run_id = f"case-{i}"
        run = await hf.start(flows[i].using(id=run_id), value, run_id)
        back = await run.result(60)
        assert len(arrived[i]) == 3, KEPT[i]
        for found in (*arrived[i], back):
            assert same(value, found), KEPT[i]

    await asyncio.gather(*(one(i, value) for i, (_, value) in enumerate(KEPT)))


async def test_what_would_come_back_as_something_else_is_refused_where_it_is_passed(hf: Holdfast) -> None:
    """It is refused when it is passed to a run, to a signal, and in workflow code to a step. Nothing is started or
    sent."""
    run = await hf.start(flows[0].using(id="waits"), 1, "nobody")
    for i, (_, value, why) in enumerate(REFUSED, 1000):
        with pytest.raises(InvalidInput, match=why):
            await hf.start(flows[i].using(id=f"refused-{i}"), value, "x")
        with pytest.raises(InvalidInput, match=why):
            await sends[i].send("waits", value)
    assert await hf.store.reads.signals(run.id) == []
    assert not [row for row in await hf.runs() if row.id.startswith("refused")]
    under_any = [i for i, (kind, _, _) in enumerate(REFUSED) if kind is Any]
    for i in under_any:
        assert (await (await hf.start(calling, i)).result(60)).startswith("taken(): value"), REFUSED[i]


async def test_what_is_published_is_what_is_read(hf: Holdfast) -> None:
    """What JSON would change is refused where it is published."""
    run = await hf.start(publishing, list(PUBLISHED))
    refused = await run.result(60)
    assert [line.split(":")[0] for line in refused] == [
        "publish('bytes')",
        "publish('tuple')",
        "publish('keys')",
    ]
    assert await run.published() == {"fine": PUBLISHED["fine"], "nul": NUL}


@step(key="fixed")
async def keyed(number: int) -> int:
    return number


@workflow
async def awaits_task(name: str) -> int:
    return await asyncio.create_task(_named(), name=name)


async def _named() -> int:
    return await keyed.using(key="x")(1) + int(await taken(1))


@workflow
async def sends_on(key: str) -> None:
    await sends[0].send("anyone", 1, key=key)


@workflow
async def notes_progress(note: str) -> None:
    await noting(note)


@step
async def noting(note: str) -> None:
    here.beat(0.5, note)
    await here.save({"note": note})


@pytest.mark.parametrize("bad", [NUL, HALF], ids=["nul", "surrogate"])
async def test_text_that_a_store_cannot_hold_is_refused_where_it_enters(hf: Holdfast, bad: str) -> None:
    """This holds for keys, notes, tags, names, labels and ids. Both stores refuse them alike, with an explanation, and
    nothing is changed."""
    run = await hf.start(flows[0].using(id="it"), 1, "nobody")
    await run.hold("a note")
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: run.hold(bad),
        lambda: run.release(bad),
        lambda: run.cancel(bad),
        lambda: run.skip(note=bad),
        lambda: hf.resolve("release", run_id="it", note=bad),
        lambda: sends[0].send("it", 1, key=bad),
        lambda: hf.gates.hold(namespace=bad),
        lambda: hf.gates.hold(namespace="default", note=bad),
        lambda: hf.gates.open(bad),
        lambda: hf.gates.open("stripe", bad),
        lambda: hf.gates.close("stripe", bad),
        lambda: hf.gates.reset("stripe", bad),
    ]
    for call in calls:
        with pytest.raises(InvalidInput, match=r"NUL|surrogate"):
            await call()
    with pytest.raises(UnknownRun):
        await sends[0].send(bad, 1)
    with pytest.raises(InvalidInput):
        await hf.send_signal("it", bad, b"1", None)
    with pytest.raises(UnknownRun):
        await hf.run(bad).info()
    with pytest.raises(DefinitionError):
        Holdfast(hf.url, labels=[bad])
    plain: list[Callable[[], object]] = [
        lambda: keyed.using(key=bad),
        lambda: flows[0].using(tags={"a": bad}),
        lambda: flows[0].using(tags={bad: "a"}),
    ]
    for define in plain:
        with pytest.raises(InvalidInput, match=r"NUL|surrogate"):
            define()
    assert (await run.info()).note == "a note"
    assert (await hf.gates.holds(), await hf.gates.breakers()) == ([], [])
    with pytest.raises(RunFailed, match=r"NUL|surrogate"):
        await (await hf.start(sends_on, NUL)).result(60)


async def test_text_inside_values_may_be_anything_json_holds(hf: Holdfast) -> None:
    """NUL in progress, checkpoints, arguments and the names of tasks is kept, or makes no difference."""
    await (await hf.start(notes_progress, NUL)).result(60)
    run = await hf.start(awaits_task, NUL)
    assert await run.result(60) == 2


LIMIT = 3000
SMALL = msgspec.structs.replace(FAST, payload_max_bytes=LIMIT)
BIG, FITS = "x" * LIMIT, "x" * (LIMIT - 100)


@step
async def swells(size: int) -> str:
    return "x" * size


@step
async def measures(text: str) -> int:
    return len(text)


@step
async def keeps(size: int) -> int:
    await here.save("x" * size)
    return size


@step
def keeps_isolated(size: int) -> int:
    here.save("x" * size)
    return size


letters = Signal("letters", str)


@workflow
async def sized(way: str, size: int, text: str = "") -> int:
    value = "x" * size
    if way == "argument":
        return await measures(value)
    if way == "result":
        return len(await swells(size))
    if way == "checkpoint":
        return await keeps(size)
    if way == "thread checkpoint":
        return await keeps_isolated(size)
    if way == "child":
        return await sized("argument", 1, value)
    if way == "publish":
        publish("text", value)
    if way == "signal":
        await letters.send("anyone", value)
    return size


@workflow
async def own_result(size: int) -> str:
    return "x" * size


@pytest.mark.parametrize(
    "way", ["argument", "result", "checkpoint", "thread checkpoint", "child", "publish", "signal"]
)
async def test_the_limit_of_payloads_is_the_one_that_was_set(store_url: str, way: str) -> None:
    """Whichever way a value goes, the limit is `payload_max_bytes` of this process, smaller or larger than the
    default."""
    async with Holdfast(store_url, config=SMALL) as hf:
        assert await (await hf.start(sized, way, LIMIT - 200)).result(60) > 0
        with pytest.raises(
            RunFailed, match=r"more than the 3,000 a payload may have \(`payload_max_bytes`\)"
        ):
            await (await hf.start(sized, way, LIMIT)).result(60)


async def test_the_limit_holds_for_what_comes_from_outside(store_url: str) -> None:
    """This holds for inputs, signals, and a run's own result."""
    async with Holdfast(store_url, config=SMALL) as hf:
        with pytest.raises(InvalidInput, match="3,000"):
            await hf.start(sized, "argument", 1, BIG)
        with pytest.raises(InvalidInput, match="3,000"):
            await letters.send("anyone", BIG)
        with pytest.raises(RunFailed, match="3,000"):
            await (await hf.start(own_result, LIMIT)).result(60)
        assert await (await hf.start(own_result, LIMIT - 100)).result(60)


async def test_a_larger_limit_is_a_larger_limit(store_url: str) -> None:
    """It may be above the default of 2 MiB."""
    size = 3 * 1024 * 1024
    async with Holdfast(store_url, config=Config(payload_max_bytes=8 * 1024 * 1024)) as hf:
        assert await (await hf.start(sized, "argument", size)).result(60) == size
        assert await (await hf.start(sized, "result", size)).result(60) == size


async def test_a_lower_limit_does_not_refuse_what_is_recorded(store_url: str) -> None:
    """A run goes on in a process with a lower limit: what it asked for before can be asked for again."""
    async with Holdfast(store_url, config=FAST) as hf:
        run = await hf.start(two_waits.using(id="older"), LIMIT)
        await letters.send("older", "first")
        while len(await run.steps()) < 3:  # noqa: ASYNC110  a row has no event
            await asyncio.sleep(0.01)
    async with Holdfast(store_url, config=SMALL) as hf:
        await letters.send("older", "second")
        assert await hf.run("older", two_waits).result(60) == LIMIT


@workflow
async def two_waits(size: int) -> int:
    found = await measures("x" * size)
    await letters.wait()
    await letters.wait()
    return found

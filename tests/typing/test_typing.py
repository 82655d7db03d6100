"""Right use type-checks under `mypy --strict`, and wrong use is rejected in the line where it is written."""

import re
from pathlib import Path

import pytest
from mypy import api

SOURCE = Path(__file__).parents[2] / "src"

RIGHT = """
import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, assert_type

from holdfast import Holdfast, Run, RunInfo, RunState, RunView, StepInfo
from holdfast import Retry, Signal, Update, here, keep, now, random, saga, step, undo_with, uuid4, workflow
from holdfast.testing import Sim
from holdfast.workflow.workflow import Workflow
from holdfast.workflow.step import Step


@step
async def charge(card: str, cents: int) -> float:
    await here.save({"card": card})
    return cents / 100


@step(retry=Retry(attempts=5, on=ConnectionError), timeout=timedelta(seconds=30), needs=["gpu"], isolate=True)
def render(page: int, *, dpi: int = 72) -> str:
    return here.key


@charge.undo
async def refund(done: float | None, card: str, cents: int) -> str:
    return card


@render.undo(retry=50, timeout=None, needs=[], depends="printer")
def erase(done: str | None, page: int, *, dpi: int = 72) -> None: ...


@step(undo_failed=True, depends="printer")
def simple(page: int) -> bytes:
    return b""


@step
def fold(page: int, times: int, across: bool = False) -> str:
    return ""


@simple.undo
def wider(done: object, page: int | str) -> None: ...


paid = Signal("paid", int)
change = Update("change", int, str)


@workflow
async def inner(n: int) -> list[int]:
    async def serve(to: int) -> str:
        return str(to)

    async with change.serve(serve, check=lambda to: None, limit=2, grace=timedelta(seconds=5)):
        await paid.wait()
    async with change.serve(str):
        return [n]


@workflow
async def two(card: str, n: int) -> str:
    return card


@workflow(version="2", timeout=timedelta(days=7))
async def order(card: str, pages: list[int]) -> tuple[float, list[str]]:
    first = await charge(card, 300)
    assert_type(first, float)
    assert_type(await render.using(key="a", timeout=None)(1, dpi=300), str)
    images = await asyncio.gather(*(render(p) for p in pages))
    assert_type(images, list[str])
    both = await asyncio.gather(charge("a", 1), render(1))
    assert_type(both, tuple[float, str])
    assert_type(await simple.map(pages, limit=3), list[bytes])
    assert_type(await simple.map(pages, tolerate=0.1), list[bytes | Exception])
    assert_type(await charge.map([("a", 1)]), list[float])
    assert_type(await charge.map(zip(["a"], [1]), tolerate=1), list[float | Exception])
    assert_type(await fold.map([(1, 2), (3, 4)]), list[str])
    assert_type(await fold.map([(1, 2, True)]), list[str])
    assert_type(await render.map([1, 2]), list[str])
    assert_type(await inner.start(1), str)
    assert_type(await inner.using(id="x").start(n=1), str)
    assert_type(await inner.map(pages, limit=3), list[list[int]])
    assert_type(await inner.map(iter(pages), tolerate=1), list[list[int] | Exception])
    assert_type(await two.map([("a", 1)]), list[str])
    assert_type(await paid.wait(timeout=5), int)
    assert_type(await inner(5), list[int])
    assert_type(await inner.using(id="x", namespace="acme")(5), list[int])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(charge(card, 1))
    assert_type(task.result(), float)
    assert_type((random().random(), uuid4().hex, now().year), tuple[float, str, int])
    async with saga():
        undo_with(simple, 1)
        undo_with(refund.using(timeout=5), None, card, 5)
        keep()
    assert_type(await refund(2.5, card, 3), str)
    return first, images


def takes(flow: Workflow[[str, list[int]], tuple[float, list[str]]], one: Step[[str, int], float]) -> None: ...


async def outside() -> None:
    assert_type(await charge("a", 1), float)
    await paid.send("run-1", 5, key="k")
    assert_type(await change.call("run-1", 5, key="k", timeout=timedelta(seconds=5)), str)


async def handles(hf: Holdfast) -> None:
    assert_type(hf.run("x"), Run[Any])
    assert_type(hf.run("x", inner), Run[list[int]])
    run = await hf.start(inner.using(id="x"), 5)
    assert_type(await run.result(timeout=timedelta(seconds=5)), list[int])
    assert_type(await hf.runs(state="failed", workflow=inner, tags={"a": "b"}, limit=5), list[RunInfo])
    assert_type((await run.info()).finished_at, datetime | None)
    assert_type(await run.steps(), list[StepInfo])
    assert_type(await run.published(), dict[str, Any])
    assert_type(await run.published("stage", int), int)
    assert_type(await hf.within(object()).start(inner, 5), Run[list[int]])


def plain(hf: Holdfast) -> None:
    run = hf.wait(hf.start(inner, 5))
    assert_type(run, Run[list[int]])
    assert_type(hf.wait(run.result(), timeout=timedelta(seconds=5)), list[int])
    assert_type(hf.wait(run.state()), RunState)
    assert_type(hf.wait(run.watch()), Iterator[RunView])
    hf.wait(paid.send("run-1", 5))
    assert_type(hf.wait(change.call("run-1", 5)), str)
    with hf as opened:
        assert_type(opened, Holdfast)


async def later(card: str, cents: int) -> float:
    return 1.5


def test(sim: Sim) -> None:
    sim.stub(charge, 1.5, ConnectionError("busy"), ConnectionError, lambda card, cents: cents / 100, later)
    sim.stub(refund, "refunded")
    sim.stub(simple)
    run = sim.start(order.using(id="order-1"), "tok", pages=[1, 2])
    assert_type(run.result(), tuple[float, list[str]])
    sim.send(run, paid, 5, key="k")
    sim.advance(5, days=1)
    sim.will_send(paid, 6)
    assert_type(sim.update(run, change, 5, key="k"), str)
    sim.will_call(change, 6)
    report = sim.using(failures=False, idempotent=[simple]).crash_everywhere(order, "tok", [1])
    assert_type(report.effects(charge), set[int])
    assert_type(sim.calls(render)[0].key, str)
"""

WRONG = """
from holdfast import Holdfast, Retry, Signal, Update, step, undo_with, workflow
from holdfast.testing import Sim


@step
async def charge(card: str, cents: int) -> float:
    return cents / 100


@charge.undo  # E
async def sure(done: float, card: str, cents: int) -> None: ...


@charge.undo  # E
async def other(done: str | None, card: str, cents: int) -> None: ...


@charge.undo  # E
async def renamed(done: float | None, token: str, cents: int) -> None: ...


@charge.undo  # E
def short(done: float | None, card: str) -> None: ...


@charge.undo(retry=5)  # E
def long(done: float | None, card: str, cents: int, reason: str) -> None: ...


@charge.undo(attempts=5)  # E
def settings(done: float | None, card: str, cents: int) -> None: ...


@charge.undo
async def refund(done: float | None, card: str, cents: int) -> None: ...


@step(retry=3)
def render(page: int) -> str:
    return ""


@step(timeout="soon")  # E
async def late() -> None: ...


@step(retries=3)  # E
async def odd() -> None: ...


@workflow  # E
def sync(n: int) -> int:
    return n


paid = Signal("paid", int)
change = Update("change", int, str)


async def halves(to: float) -> float:
    return to / 2


@workflow
async def order(card: str) -> int:
    async with change.serve(halves):  # E
        pass
    async with change.serve(str, limits=5):  # E
        pass
    await charge(card)  # E
    await charge(card, "300")  # E
    await charge(card, 1, 2)  # E
    await charge(card, cent=1)  # E
    await charge.using(key="a")(1, 1)  # E
    await refund("1.5", card, 1)  # E
    undo_with(charge, card)  # E
    undo_with(print, card)  # E
    await charge.using(attempts=1)(card, 1)  # E
    await render("one")  # E
    await render.map(["one"])  # E
    await order.start(1)  # E
    await order.map([1])  # E
    await charge.map([("a", "b")])  # E
    await charge.map([("a",)])  # E
    await charge.map(["a"])  # E
    name: str = await charge(card, 1)  # E
    await paid.send("run-1", "much")  # E
    text: str = await paid.wait()  # E
    return name + text  # E


async def start() -> None:
    await order(5)  # E
    order.using(identifier="x")  # E
    order.using(namespace=1)  # E
    Retry(attempts="many")  # E
    Retry(on="ConnectionError")  # E


def plain(hf: Holdfast) -> None:
    hf.wait(5)  # E
    hf.wait(hf.start(order))  # E
    hf.wait(hf.runs)  # E
    hf.wait(paid.send("run-1", "much"))  # E
    hf.wait(change.call("run-1", "much"))  # E
    hf.wait(change.call("run-1", 5)) + 5  # E
    hf.wait(hf.run("x").published("stage", int)) + "text"  # E
    hf.wait(hf.run("x", order).result()) + "text"  # E


def test(sim: Sim) -> None:
    sim.stub(render, 5)  # E
    run = sim.start(order)  # E
    sim.start(order, 5)  # E
    run.result() + "text"  # E
    sim.send(run, paid, "much")  # E
    sim.update(run, change, "much")  # E
    sim.will_call(change, "much")  # E
    sim.advance(weeks=1)  # E
    sim.crash_everywhere(order, card=5)  # E
    sim.using(failure=False)  # E
"""


@pytest.mark.timeout(300)
def test_right_use_is_accepted_and_wrong_use_rejected_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every line marked E, and no other, is an error."""
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    monkeypatch.setenv("MYPYPATH", str(SOURCE))
    monkeypatch.chdir(tmp_path)
    options = [
        "--strict",
        "--config-file=",
        "--no-error-summary",
        "--hide-error-context",
        f"--cache-dir={tmp_path}/cache",
    ]
    out, err, _ = api.run([*options, "--no-pretty", "right.py", "wrong.py"])
    assert err == ""
    errors = [line for line in out.splitlines() if ": error:" in line]
    assert [line for line in errors if not line.startswith("wrong.py")] == []
    found = {int(match[1]) for line in errors if (match := re.match(r"wrong\.py:(\d+):", line))}
    meant = {n for n, line in enumerate(WRONG.splitlines(), 1) if line.endswith("# E")}
    assert found == meant, "\n".join(errors)

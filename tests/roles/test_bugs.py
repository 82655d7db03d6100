"""Workflow code that raises: such a run fails and undoes what it did, or it is held where it was."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.config import Config
from holdfast.errors import InvalidSettings, RunFailed
from holdfast.model import AlertKind, RunState
from tests.roles.conftest import FAST
from tests.roles.crash import Points, crashing, kill
from tests.roles.deploys import Deployed, comes_to, is_in

BUGGY = """
from holdfast import Signal, Stop, continue_as_new, here, patched, step, workflow

paid = Signal("paid", int)
PRICES = {"rope": 300}


@step
async def charge(item: str) -> str:
    ledger.append(f"charge {here.key}")
    return item


@charge.undo
async def refund(done: str | None, item: str) -> None:
    ledger.append(f"refund {here.undoes}")


@workflow(on_bug="hold")
async def order(item: str) -> int:
    done = await charge(item)
    cents = await paid.wait()
    if not patched("total"):
        raise Stop("from before")
    return cents + PRICES[done]


@workflow(on_bug="hold")
async def at_once(item: str) -> int:
    return PRICES[item]


@workflow
async def plain(item: str) -> int:
    return PRICES[await charge(item)]


@workflow(on_bug="undo")
async def undoes(item: str) -> int:
    return PRICES[await charge(item)]


@workflow(on_bug="hold")
async def rounds(item: str) -> int:
    if item == "rope":
        await charge(item)
        continue_as_new("buoy")
    return PRICES[item]


@workflow(on_bug="hold")
async def deadline(item: str) -> int:
    try:
        await paid.wait()
    finally:
        PRICES[item]
    return 0
"""
MENDED = BUGGY.replace('{"rope": 300}', '{"rope": 300, "buoy": 4500}')


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployed]:
    deployed = Deployed("shop", monkeypatch)
    yield deployed
    deployed.forget()


def opened(url: str, config: Config = FAST) -> Holdfast:
    return Holdfast(url, config=config)


async def test_a_run_is_held_where_it_was_and_goes_on_with_mended_code(app: Deployed, store_url: str) -> None:
    """It is held with the exception and the line, released with the same code it is held again, and mended code goes on
    from there: what was done is not done again."""
    module = app.deploy(BUGGY)
    async with opened(store_url) as hf:
        run = await hf.start(module.order.using(id="o"), "buoy")
        await module.paid.send("o", 5)
        await is_in(run, RunState.HELD)
        why = await run.why()
        assert "its workflow code raised KeyError: 'buoy' at shop.py:" in why
        assert "`holdfast release o`" in why

        async def is_alerted() -> bool:
            alerts = await hf.store.alerts.alerts(10)
            held = [one.message for one in alerts if one.kind == AlertKind.RUN_HELD]
            return any("its code raised KeyError: 'buoy' at shop.py:" in message for message in held)

        await comes_to(is_alerted)
        assert not any(step.kind == "marker" for step in await run.steps())  # nothing of that turn is kept
        await run.release()
        await is_in(run, RunState.HELD)
    app.deploy(MENDED)
    async with opened(store_url) as hf:
        await hf.run("o").release()
        assert await hf.run("o").result(60) == 4505
    assert app.ledger == ["charge o::charge"]


@pytest.mark.parametrize("flow", ["at_once", "rounds"])
async def test_a_bug_in_the_first_turn_of_a_generation_holds_the_run(
    app: Deployed, store_url: str, flow: str
) -> None:
    """Also where there is no outcome that could be delivered again."""
    module = app.deploy(BUGGY)
    async with opened(store_url) as hf:
        item = "rope" if flow == "rounds" else "buoy"
        run = await hf.start(getattr(module, flow).using(id="o"), item)
        await is_in(run, RunState.HELD)
        await run.release()
        await is_in(run, RunState.HELD)
    app.deploy(MENDED)
    async with opened(store_url) as hf:
        await hf.run("o").release()
        assert await hf.run("o").result(60) == 4500


async def test_a_held_run_can_be_cancelled_with_its_bug(app: Deployed, store_url: str) -> None:
    """The outcome that its code cannot take stands before the request to cancel it. It is cancelled from its record."""
    module = app.deploy(BUGGY)
    async with opened(store_url) as hf:
        run = await hf.start(module.order.using(id="o"), "buoy")
        await module.paid.send("o", 5)
        await is_in(run, RunState.HELD)
        await run.cancel()
        await is_in(run, RunState.CANCELLED)
        at_once = await hf.start(module.at_once.using(id="a"), "buoy")
        await is_in(at_once, RunState.HELD)
        await at_once.cancel()
        await is_in(at_once, RunState.CANCELLED)
    assert app.ledger == ["charge o::charge", "refund o::charge"]


async def test_the_setting_is_for_all_that_do_not_say_it(app: Deployed, store_url: str) -> None:
    """`Config(on_bug="hold")` holds runs of workflows without the option; the option overrides it."""
    module = app.deploy(BUGGY)
    async with opened(store_url) as hf:
        with pytest.raises(RunFailed, match="buoy"):
            await (await hf.start(module.plain.using(id="p1"), "buoy")).result(60)
    async with opened(store_url, msgspec.structs.replace(FAST, on_bug="hold")) as hf:
        await is_in(await hf.start(module.plain.using(id="p2"), "buoy"), RunState.HELD)
        with pytest.raises(RunFailed, match="buoy"):
            await (await hf.start(module.undoes.using(id="u"), "buoy")).result(60)
    with pytest.raises(InvalidSettings, match='expected "undo" or "hold"'):
        Config(on_bug="stop")  # type: ignore[arg-type]  # that is the mistake


async def test_deadlines_and_cancellations_are_no_bugs(app: Deployed, store_url: str) -> None:
    """Whatever the code raises while it ends, the run ends."""
    module = app.deploy(BUGGY)
    async with opened(store_url) as hf:
        run = await hf.start(module.deadline.using(id="d", timeout=0.05), "buoy")
        await is_in(run, RunState.FAILED)


async def test_a_crash_anywhere_around_a_bug(app: Deployed, store_url: str) -> None:
    """Wherever the node dies, the run is held, and mended code goes on: one charge, no refund."""
    crash_at, points = 0, 0
    while crash_at <= points:
        module = app.deploy(BUGGY)
        app.ledger.clear()
        passing = Points(crash_at or None)
        hf = await crashing(store_url, passing, FAST)
        run_id = f"o{crash_at}"
        held = asyncio.ensure_future(_held(hf, module, run_id))
        crashed = asyncio.ensure_future(passing.crashed.wait())
        await asyncio.wait([held, crashed], return_when=asyncio.FIRST_COMPLETED, timeout=60)
        if held.done():
            crashed.cancel()
            await held
            points = max(points, len(passing.passed)) if crash_at == 0 else points
            await hf.close()
        else:
            held.cancel()
            await asyncio.gather(held, return_exceptions=True)
            await kill(hf)
            async with opened(store_url) as again:
                await _held(again, module, run_id)
        app.deploy(MENDED)
        async with opened(store_url) as last:
            await last.run(run_id).release()
            assert await last.run(run_id).result(60) == 4505
        assert set(app.ledger) == {f"charge {run_id}::charge"}
        crash_at += 1
    assert points >= 4


async def _held(hf: Holdfast, module: Any, run_id: str) -> None:
    run = await hf.start(module.order.using(id=run_id), "buoy")
    await module.paid.send(run_id, 5, key="once")
    await is_in(run, RunState.HELD)

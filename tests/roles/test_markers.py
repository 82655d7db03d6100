"""Code that is deployed under open runs, with and without a marker."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from holdfast import Holdfast, StepInfo
from holdfast.errors import RunFailed, WrongState
from holdfast.model import RunState
from holdfast.run import Run
from tests.roles.conftest import FAST
from tests.roles.crash import Points, crashing, kill
from tests.roles.deploys import Deployed, comes_to, count, is_in, waits_for

RUNS = int(os.environ.get("HOLDFAST_DEPLOY_RUNS", "40"))
"""How many runs of each kind a deploy meets. With 500, it is a deploy under 1,000 runs."""

OLD = """
import asyncio

from holdfast import Signal, Stop, continue_as_new, here, patched, step, workflow

go = Signal("go", int)


@step
async def price(item: str) -> int:
    return 1000


@step
async def charge(cents: int) -> str:
    ledger.append(f"{here.key} {cents}")
    return f"charged {cents}"


@charge.undo
async def refund(done: str | None, cents: int) -> None:
    ledger.append(f"refund {here.undoes} {cents}")


@workflow
async def marked(item: str) -> list[str]:
    done = []
    await go.wait()
    for _ in range(2):
        cents = await price(item)
        done.append(await charge(cents))
        await go.wait()
    return done


@workflow
async def unmarked(item: str) -> list[str]:
    await go.wait()
    done = [await charge(await price(item))]
    await go.wait()
    return done


@workflow
async def stops(item: str) -> None:
    await price(item)
    await go.wait()
    raise Stop("no more")


@workflow
async def rounds(left: int = 1) -> str:
    await price("round")
    way = "old"
    await go.wait()
    if left:
        continue_as_new(left - 1)
    return way
"""

NEW = (
    OLD.replace(
        "        cents = await price(item)\n",
        '        cents = await price(item)\n        if patched("new-discount"):\n            cents -= 100\n',
    )
    .replace("charge(await price(item))", "charge(await price(item) - 100)")
    .replace('    way = "old"\n', '    way = "new" if patched("way") else "old"\n')
    .replace(
        "    await price(item)\n    await go.wait()\n    raise Stop",
        '    await price(item)\n    patched("stops")\n    await go.wait()\n    raise Stop',
    )
)

CLEANED = NEW.replace(
    '        if patched("new-discount"):\n            cents -= 100\n', "        cents -= 100\n"
)


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployed]:
    deployed = Deployed("shop", monkeypatch)
    yield deployed
    deployed.forget()


def opened(url: str) -> Holdfast:
    return Holdfast(url, config=FAST)


def ways(steps: list[StepInfo]) -> dict[str, Any]:
    return {step.name: step.output for step in steps if step.kind == "marker"}


async def test_a_deploy_under_many_runs(app: Deployed, store_url: str) -> None:
    """Of the runs that went past the change, none is held where it is marked, and all are held where it is not. Those
    that had not got there go the new way."""
    module = app.deploy(OLD)
    async with opened(store_url) as hf:
        runs: dict[str, Run[Any]] = {}
        for flow in (module.marked, module.unmarked):
            for i in range(RUNS):
                run = await hf.start(flow.using(id=f"{flow.name}-{i}"), "rope")
                runs[run.id] = run
                if i % 2:  # these go past the change
                    await module.go.send(run.id, 1)
        for run_id, run in runs.items():
            await waits_for(run, "go#2" if int(run_id.rpartition("-")[2]) % 2 else "go")
    assert len(app.ledger) == RUNS
    module = app.deploy(NEW)
    async with opened(store_url) as one, opened(store_url):  # two schedulers
        for run_id in runs:
            await module.go.send(run_id, 2)

        async def all_moved() -> bool:
            states = await count(one, "shop.unmarked")
            waiting = [await one.run(f"shop.marked-{i}").steps() for i in range(RUNS)]
            keys = [{step.key for step in steps if step.state == "waiting"} for steps in waiting]
            moved = sum(bool(each & {"go#2", "go#3"}) for each in keys)
            return states.get("held", 0) == RUNS // 2 and moved == RUNS

        await comes_to(all_moved, 300)
        for run_id in runs:
            await module.go.send(run_id, 3)
            if run_id.startswith("shop.marked") and int(run_id.rpartition("-")[2]) % 2 == 0:
                await module.go.send(run_id, 4)
        for i in range(RUNS):
            amount = 1000 if i % 2 else 900
            result = await one.run(f"shop.marked-{i}").result(60)
            assert result == [f"charged {amount}"] * 2
            found = ways(await one.run(f"shop.marked-{i}").steps())
            assert found == {"new-discount": not i % 2}
        assert await count(one, "shop.marked") == {"succeeded": RUNS}
        await comes_to_counts(one, "shop.unmarked", {"held": RUNS // 2, "succeeded": RUNS // 2})
        why = await one.run("shop.unmarked-1").why()
        assert '{"cents":1000}' in why
        assert '{"cents":900}' in why
    assert max(Counter(line.split()[0] for line in app.ledger).values()) == 1
    report = await _doctor(store_url)
    assert not any(report.values()), report


async def comes_to_counts(hf: Holdfast, workflow: str, wanted: dict[str, int]) -> None:
    async def now() -> bool:
        return await count(hf, workflow) == wanted

    await comes_to(now)


async def _doctor(url: str) -> dict[str, int]:
    async with Holdfast(url, roles=()) as hf:
        return {name: broken for name, _, broken in await hf.store.reads.doctor()}


@pytest.mark.parametrize("past", [True, False], ids=["past", "before"])
async def test_a_crash_anywhere_after_the_deploy(app: Deployed, store_url: str, past: bool) -> None:
    """Wherever the first node with the new code dies, the run goes one way in both passes, and charges once in each."""
    crash_at, points = 0, 0
    amount = 1000 if past else 900
    while crash_at <= points:
        run_id = f"{past}-{crash_at}"
        module = app.deploy(OLD)
        app.ledger.clear()
        async with opened(store_url) as hf:
            run = await hf.start(module.marked.using(id=run_id), "rope")
            if past:
                await module.go.send(run_id, 0)
            await waits_for(run, "go#2" if past else "go")
        module = app.deploy(NEW)
        passing = Points(crash_at or None)
        hf = await crashing(store_url, passing, FAST)
        ended = asyncio.ensure_future(_goes_on(hf, module, run_id))
        crashed = asyncio.ensure_future(passing.crashed.wait())
        await asyncio.wait([ended, crashed], return_when=asyncio.FIRST_COMPLETED, timeout=60)
        if ended.done():
            crashed.cancel()
            points = max(points, len(passing.passed)) if crash_at == 0 else points
            assert await ended == [f"charged {amount}"] * 2
            await hf.close()
        else:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)
            await kill(hf)
            async with opened(store_url) as again:
                assert await _goes_on(again, module, run_id) == [f"charged {amount}"] * 2
                assert ways(await again.run(run_id).steps()) == {"new-discount": not past}
        keys = Counter(line for line in app.ledger if line.startswith(f"{run_id}::"))
        assert {line.split()[1] for line in keys} == {str(amount)}
        crash_at += 1
    assert points > 4


async def _goes_on(hf: Holdfast, module: Any, run_id: str) -> Any:
    """Send the signals that the run waits for. Each has a key, so that the second node sends none twice. The run may end
    before the last one is sent."""
    with suppress(WrongState):
        for i in (1, 2, 3):
            await module.go.send(run_id, i, key=str(i))
    return await hf.run(run_id).result(60)


async def test_a_marker_that_a_run_needs_is_named_when_it_is_missing(app: Deployed, store_url: str) -> None:
    """The run is held, `why` names the marker, and it goes on when the marker is back. `cancel` works without it."""
    module = app.deploy(OLD)
    async with opened(store_url) as hf:
        for name in ("a", "b"):
            run = await hf.start(module.marked.using(id=name), "rope")
            await module.go.send(name, 1)
            await waits_for(run, "go#2")
    app.deploy(NEW)
    async with opened(store_url) as hf:
        for name in ("a", "b"):
            run = hf.run(name)
            await run.hold()
            await run.release()

            async def is_marked(run: Run[Any] = run) -> bool:
                return ways(await run.steps()) == {"new-discount": False}

            await comes_to(is_marked)
    app.deploy(CLEANED)
    async with opened(store_url) as hf:
        for name in ("a", "b"):
            await hf.run(name).hold()
            await hf.run(name).release()
            await comes_to(lambda name=name: _is_held_for(hf, name, "'new-discount'"))  # type: ignore[misc]
        await hf.run("b").cancel()
        await is_in(hf.run("b"), RunState.CANCELLED)
    assert app.ledger[-1] == "refund b::charge 1000"
    module = app.deploy(NEW)
    async with opened(store_url) as hf:
        await hf.run("a").release()
        await module.go.send("a", 2)
        await module.go.send("a", 3)
        assert await hf.run("a").result(60) == ["charged 1000", "charged 1000"]


async def _is_held_for(hf: Holdfast, run_id: str, words: str) -> bool:
    run = hf.run(run_id)
    return await run.state() is RunState.HELD and words in await run.why()


async def test_a_retry_keeps_the_ways(app: Deployed, store_url: str) -> None:
    """Both ways are taken over by the next run of the chain, and by the one after it."""
    module = app.deploy(OLD)
    async with opened(store_url) as hf:
        await waits_for(await hf.start(module.stops.using(id="old"), "rope"), "go")
    module = app.deploy(NEW)
    async with opened(store_url) as hf:
        await waits_for(await hf.start(module.stops.using(id="new"), "rope"), "go")
        for name in ("old", "new"):
            await module.go.send(name, 1)
            with pytest.raises(RunFailed):
                await hf.run(name).result(60)
            again = await hf.run(name).retry()
            with pytest.raises(RunFailed):
                await again.result(60)
            once_more = await again.retry()
            with pytest.raises(RunFailed):
                await once_more.result(60)
            assert ways(await once_more.steps()) == {"stops": name == "new"}


UNDOES = """
from holdfast import Stop, patched, step, workflow


@step
async def book(item: str) -> str:
    return f"booked {item}"


@book.undo
async def cancel(done: str | None, item: str) -> None: ...


@step
async def price(item: str) -> int:
    return len(item)


@workflow
async def buys(item: str) -> int:
    await book(item)
    cents = await price(item)
    if STOPS:
        raise Stop("not today")
    return cents
"""


async def test_a_retry_goes_the_old_way_to_what_it_keeps(app: Deployed, store_url: str) -> None:
    """The run undid the step before the marker and keeps the one behind it. The retry does the first again, so it is not a
    replay when the code asks for the marker."""
    module = app.deploy("STOPS = True\n" + UNDOES)
    async with opened(store_url) as hf:
        with pytest.raises(RunFailed):
            await (await hf.start(module.buys.using(id="buys"), "rope")).result(60)
    way = 'price(item + "!" if patched("loud") else item)'
    app.deploy("STOPS = False\n" + UNDOES.replace("price(item)\n    if", f"{way}\n    if"))
    async with opened(store_url) as hf:
        again = await hf.run("buys").retry()
        assert await again.result(60) == 4
        assert ways(await again.steps()) == {"loud": False}


async def test_a_new_generation_decides_anew(app: Deployed, store_url: str) -> None:
    """`continue_as_new` begins with an empty history: from there on the run goes the new way."""
    module = app.deploy(OLD)
    async with opened(store_url) as hf:
        run = await hf.start(module.rounds.using(id="round"))
        await waits_for(run, "go")
    module = app.deploy(NEW)
    async with opened(store_url) as hf:
        await module.go.send("round", 1)
        await waits_for(hf.run("round"), "@2/go")
        assert ways(await hf.run("round").steps()) == {"way": True}
        await module.go.send("round", 2)
        assert await hf.run("round").result(60) == "new"

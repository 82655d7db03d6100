"""What a node learns from what it does: when runs will end, and which steps straggle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.durations import sketches, start_name, step_name
from holdfast.model import AlertKind
from tests.roles import learned_flows as flows
from tests.roles.conftest import FAST, until
from tests.roles.outside import effects
from tests.roles.test_hedge import until_stored
from tests.store.conftest import run_sql

QUICK = msgspec.structs.replace(
    FAST, learn_s=0.05, leader_lease_s=0.5, straggler_floor_s=0.2, timeout_grace_s=0.1
)


@pytest.fixture
async def hf(store_url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(store_url, config=QUICK) as holdfast:
        yield holdfast


async def counted(hf: Holdfast, name: str) -> float:
    known = sketches(await hf.store.durations.durations([name]))
    return known[name].total if name in known else 0.0


async def test_the_eta_is_learned_from_runs_before(hf: Holdfast, tmp_path: Path) -> None:
    """At each step the eta is what was left when other runs passed it. The first run has none, nor has one that has
    ended."""
    folder = str(tmp_path)
    (tmp_path / "open").touch()
    first = await hf.start(flows.naps, folder, "open")
    assert await first.eta() is None
    await asyncio.gather(*[(await hf.start(flows.naps, folder, "open")).result(60) for _ in range(6)])
    await first.result(60)

    async def known() -> bool:
        return await counted(hf, start_name(flows.naps.name)) >= 7

    await until_stored(known)
    assert await first.eta() is None
    run = await hf.start(flows.naps, folder, "shut")
    await until(lambda: "began shut" in effects(folder))
    eta = await run.eta()
    assert eta is not None
    assert 0.0 <= eta.left_s <= eta.most_s < 10
    assert eta.samples == 7
    (tmp_path / "shut").touch()
    await run.result(60)


async def test_attempts_are_counted_and_written_with_the_rest_of_a_second(hf: Holdfast) -> None:
    """Each is counted once, in few rows, however many there were."""
    await (await hf.start(flows.loops, 300)).result(60)

    async def all_counted() -> bool:
        return await counted(hf, step_name(flows.nap.name)) == 300

    await until_stored(all_counted)
    rows = await hf.store.durations.durations()
    assert len(rows) < 100


async def test_what_was_counted_last_is_written_when_a_node_leaves(store_url: str) -> None:
    """A short program teaches the store, too."""
    slow = msgspec.structs.replace(QUICK, learn_s=600.0)
    async with Holdfast(store_url, config=slow) as hf:
        await (await hf.start(flows.loops, 3)).result(60)
        assert await hf.store.durations.durations() == []
    async with Holdfast(store_url, roles=[]) as hf:
        assert await counted(hf, step_name(flows.nap.name)) == 3


async def test_a_straggler_is_reported_while_it_lasts(hf: Holdfast, tmp_path: Path) -> None:
    """After forty other steps took no time, `why` names it and an alert is raised, which closes by itself."""
    names = [str(number) for number in range(40)]
    for name in names:
        (tmp_path / name).touch()
    await (await hf.start(flows.waits, str(tmp_path), names)).result(60)

    async def known() -> bool:
        return await counted(hf, step_name(flows.wait_for.name)) >= 40

    await until_stored(known)
    run = await hf.start(flows.waits, str(tmp_path), ["late"])

    async def raised() -> list[tuple[str, str]]:
        """A busy machine may have made stragglers of other steps."""
        return [
            (one.kind, one.level) for one in await hf.store.alerts.open_alerts(50) if one.run_id == run.id
        ]

    async def is_raised() -> bool:
        return await raised() == [(AlertKind.STRAGGLER, "info")]

    await until_stored(is_raised)
    assert "longer than such steps usually take" in await run.why()
    (tmp_path / "late").touch()
    await run.result(60)

    async def over() -> bool:
        return await raised() == []

    await until_stored(over)


async def test_what_others_ended_is_delivered_although_this_node_runs_it(
    hf: Holdfast, tmp_path: Path, store_url: str
) -> None:
    """The leader gave the attempt up, and its agent, in the node that owns the run, has not noticed. The run goes
    on."""
    run = await hf.start(flows.tolerant, str(tmp_path))
    await until(lambda: "began never" in effects(tmp_path))
    past = "1" if store_url.startswith("sqlite") else "to_timestamp(1)"
    run_sql(store_url, f"UPDATE steps SET complete_by = {past} WHERE run_id = '{run.id}'")
    assert await run.result(60) == "StepTimeout"
    assert hf.node.agent is not None
    await until(lambda: hf.node.agent is not None and not hf.node.agent.assignments)


async def test_a_run_that_another_process_started_teaches_how_long_the_whole_takes(store_url: str) -> None:
    """The scheduler that claims a run from its beginning counts it from there."""
    slow = msgspec.structs.replace(QUICK, learn_s=600.0)  # no write may be under way when the node leaves
    async with Holdfast(store_url, roles=[], config=QUICK) as caller:
        run = await caller.start(flows.loops, 3)
        async with Holdfast(store_url, config=slow):
            await run.result(60)
        assert await counted(caller, start_name(flows.loops.name)) == 1

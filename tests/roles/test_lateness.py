"""Runs and steps that were promised to end by some time: people are notified before they are late, where that can be known."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from holdfast import Holdfast, RunState, step, workflow
from holdfast.durations import start_name, step_name
from holdfast.errors import DefinitionError, InvalidInput
from holdfast.model import Alert, AlertKind
from holdfast.sketch import bucket_of
from tests.roles.conftest import FAST
from tests.roles.test_hedge import until_stored
from tests.store.conftest import run_sql

QUICK = msgspec.structs.replace(FAST, leader_lease_s=1.0, watch_s=0.1)
HOUR = timedelta(hours=1)
gates: dict[str, asyncio.Event] = {}


def gate(name: str) -> asyncio.Event:
    return gates.setdefault(name, asyncio.Event())


@pytest.fixture(autouse=True)
def closed_gates() -> None:
    gates.clear()


@step
async def pass_gate(name: str) -> str:
    await gate(name).wait()
    return name


@workflow(due=HOUR)
async def parcel(name: str) -> str:
    return await pass_gate(name)


@workflow
async def hurried(name: str) -> str:
    return await pass_gate.using(due=0.2)(name)


@workflow
async def parent(name: str) -> str:
    return await errand(name)


@workflow
async def errand(name: str) -> str:
    return await pass_gate(name)


@workflow
async def starter(name: str) -> str:
    return await parcel.using(due=60).start(name)


@workflow(due=timedelta(days=2))
async def naps() -> None:
    await asyncio.sleep(3 * 86_400)


async def late(hf: Holdfast, kind: AlertKind = AlertKind.RUN_LATE) -> list[Alert]:
    return await hf.store.alerts.open_alerts_of(kind, 0, 100)


async def teach(hf: Holdfast, name: str, seconds: float, times: float = 30.0) -> None:
    await hf.store.durations.add_durations([(name, bucket_of(seconds), times)])


async def test_a_run_that_is_open_at_its_due_time_is_late_once(store_url: str) -> None:
    """One alert says so, with the reason that `why` gives. It is cleared when the run ends, and the run says that it was
    late."""
    async with Holdfast(store_url, config=QUICK) as hf:
        run = await hf.start(parcel.using(id="p", due=0.3), "a")
        calm = await hf.start(parcel.using(id="calm"), "a")

        async def is_late() -> bool:
            return bool(await late(hf))

        await until_stored(is_late)
        (alert,) = await late(hf)
        assert (alert.run_id, alert.level, alert.key) == ("p", "warning", "run late:p")
        assert alert.message.startswith("run p of ")
        assert "is late: it was due" in alert.message
        assert "pass_gate" in alert.message
        assert "late: due" in await run.why()
        assert "due in 60 min" in await calm.why()
        gate("a").set()
        await run.result(60)
        await until_stored(lambda: _none_late(hf))
        assert [(one.run_id, one.times) for one in await hf.store.alerts.alerts()] == [("p", 1)]
        info = await run.info()
        assert info.due_at is not None
        assert info.finished_at is not None
        assert info.due_at < info.finished_at
        assert "late." in await run.why()
        assert "It ended in time." in await calm.why()


async def test_a_run_is_as_late_as_it_is_when_one_looks(store_url: str) -> None:
    """What needs a person does not repeat how late the run was when people were notified."""
    async with Holdfast(store_url, config=QUICK) as hf:
        await hf.start(parcel.using(id="p", due=0.3), "a")

        async def is_late() -> bool:
            return bool(await late(hf))

        await until_stored(is_late)
        ago = "due_at - 300.0" if store_url.startswith("sqlite") else "due_at - interval '5 minutes'"
        run_sql(store_url, f"UPDATE runs SET due_at = {ago} WHERE id = 'p'")
        items = (await hf.desk.overview.attention(hf.who)).items
        assert [one.sentence for one in items if one.kind == "late run"] == ["It was due 5 min ago."]
        gate("a").set()


async def _none_late(hf: Holdfast) -> bool:
    return not await late(hf) and not await late(hf, AlertKind.STEP_LATE)


async def test_people_are_notified_before_a_run_is_late(store_url: str) -> None:
    """Thirty runs took two hours, and this one is due in one. When it catches up, the alert is cleared; a run that is due
    later is not late."""
    async with Holdfast(store_url, config=QUICK) as hf:
        await teach(hf, start_name(parcel.name), 7200.0)
        run = await hf.start(parcel.using(id="soon"), "b")
        other = await hf.start(parcel.using(id="later", due=timedelta(hours=9)), "b")

        async def is_late() -> bool:
            return bool(await late(hf))

        await until_stored(is_late)
        (alert,) = await late(hf)
        assert alert.run_id == "soon"
        assert "nine of ten took up to 2 h from here" in alert.message
        assert (await run.info()).due_at > datetime.now(UTC)  # type: ignore[operator]
        gate("b").set()
        await asyncio.gather(run.result(60), other.result(60))
        await until_stored(lambda: _none_late(hf))
        assert "It ended in time." in await run.why()


async def test_29_runs_say_nothing_about_one_that_goes_on(store_url: str) -> None:
    """Too little is known to warn of it. What has not begun at half of its time is warned of all the same."""
    async with Holdfast(store_url, config=QUICK) as hf:
        await teach(hf, start_name(parcel.name), 7200.0, 29.0)
        await hf.start(parcel.using(id="goes on"), "c")
        held = await hf.start(parcel.using(id="held", due=2 * HOUR), "c")
        await held.hold("look at it")
        ago = "created_at - 7200.0" if store_url.startswith("sqlite") else "created_at - interval '2 hours'"
        run_sql(store_url, f"UPDATE runs SET created_at = {ago} WHERE id = 'held'")

        async def is_late() -> bool:
            return bool(await late(hf))

        await until_stored(is_late)
        (alert,) = await late(hf)
        assert alert.run_id == "held"
        assert "is held, and half of the time is gone" in alert.message
        assert "it is due in" in alert.message
        gate("c").set()


async def test_a_run_that_nobody_begins_is_warned_of_at_half_of_its_time(store_url: str) -> None:
    """No node has its code; the leader alone is up."""
    async with Holdfast(store_url, config=QUICK, roles=("supervisor",)) as hf:
        run = await hf.start(parcel.using(id="alone", due=1.0), "d")

        async def is_late() -> bool:
            return bool(await late(hf))

        await until_stored(is_late)
        (alert,) = await late(hf)
        assert "has not begun" in alert.message or "it was due" in alert.message
        assert "It has been waiting for a scheduler" in alert.message
        await run.cancel()
        await until_stored(lambda: _none_late(hf))


async def test_a_step_that_is_late_has_an_alert_of_its_own(store_url: str) -> None:
    """It names the step. It ends with the step, and says nothing about the run's own promise."""
    async with Holdfast(store_url, config=QUICK) as hf:
        await hf.start(hurried.using(id="h"), "e")

        async def is_late() -> bool:
            return bool(await late(hf, AlertKind.STEP_LATE))

        await until_stored(is_late)
        (alert,) = await late(hf, AlertKind.STEP_LATE)
        assert alert.key == "step late:h:1"
        assert alert.message.startswith("step pass_gate of run h is late: ")
        assert await late(hf) == []
        gate("e").set()
        assert await hf.run("h", hurried).result(60) == "e"
        await until_stored(lambda: _none_late(hf))


async def test_a_step_warns_at_the_90th_percentile_of_its_name(store_url: str) -> None:
    """Thirty calls took a minute, and this one is due in half a minute."""
    async with Holdfast(store_url, config=QUICK) as hf:
        await teach(hf, step_name(pass_gate.name), 60.0)
        run = await hf.start(slow_step.using(id="s"), "f")

        async def is_late() -> bool:
            return bool(await late(hf, AlertKind.STEP_LATE))

        await until_stored(is_late)
        (alert,) = await late(hf, AlertKind.STEP_LATE)
        assert "nine of ten took up to" in alert.message
        gate("f").set()
        await run.result(60)


@workflow
async def slow_step(name: str) -> str:
    return await pass_gate.using(due=30)(name)


async def test_a_child_has_no_promise_but_its_own(store_url: str) -> None:
    """Its parent's promise is the parent's: the alert about that says which child it waits for. A run that is only started has
    the promise that its workflow or `using` says."""
    async with Holdfast(store_url, config=QUICK) as hf:
        run = await hf.start(parent.using(id="above", due=HOUR), "g")
        gate("g").set()
        await run.result(60)
        (child,) = await hf.store.reads.children("above")
        assert child.due_at is None
        started = await (await hf.start(starter, "g")).result(60)
        info = await hf.run(started).info()
        assert info.due_at is not None
        assert info.due_at - info.created_at < timedelta(seconds=61)


async def test_a_retry_keeps_a_promise_that_is_still_ahead_and_a_fork_has_none(store_url: str) -> None:
    """The result was promised, not the attempt. A promise that is broken already is not broken again."""
    async with Holdfast(store_url, config=QUICK, roles=()) as hf:
        ahead = await hf.start(parcel.using(id="ahead"), "h")
        past = await hf.start(parcel.using(id="past", due=0.05), "h")
        for run in (ahead, past):
            await run.cancel()
            assert await run.state() is RunState.CANCELLED
        await asyncio.sleep(0.06)  # the second one's time passes
        again = await (await ahead.retry()).info()
        assert again.due_at == (await ahead.info()).due_at
        assert (await (await past.retry()).info()).due_at is None
        forked = await ahead.fork()
        assert (await forked.info()).due_at is None


async def test_a_promise_counts_from_when_a_run_may_begin(store_url: str) -> None:
    """As a timeout does. A time of day stays what it is."""
    async with Holdfast(store_url, config=QUICK, roles=()) as hf:
        info = await (await hf.start(parcel.using(begin_in=HOUR), "i")).info()
        assert info.begin_at is not None
        assert info.due_at is not None
        assert abs(info.due_at - info.begin_at - HOUR) < timedelta(milliseconds=1)
        at = datetime.now(UTC) + timedelta(days=1)
        info = await (await hf.start(parcel.using(begin_in=HOUR, due_at=at), "i")).info()
        assert info.due_at is not None
        assert abs(info.due_at - at) < timedelta(milliseconds=1)
        assert (await (await hf.start(parcel.using(due=None), "i")).info()).due_at is None


async def test_a_due_time_that_has_passed_is_refused_and_the_same_start_again_is_not(store_url: str) -> None:
    """A program that starts a run again, because it does not know whether it did, gets the run."""
    async with Holdfast(store_url, config=QUICK, roles=()) as hf:
        with pytest.raises(InvalidInput, match="has passed already"):
            await hf.start(parcel.using(id="p", due_at=datetime.now(UTC) - HOUR), "j")
        assert await hf.store.reads.run("p") is None
        soon = parcel.using(id="p", due_at=datetime.now(UTC) + timedelta(seconds=0.2))
        first = await hf.start(soon, "j")
        await asyncio.sleep(0.25)  # its time passes
        assert (await hf.start(soon, "j")).id == first.id


def test_what_cannot_be_promised_is_refused_where_it_is_written() -> None:
    """A span of nothing, a time without a zone, both at once, and a promise that the timeout breaks."""
    for wrong, words in (
        ({"due": 0}, "above 0"),
        ({"due": timedelta(0)}, "above 0"),
        ({"due": -5}, "above 0"),
        ({"due": "2h"}, "expected seconds"),
        ({"due_at": datetime(2030, 1, 1)}, "no time zone"),  # noqa: DTZ001  this is the claim
        ({"due": 5, "due_at": datetime(2030, 1, 1, tzinfo=UTC)}, "not both"),
        ({"due": 60, "timeout": 30}, "is after the timeout"),
        ({"timeout": 30}, "is after the timeout"),
    ):
        with pytest.raises(DefinitionError, match=words):
            parcel.using(**wrong)
    with pytest.raises(DefinitionError, match="is after the timeout"):
        workflow(timeout=10, due=20)(errand.fn)
    with pytest.raises(DefinitionError, match="above 0"):
        pass_gate.using(due=0)
    assert parcel.using(due=None, timeout=30).due_s is None


async def test_at_most_a_hundred_alerts_are_open(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that are due first are warned of first. As they end, others are warned of."""
    monkeypatch.setattr("holdfast.supervisor.lateness.LATE_MAX", 3)
    monkeypatch.setattr("holdfast.supervisor.lateness.PAGE", 2)
    async with Holdfast(store_url, config=QUICK, roles=("supervisor",)) as hf:
        runs = [await hf.start(parcel.using(id=f"r{n}", due=0.05 + n / 1000), "k") for n in range(6)]

        async def are_three() -> bool:
            return len(await late(hf)) == 3

        await until_stored(are_three)
        for run in runs[:5]:
            await run.cancel()

        async def is_last() -> bool:
            return [one.run_id for one in await late(hf)] == ["r5"]

        await until_stored(is_last)

"""What a step or a workflow logs belongs to it: each record says where it comes from, and what is logged is kept with
the attempt."""

from __future__ import annotations

import asyncio
import logging
import logging.config
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast, InvalidInput, Run, log_fields
from holdfast.config import Config
from holdfast.errors import RunFailed, UnknownRun
from holdfast.logs import LogInfo
from holdfast.model import LogPart
from holdfast.store.answers import Answer
from holdfast.store.operations import Save
from tests.roles import logging_flows as flows
from tests.roles.conftest import FAST, until


class Seen(logging.Handler):
    """A handler of the user's."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == flows.log.name:
            self.records.append(record)

    @property
    def messages(self) -> list[str]:
        return [record.getMessage() for record in self.records]


@pytest.fixture(autouse=True)
def seen() -> Iterator[Seen]:
    handler, root = Seen(), logging.getLogger()
    before = root.level
    root.setLevel(logging.INFO)
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before)


def said(lines: list[LogInfo]) -> list[tuple[str | None, int | None, str, str]]:
    return [(line.step, line.attempt, line.level, line.message) for line in lines]


async def first_lines(run: Run[Any]) -> list[LogInfo]:
    """Wait until something that was logged is written."""
    async with asyncio.timeout(60):
        while not (lines := await run.logs()):  # noqa: ASYNC110  rows give no event
            await asyncio.sleep(0.01)
    return lines


async def until_quarantined(run: Run[Any]) -> None:
    async with asyncio.timeout(60):
        while not any(one.quarantined for one in await run.steps()):  # noqa: ASYNC110  rows give no event
            await asyncio.sleep(0.02)


async def test_what_is_logged_is_kept_with_its_attempt(hf: Holdfast) -> None:
    """Lines come in the order of time, with step and attempt, those of failed attempts, too."""
    run = await hf.start(flows.order, 1)
    assert await run.result(60) == 2
    lines = await run.logs()
    assert said(lines) == [
        (None, None, "INFO", "order begins"),
        ("charge", 1, "INFO", "attempt 1 begins"),
        ("charge", 1, "ERROR", "charging failed"),
        ("charge", 2, "INFO", "attempt 2 begins"),
        (None, None, "INFO", "charged at attempt 2"),
        ("pack", 1, "WARNING", "packing a rope"),
    ]
    assert [line.at for line in lines] == sorted(line.at for line in lines)
    assert {line.logger for line in lines} == {"shop.bank"}
    assert (lines[2].traceback or "").splitlines()[0] == "Traceback (most recent call last):"
    assert (lines[2].traceback or "").endswith("ConnectionError: the bank is away")
    assert said(await run.logs("charge", attempt=2)) == [("charge", 2, "INFO", "attempt 2 begins")]
    assert [line.message for line in await run.logs(level="warning")] == ["charging failed", "packing a rope"]


async def test_records_say_where_they_come_from(hf: Holdfast, seen: Seen) -> None:
    """Every handler of the user's can show run, step and attempt, or the workflow, in steps of every kind."""
    run = await hf.start(flows.order, 0)
    await run.result(60)
    found = [
        (one.holdfast_run, one.holdfast_workflow, one.holdfast_step, one.holdfast_attempt)  # type: ignore[attr-defined]
        for one in seen.records
    ]
    name = flows.order.name
    assert found == [
        (run.id, name, "", 0),
        (run.id, "", "charge", 1),
        (run.id, name, "", 0),
        (run.id, "", "pack", 1),
    ]
    flows.log.info("outside")
    outside: Any = seen.records[-1]
    assert (outside.holdfast_run, outside.holdfast_step, outside.holdfast_attempt) == ("", "", 0)


async def test_a_workflow_logs_once(hf: Holdfast, seen: Seen) -> None:
    """A run leaves memory while it sleeps, and is replayed. Its code logs nothing when it is closed, and nothing again
    when it is replayed."""
    run = await hf.start(flows.naps, 0.6)
    scheduler = hf.node.scheduler
    assert scheduler is not None
    await until(lambda: run.id not in scheduler.runs)  # so it is replayed when the timer fires
    assert await run.result(60) == "done"
    assert seen.messages == ["before", "slept", "after"]
    assert [line.message for line in await run.logs()] == ["before", "slept", "after"]


async def test_a_new_generation_begins_with_empty_logs(hf: Holdfast) -> None:
    """What a run that continues as new has logged goes with its history."""
    run = await hf.start(flows.goes_on)
    assert await run.result(60) == 3
    assert said(await run.logs()) == [
        (None, None, "INFO", "generation 3"),
        ("@3/pack", 1, "WARNING", "packing 3"),
    ]


async def test_what_a_long_step_logs_is_seen_while_it_runs(hf: Holdfast) -> None:
    """It is written with a beat, and again with the outcome; no line comes twice."""
    flows.gates["long"] = asyncio.Event()
    run = await hf.start(flows.waiting, "long")
    seen = await first_lines(run)
    assert said(seen) == [("waits", 1, "INFO", "long is under way")]
    flows.gates["long"].set()
    await run.result(60)
    assert [line.message for line in await run.logs()] == ["long is under way", "long goes on"]


async def test_much_is_bounded_to_its_beginning_and_its_end(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 KiB are kept, and one line says how much is left out."""
    monkeypatch.setattr(flows.log, "propagate", False)  # pytest keeps what it captures, and is slow at that
    run = await hf.start(flows.flooding, 20_000, 100)
    await run.result(60)
    lines = await run.logs()
    numbers = [int(line.message.split()[0]) for line in lines if line.logger == "shop.bank"]
    (gap,) = [place for place, line in enumerate(lines) if line.logger == "holdfast.logs"]
    assert numbers[:gap] == list(range(gap))
    assert numbers[gap:] == list(range(20_000 - len(numbers) + gap, 20_000))
    assert lines[gap].message.startswith(f"… {20_000 - len(numbers):,} lines (")
    rows = await hf.store.reads.logs_of(run.id, [1])
    assert 16 * 1024 < sum(len(row.body) for row in rows) <= 64 * 1024
    assert len(rows) <= 40


async def test_the_settings_are_obeyed(store_url: str) -> None:
    """The bound, the level, and that nothing is kept."""
    small = msgspec.structs.replace(FAST, logs_max_bytes=8 * 1024, logs_level="WARNING")
    async with Holdfast(store_url, config=small) as hf:
        run = await hf.start(flows.order, 1)
        await run.result(60)
        assert [line.level for line in await run.logs()] == ["ERROR", "WARNING"]
    async with Holdfast(store_url, config=msgspec.structs.replace(small, logs_level="INFO")) as hf:
        run = await hf.start(flows.flooding, 1000, 100)
        await run.result(60)
        assert sum(len(row.body) for row in await hf.store.reads.logs_of(run.id, [1])) <= 8 * 1024
    async with Holdfast(store_url, config=msgspec.structs.replace(FAST, logs_max_bytes=0)) as hf:
        run = await hf.start(flows.order, 1)
        await run.result(60)
        assert await run.logs() == []


async def test_whatever_is_logged_does_no_harm(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no text, cannot be formatted, or is far too long, is kept as well as it can be. The engine's own records
    are not the step's."""
    monkeypatch.setattr(logging, "raiseExceptions", False)  # the user's handler cannot format them either
    monkeypatch.setattr(
        flows.log, "propagate", False
    )  # nor can pytest send half of a character to another process
    run = await hf.start(flows.odd)
    assert await run.result(60) == "said"
    messages = [line.message for line in await run.logs("says_odd_things")]
    assert messages[0] == "a NUL \0, half of a character \\udc80, a colour \x1b[31m"
    assert messages[1].startswith("%d pieces ('three',) (cannot be formatted: ")
    assert messages[2].startswith("<Unwilling> () (cannot be formatted: ")
    assert messages[3].startswith("%s <tuple> (cannot be formatted: ")
    assert messages[4] == "b'bytes'"
    assert messages[5].startswith("yyy")
    assert "characters left out" in messages[5]
    assert len(messages[5]) <= 8 * 1024
    assert messages[6] == "from structlog pieces=3"
    assert len(messages) == 7


async def test_threads_of_a_step_belong_to_it_with_its_context(hf: Holdfast, seen: Seen) -> None:
    """A thread that gets a copy of the context logs for the step. A bare thread only logs."""
    run = await hf.start(flows.threaded)
    await run.result(60)
    assert [line.message for line in await run.logs()] == ["from a thread with the context"]
    assert seen.messages == ["from a bare thread", "from a thread with the context"]


async def test_what_is_logged_after_the_end_is_not_kept(hf: Holdfast, seen: Seen) -> None:
    """A thread goes on after its timeout. It says for whom it logs, but the attempt has been reported."""
    flows.late[:] = [threading.Event(), threading.Event()]
    run = await hf.start(flows.outlived)
    assert await run.result(60) == "timed out"
    flows.late[0].set()
    assert await asyncio.to_thread(flows.late[1].wait, 20)
    assert [line.message for line in await run.logs()] == ["in time"]
    late: Any = seen.records[-1]
    assert (late.getMessage(), late.holdfast_step) == ("too late", "outlives")


async def test_a_handler_that_raises_costs_the_line_nothing(hf: Holdfast) -> None:
    """The exception reaches the step, as in any program. The line is kept all the same, and the node goes on."""

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("the log host is away")

    broken = Broken()
    flows.log.addHandler(broken)
    try:
        run = await hf.start(flows.waiting, "broken")
        with pytest.raises(RunFailed, match="the log host is away"):
            await run.result(60)
    finally:
        flows.log.removeHandler(broken)
    assert [line.message for line in await run.logs()] == ["broken is under way"]
    assert await (await hf.start(flows.order, 0)).result(60) == 1


async def test_any_configuration_of_logging_will_do(hf: Holdfast, seen: Seen) -> None:
    """`dictConfig` after the import, a factory that wraps ours, and `extra` with any name."""
    factory = logging.getLogRecordFactory()

    def wrapped(record: logging.LogRecord) -> logging.LogRecord:
        record.mine = "of the user"
        return record

    try:
        logging.config.dictConfig(
            {"version": 1, "disable_existing_loggers": False, "root": {"level": "INFO"}}
        )
        logging.setLogRecordFactory(lambda *args, **kwargs: wrapped(factory(*args, **kwargs)))
        log_fields.install()
        run = await hf.start(flows.order, 0)
        await run.result(60)
        assert len(await run.logs()) == 4
        logging.setLogRecordFactory(logging.LogRecord)  # ours is gone, and a node that starts puts it back
        log_fields.install()
        flows.log.info("extra", extra={"run": 1, "step": 2, "attempt": 3, "run_id": 4})
    finally:
        logging.setLogRecordFactory(factory)


@pytest.mark.parametrize("how", ["returns", "dies"])
async def test_what_an_isolated_step_logs_and_prints_is_kept(
    hf: Holdfast, seen: Seen, capfd: pytest.CaptureFixture[str], how: str
) -> None:
    """Records of all its threads, and what it and its programs print, marked with the stream, also if its process dies.
    The agent's handlers get the records, and what is printed is printed here, too."""
    run = await hf.start(flows.isolated, how)
    if how == "returns":
        assert await run.result(60) == how
    else:
        await until_quarantined(run)
    lines = await run.logs("alone")
    logged = [(line.level, line.message) for line in lines if line.stream is None]
    assert logged == [("INFO", "logged alone"), ("WARNING", "warned alone"), ("INFO", "by a thread")]
    out = [line.message for line in lines if line.stream == "stdout"]
    assert out[:3] == ["printed", "by another program", "no text: \\xff\\xfe"]
    assert out[3].startswith("zzz")
    assert len(out) == 4
    assert [line.message for line in lines if line.stream == "stderr"][:1] == ["printed as an error"]
    assert seen.messages == ["logged alone", "warned alone", "by a thread"]
    assert seen.records[0].holdfast_step == "alone"  # type: ignore[attr-defined]
    assert "printed as an error" in capfd.readouterr().err


async def test_code_that_fails_keeps_its_last_words(hf: Holdfast) -> None:
    """They are written with the end of the run."""
    run = await hf.start(flows.fails_in_code)
    with pytest.raises(RunFailed):
        await run.result(60)
    assert said(await run.logs()) == [(None, None, "ERROR", "about to fail")]


async def test_a_refused_report_writes_no_logs(hf: Holdfast) -> None:
    """An attempt that was taken from its agent is not the agent's any more, and neither is the right to write about
    it."""
    flows.gates["refused"] = asyncio.Event()
    run = await hf.start(flows.waiting, "refused")
    await first_lines(run)
    part = LogPart(1, False, 0, 0, 0, 1, 1.0, b'[[1.0,"INFO","x","forged"]]')
    assert await hf.store.batches.commit(hf.node.id, [Save(run.id, 1, 7, logs=[part])]) == [Answer.FENCED]
    flows.gates["refused"].set()
    await run.result(60)
    assert "forged" not in [line.message for line in await run.logs()]


async def test_wrong_questions_get_an_answer(hf: Holdfast) -> None:
    """An unknown run, step or level is named, with what to do."""
    run = await hf.start(flows.order, 0)
    await run.result(60)
    with pytest.raises(UnknownRun, match="no step 'chrage': `holdfast show"):
        await run.logs("chrage")
    with pytest.raises(InvalidInput, match="3 is no level of logging: use DEBUG"):
        await run.logs(level=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="'loud' is no level of logging: use DEBUG"):
        await run.logs(level="loud")
    with pytest.raises(UnknownRun):
        await hf.run("nobody").logs()


def test_a_level_that_is_none_is_refused_at_once() -> None:
    """A setting that cannot work says so when the node is made."""
    with pytest.raises(InvalidInput, match="logs_level"):
        Holdfast("sqlite://:memory:", config=Config(logs_level="loud"))

"""What the database refuses: the run is held or its step fails, with the database's own message, and others go on."""

from __future__ import annotations

import asyncio
import logging

import pytest

from holdfast import Holdfast
from holdfast.errors import RunFailed, StoreError
from holdfast.model import RunState, StepState
from holdfast.run import Run
from tests.roles import flows
from tests.roles.conftest import FAST, until
from tests.roles.flows import effects, gates
from tests.store.conftest import run_sql


def refuse(url: str, table: str, *, oddly: bool = False, column: str = "output") -> None:
    """Let this table refuse any output, or another column, with the word boom. `oddly` uses another class of error than that of a
    constraint. This waits for the table, so the loop of the node that uses it must go on meanwhile."""
    if url.startswith("sqlite:"):
        what = (
            "SELECT abs(-9223372036854775807 - 1)" if oddly else "SELECT RAISE(ABORT, 'the ledger is closed')"
        )
        for event in ("INSERT", "UPDATE"):
            run_sql(
                url,
                f"CREATE TRIGGER no_boom_{event} BEFORE {event} ON {table} "
                f"WHEN instr(CAST(NEW.{column} AS TEXT), 'boom') BEGIN {what}; END",
            )
    else:
        what = "PERFORM 1 / 0" if oddly else "RAISE EXCEPTION 'the ledger is closed'"
        run_sql(
            url,
            "CREATE FUNCTION no_boom() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF position('boom' in convert_from(NEW.{column}, 'UTF8')) > 0 THEN {what}; END IF; RETURN NEW; END $$",
        )
        run_sql(
            url,
            f"CREATE TRIGGER no_boom BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION no_boom()",
        )


def allow(url: str, table: str) -> None:
    names = ["no_boom_INSERT", "no_boom_UPDATE"] if url.startswith("sqlite:") else [f"no_boom ON {table}"]
    for name in names:
        run_sql(url, f"DROP TRIGGER {name}")


async def test_a_run_whose_hops_are_refused_is_held_and_says_what_the_store_said(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The note, the log and `why` have the database's message. When the cause is mended, the released run ends."""
    async with Holdfast(store_url, config=FAST) as hf:
        await asyncio.to_thread(refuse, store_url, "runs")
        with caplog.at_level(logging.WARNING, "holdfast.scheduler"):
            run = await hf.start(flows.echoes.using(id="r"), "boom")

            async def held() -> bool:
                return await run.state() is RunState.HELD

            async with asyncio.timeout(60):
                while not await held():  # noqa: ASYNC110  what the store says has no event
                    await asyncio.sleep(0.02)
        assert "the ledger is closed" in caplog.text
        assert effects["boom"] == 1
        why = await run.why()
        assert "the ledger is closed" in why
        assert "Once that is mended, `holdfast release r`" in why
        await asyncio.to_thread(allow, store_url, "runs")
        await run.release()
        assert await run.result(60) == "boom"
        assert effects["boom"] == 1


async def test_an_outcome_that_is_refused_fails_its_step(store_url: str) -> None:
    """It acted, and its result cannot be recorded. The workflow gets an error that says so, and why."""
    async with Holdfast(store_url, config=FAST) as hf:
        await asyncio.to_thread(refuse, store_url, "steps")
        run = await hf.start(flows.echoes, "boom")
        with pytest.raises(RunFailed, match="the ledger is closed"):
            await run.result(60)
        assert effects["boom"] == 1


async def test_an_outcome_that_is_refused_fails_its_step_in_another_process(store_url: str) -> None:
    """The same holds where another process has the run."""
    async with (
        Holdfast(store_url, config=FAST, roles=["scheduler", "supervisor"]) as hf,
        Holdfast(store_url, config=FAST, roles=["agent"]),
    ):
        await asyncio.to_thread(refuse, store_url, "steps")
        run = await hf.start(flows.echoes, "boom")
        with pytest.raises(RunFailed, match="the ledger is closed"):
            await run.result(60)
        assert effects["boom"] == 1


async def test_one_that_is_refused_does_not_fail_its_batch(store_url: str) -> None:
    """Whatever class the error has, the other operations of the same commit are written."""
    async with Holdfast(store_url, config=FAST) as hf:
        gates["all"] = asyncio.Event()
        await asyncio.to_thread(refuse, store_url, "steps", oddly=True)
        runs = [await hf.start(flows.gated_echoes, word) for word in ("a", "boom", "b", "c")]
        await until(lambda: effects["waiting"] == 4)
        before = hf.node.writer.commits
        gates["all"].set()  # they end in the same turn of the loop, and so in one commit
        results = await asyncio.gather(*(run.result(60) for run in runs), return_exceptions=True)
        assert [results[0], results[2], results[3]] == ["a", "b", "c"]
        assert isinstance(results[1], RunFailed)
        assert hf.node.writer.commits > before
        assert [step.state for step in await runs[1].steps()] == [StepState.FAILED]


@pytest.mark.parametrize("roles", [(), ("scheduler", "agent")], ids=["caller", "node"])
@pytest.mark.parametrize("oddly", [False, True], ids=["refused", "failed"])
async def test_a_start_that_is_refused_fails_alone(
    store_url: str, roles: tuple[str, ...], oddly: bool
) -> None:
    """Starts share a commit. Whoever gets an answer has a run, and whoever has no run gets an error."""
    async with Holdfast(store_url, config=FAST, roles=roles) as hf:
        await asyncio.to_thread(refuse, store_url, "runs", oddly=oddly, column="input")
        words = ["a", "b", "boom", "c", "d", "e", "f"]
        starts = [hf.start(flows.echoes.using(id=f"run-{word}"), word) for word in words]
        answers = await asyncio.gather(*starts, return_exceptions=True)
        found = {run.id for run in await hf.runs(limit=100)}
    for word, answer in zip(words, answers, strict=True):
        assert isinstance(answer, StoreError if word == "boom" else Run), (word, answer)
        assert (f"run-{word}" in found) is (word != "boom")


async def test_a_run_whose_code_refuses_a_cancel_can_be_asked_again(hf: Holdfast) -> None:
    """Code that catches CancelledError goes on, as in asyncio. `why` says so, and the next cancel is a new request."""
    gates["one"], gates["two"] = asyncio.Event(), asyncio.Event()
    run = await hf.start(flows.stubborn.using(id="s"))
    await until(lambda: effects["one"] == 1)
    await run.cancel("too late")
    await run.cancel("too late")
    await until(lambda: effects["two"] == 1)
    why = await run.why()
    assert " ago (too late); " in why
    assert (
        "its code got the request, and is cleaning up or goes on anyway: `holdfast cancel s --force` asks again"
        in why
    )
    assert await run.state() is RunState.RUNNING
    await run.cancel("once more")
    assert [row.verb for row in await hf.store.reads.journal(run.id)].count("cancel") == 1
    await run.cancel("really", force=True)
    with pytest.raises(RunFailed, match="cancelled"):
        await run.result(60)
    assert await run.state() is RunState.CANCELLED
    assert [row.verb for row in await hf.store.reads.journal(run.id)].count("cancel") == 2

"""What a program gets from its handles: answers with decoded payloads, or an error that says what is the case."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import apsw
import psycopg
import pytest

from holdfast import Holdfast, HoldfastError, Run, RunFailed, RunInfo, RunState, Stop, keep, step, workflow
from holdfast.errors import DefinitionError, RunCancelled, RunUndone, UnknownRun
from tests.roles import flows
from tests.roles.conftest import FAST, until
from tests.roles.flows import Parcel, effects, gates

ASKED: dict[str, Callable[[Run[Any]], Awaitable[Any]]] = {
    "result": lambda run: run.result(),
    "result in time": lambda run: run.result(timeout=timedelta(hours=1)),
    "result at once": lambda run: run.result(timeout=0),
    "info": lambda run: run.info(),
    "state": lambda run: run.state(),
    "published": lambda run: run.published(),
    "steps": lambda run: run.steps(),
    "view": lambda run: run.view(),
    "watch": lambda run: anext(run.watch()),
    "why": lambda run: run.why(),
    "eta": lambda run: run.eta(),
    "cancel": lambda run: run.cancel(),
    "cancel by force": lambda run: run.cancel(force=True),
    "hold": lambda run: run.hold(),
    "release": lambda run: run.release(),
    "retry": lambda run: run.retry(),
    "skip": lambda run: run.skip(),
    "skip a step": lambda run: run.skip("charge"),
    "logs": lambda run: run.logs(),
    "fork": lambda run: run.fork(),
    "send": lambda run: flows.paid.send(run.id, Parcel("Oslo", 1)),
}


class Declined(Exception):
    card: str
    cents: int

    def __init__(self, card: str, cents: int) -> None:
        super().__init__(card, cents)
        self.card, self.cents = card, cents


@step(retry=1)
async def decline(card: str) -> None:
    raise Declined(card, 300)


@step
async def make() -> str:
    return "made"


@make.undo
async def unmake(made: str | None) -> None: ...


@workflow
async def declined(card: str, undo: bool) -> None:
    await make()
    if not undo:
        keep()
    await decline(card)


@workflow
async def local_error() -> None:
    class Local(Exception): ...

    raise Local("nobody can rebuild it")


def test_every_question_is_asked_below() -> None:
    """Every method of a handle is called with an unknown run, so a new method has to be added here."""
    public = {name for name in vars(Run) if not name.startswith("_") and callable(getattr(Run, name))}
    for_commands = {"rows", "forked", "step_keys", "number_of"}
    assert public - {what.split()[0] for what in ASKED} == for_commands


@pytest.mark.parametrize("run_id", ["no-such-run", "", "a\0b", "half a pair \ud800", "a" * 5000, "💥'\"; --"])
async def test_nothing_is_known_of_an_unknown_run(hf: Holdfast, run_id: str) -> None:
    """Every method raises UnknownRun. None waits, returns an empty list, or raises an error of the database."""
    for what, ask in ASKED.items():
        with pytest.raises(UnknownRun, match="no run has the id"):  # noqa: PT012  the message says which one failed
            async with asyncio.timeout(60):
                await ask(hf.run(run_id))
            pytest.fail(what)


async def test_a_client_without_roles_gets_the_error_too(store_url: str) -> None:
    """It waits by reading the store."""
    async with Holdfast(store_url, roles=(), config=FAST) as hf:
        with pytest.raises(UnknownRun):
            await hf.run("no-such-run").result()


async def test_who_waits_for_a_run_that_is_removed_gets_an_error(store_url: str) -> None:
    """A prune or a person may remove it before this process reads its end. The caller gets UnknownRun, and does not
    wait for ever."""
    async with Holdfast(store_url, roles=(), config=FAST) as hf:
        run = await hf.start(flows.chain, 1)  # no scheduler is there
        waiting = asyncio.ensure_future(run.result())
        await until(lambda: run.id in hf.caller._watchers)
        remove(store_url, run.id)
        with pytest.raises(UnknownRun):
            async with asyncio.timeout(60):
                await waiting


def remove(url: str, run_id: str) -> None:
    if url.startswith("postgresql"):
        with psycopg.connect(url) as connection:
            connection.execute("DELETE FROM holdfast.runs WHERE id = %s", [run_id])
    else:
        with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as file:
            file.set_busy_timeout(10_000)
            file.execute("DELETE FROM runs WHERE id = ?", [run_id])


async def test_a_run_is_read_with_its_payloads(hf: Holdfast) -> None:
    """Input, output, tags, published values, progress and times, as Python values."""
    gates["speaks"] = asyncio.Event()
    gates["speaks"].set()
    run = await hf.start(flows.speaks.using(id="speaks", tags={"team": "a"}, priority=3))
    await run.result(60)
    await (await hf.start(flows.takes_parcel.using(id="parcel"), Parcel("Oslo", 5))).result(60)
    info = await run.info()
    assert (info.id, info.workflow, info.version, info.state) == (
        "speaks",
        flows.speaks.name,
        "1",
        "succeeded",
    )
    assert (info.input, info.output, info.error, info.note) == ({}, "done", None, None)
    assert (info.tags, info.published) == ({"team": "a"}, {"city": "Oslo", "grams": 12})
    assert (info.progress, info.priority, info.namespace) == ((0.5, "half way"), 3, "default")
    assert (info.parent_id, info.retry_of, info.generation, info.deadline) == (None, None, 1, None)
    assert info.started_at is not None
    assert info.finished_at is not None
    assert info.created_at <= info.started_at <= info.finished_at <= datetime.now(UTC) + timedelta(minutes=1)
    assert info.created_at.tzinfo is UTC
    (spoken,) = await run.steps()
    assert (spoken.key, spoken.input, spoken.output, spoken.error) == (
        "gated",
        {"name": "speaks"},
        "speaks",
        None,
    )
    assert (spoken.attempt, spoken.spent, spoken.losses, spoken.quarantined) == (1, 1, 0, False)
    assert (await hf.run("parcel").info()).input == {"parcel": {"city": "Oslo", "grams": 5}}
    assert "speaks" in repr(info)
    assert info == await run.info()
    view = [view async for view in run.watch()][-1]
    assert (view.run, view.steps, view.attempts) == (info, [spoken], [])


async def test_runs_are_listed_by_keywords_and_in_pages(hf: Holdfast) -> None:
    """`hf.runs(state=…, workflow=…, tags=…, limit=…, before=…)` gives what a program can read."""
    for i in range(5):
        await (await hf.start(flows.chain.using(id=f"chain-{i}", tags={"n": str(i % 2)}), i)).result(60)
    with pytest.raises(RunFailed):
        await (await hf.start(flows.fails.using(id="fails"), "boom")).result(60)

    async def found(**where: Any) -> list[str]:
        return [info.id for info in await hf.runs(**where)]

    assert await found(state="failed") == await found(state=[RunState.FAILED, "held"]) == ["fails"]
    assert await found(workflow=flows.chain, tags={"n": "1"}) == ["chain-3", "chain-1"]
    assert await found(workflow="chain", limit=2) == ["chain-4", "chain-3"]
    pages: list[list[RunInfo]] = [await hf.runs(limit=2)]
    while pages[-1]:
        pages.append(await hf.runs(limit=2, before=pages[-1][-1]))
    assert [info.id for page in pages for info in page] == ["fails", *(f"chain-{i}" for i in (4, 3, 2, 1, 0))]
    for wrong in ({"state": "done"}, {"state": [RunState.FAILED, "lost"]}, {"limit": 0}, {"limit": "5"}):
        with pytest.raises(HoldfastError, match=r"runs\("):
            await hf.runs(**cast("dict[str, Any]", wrong))


async def test_a_failed_run_raises_from_the_workflows_own_exception(hf: Holdfast) -> None:
    """It is `RunFailed.__cause__`, with its class and attributes, and not another exception in its place."""
    with pytest.raises(RunFailed) as failed:
        await (await hf.start(declined.using(id="kept"), "tok", False)).result(60)
    with pytest.raises(RunUndone) as undone:
        await (await hf.start(declined.using(id="undone"), "tok", True)).result(60)
    for raised in (failed.value, undone.value):
        cause = raised.__cause__
        assert isinstance(cause, Declined)
        assert (cause.card, cause.cents) == ("tok", 300)
        assert raised.run_id in {"kept", "undone"}
    error = (await hf.run("kept").info()).error
    assert isinstance(error, Declined)
    with pytest.raises(RunFailed, match="nobody can rebuild it") as foreign:
        await (await hf.start(local_error)).result(60)
    assert foreign.value.__cause__ is None


async def test_a_cancelled_run_says_so(hf: Holdfast) -> None:
    """The error has no cause, because nothing went wrong."""
    gates["wait"] = asyncio.Event()
    run = await hf.start(flows.gate, "wait")
    await until(lambda: effects["wait"] == 1)
    await run.cancel("not wanted")
    with pytest.raises(RunCancelled):
        await run.result(timeout=timedelta(seconds=10))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"roles": "agent"}, r"write roles=\['agent'\]"),
        ({"roles": ["worker"]}, "'worker' is no role: 'scheduler', 'agent', 'supervisor'"),
        ({"roles": [None]}, "is no role"),
        ({"roles": None}, "a list of roles"),
        ({"labels": "gpu"}, r"write labels=\['gpu'\]"),
        ({"labels": [""]}, "printable"),
        ({"labels": [3]}, "printable"),
        ({"labels": 3}, "list of labels"),
        ({"store": 5}, "the address of a store"),
    ],
)
def test_wrong_settings_are_refused_where_they_are_written(settings: dict[str, Any], message: str) -> None:
    """A role that does not exist would do nothing, silently."""
    with pytest.raises(HoldfastError, match=message):
        Holdfast(**settings)


async def test_wrong_patience_is_refused(hf: Holdfast) -> None:
    """It is refused before anything is waited for."""
    run = await hf.start(flows.chain, 1)
    for wrong in (-1, "5", float("nan"), True, timedelta(seconds=-1)):
        with pytest.raises(DefinitionError, match="timeout"):
            await run.result(timeout=wrong)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(DefinitionError, match="every_s"):
        await anext(run.watch(every_s=0))
    assert await run.result(60) == 1


async def test_stop_is_a_cause_too(hf: Holdfast) -> None:
    """Exceptions of Holdfast's own are rebuilt like any other."""

    @workflow(name="tests.stops_itself")
    async def stops() -> None:
        raise Stop("enough")

    with pytest.raises(RunFailed) as failed:
        await (await hf.start(stops)).result(60)
    assert isinstance(failed.value.__cause__, Stop)

"""Namespaces are a wall: whoever is in one names, sees, delays, trips and undoes nothing in another. On both stores."""

from __future__ import annotations

import asyncio
import random as chance
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from msgspec import structs

from holdfast import Holdfast, Retry, Signal, Stop, Update, here, step, workflow
from holdfast.config import Config
from holdfast.errors import (
    DefinitionError,
    InvalidInput,
    RunFailed,
    UnknownAct,
    UnknownRun,
    UnknownWorkflow,
    WrongState,
)
from holdfast.model import BreakerState, HoldScope, RunState
from tests.roles.conftest import FAST, until

QUICK = Config(
    poll_s=0.05,
    sweep_s=0.05,
    watch_s=0.05,
    heart=False,
    breaker_failures_min=3,
    breaker_wait_s=0.1,
    breaker_open_s=600.0,
    breaker_open_max_s=600.0,
)
T = TypeVar("T")
done: Counter[str] = Counter()
broken: set[str] = set()
opened = Signal("opened", str)
asked = Update("asked", str, str)


@pytest.fixture(autouse=True)
def clean() -> None:
    done.clear()
    broken.clear()


def place() -> str:
    """Return the namespace of the running step, which only its stored key says."""
    return here.key.partition("//")[0] if "//" in here.key else "default"


@step
async def work(text: str) -> str:
    done[f"{place()} {here.run_id}"] += 1
    return f"{place()}: {text}"


@workflow
async def plain(text: str = "done") -> str:
    return await work(text)


@workflow
async def inner(text: str) -> str:
    return await work(text)


@workflow
async def later() -> str:
    return await opened.wait(60)


@workflow
async def outer() -> list[str]:
    child = await inner.using(id="child")("inside")
    night = await later.using(id="night").start()
    await opened.send(night, "hello")
    return [child, night]


@workflow
async def sender(to: str) -> None:
    await opened.send(to, "hello")


@workflow
async def leaver() -> str:
    return await inner.using(namespace="acme")("over the wall")


@workflow
async def answering() -> str:
    async with asked.serve(lambda text: f"{text}!"):
        return await opened.wait(60)


@step(depends="bank", retry=Retry(attempts=1))
async def pay() -> str:
    if place() in broken:
        raise ConnectionError("the bank does not answer")
    return place()


@workflow
async def buy() -> str:
    return await pay()


@step(retry=Retry(attempts=1), isolate=True)
def poison() -> None:
    import os

    os._exit(9)


@workflow
async def dies() -> None:
    await poison()


@workflow
async def wrong() -> None:
    await stop()


@step
async def stop() -> None:
    raise Stop(ValueError("no"))


async def eventually(ask: Callable[[], Awaitable[T]], is_so: Callable[[T], bool]) -> T:
    """Ask the store until the answer is as it should be, with a deadline for what never happens."""
    async with asyncio.timeout(60):
        while not is_so(found := await ask()):  # noqa: ASYNC110  what others write gives no event here
            await asyncio.sleep(0.02)
    return found


@asynccontextmanager
async def nodes(url: str, *namespaces: Any, config: Config = FAST) -> AsyncIterator[list[Holdfast]]:
    """Open a node for each of these."""
    found = [Holdfast(url, config=config, namespace=one) for one in namespaces]
    for one in found:
        await one.open()
    try:
        yield found
    finally:
        for one in found:
            await one.close()


async def test_the_same_id_in_two_namespaces_is_two_runs(store_url: str) -> None:
    """Each namespace has its own run of the id, and sees the bare id. The whole store shows both, by stored names."""
    async with nodes(store_url, "default", "acme") as (here_, acme):
        for hf in (here_, acme):
            run = await hf.start(plain.using(id="x"))
            assert run.id == "x"
        assert await here_.run("x").result(60) == "default: done"
        assert await acme.run("x").result(60) == "acme: done"
        for hf, namespace in ((here_, "default"), (acme, "acme")):
            (info,) = await hf.runs()
            assert (info.id, info.namespace, info.workflow) == ("x", namespace, plain.name)
            (row,) = await hf.run("x").steps()
            assert row.name == work.name
            assert [one.id for one in await hf.runs(workflow="plain")] == ["x"]
            assert [one.id for one in await hf.runs(workflow=plain)] == ["x"]
            assert [one.id for one in await hf.runs(prefix="x")] == ["x"]
        async with Holdfast(store_url, roles=(), namespace="*") as whole:
            assert sorted(one.id for one in await whole.runs()) == ["acme//x", "x"]
            assert await whole.run("acme//x").result(0) == "acme: done"
    assert done == {"default x": 1, "acme x": 1}


async def test_a_run_of_another_namespace_cannot_be_named(store_url: str) -> None:
    """Not by its bare id, and not by its stored one: it is unknown, whatever is asked about it."""
    async with nodes(store_url, "default", "acme") as (here_, acme):
        await (await acme.start(plain.using(id="x"))).result(60)
        for name in ("x", "acme//x"):
            run = here_.run(name)
            for ask in (
                run.info,
                run.why,
                run.steps,
                run.cancel,
                run.hold,
                run.retry,
                run.fork,
                run.logs,
                run.rows,
            ):
                with pytest.raises(UnknownRun):
                    await ask()
            with pytest.raises(UnknownRun):
                await here_.send_signal(name, "opened", b'"hello"', None)
            with pytest.raises(UnknownRun):
                await here_.call_update(name, "asked", b'"hello"', None, 1)
            with pytest.raises(UnknownRun):
                await run.result(1)
        with pytest.raises(InvalidInput, match="// in it"):
            await here_.runs(prefix="acme//")
        assert await here_.runs() == []
        with pytest.raises(InvalidInput):
            await here_.runs(namespace="acme")


async def test_a_node_works_only_for_the_namespaces_that_it_names(store_url: str) -> None:
    """A run waits for a node of its namespace, whatever other nodes with the same code are up."""
    async with (
        nodes(store_url, "default", "beta") as (here_, beta),
        Holdfast(store_url, roles=(), namespace="acme") as caller,
    ):
        run = await caller.start(plain.using(id="x"))
        for hf in (here_, beta):
            assert await (await hf.start(plain)).result(60)
        assert await run.state() is RunState.PENDING
        assert "--namespace acme" in await run.why()
        async with nodes(store_url, ["beta", "acme"]):
            assert await run.result(60) == "acme: done"
        assert await caller.runs(state="pending") == []


async def test_a_node_for_all_namespaces_works_for_each(store_url: str) -> None:
    """`*` claims whatever there is, and starts in the namespace that is named, or in default."""
    async with nodes(store_url, "*") as (whole,):
        async with Holdfast(store_url, roles=(), namespace="acme") as caller:
            assert await (await caller.start(plain.using(id="x"))).result(60) == "acme: done"
        named = await whole.start(plain.using(id="y", namespace="beta"))
        assert named.id == "beta//y"
        assert await named.result(60) == "beta: done"
        assert await (await whole.start(plain.using(id="y"))).result(60) == "default: done"


async def test_what_code_names_is_in_the_namespace_of_its_run(store_url: str) -> None:
    """Children, started runs and signals: the same ids in two namespaces are other runs."""
    async with nodes(store_url, "default", "acme") as (here_, acme):
        runs = [await hf.start(outer.using(id="o")) for hf in (here_, acme)]
        assert [await run.result(60) for run in runs] == [
            ["default: inside", "night"],
            ["acme: inside", "night"],
        ]
        for hf in (here_, acme):
            assert await hf.run("night").result(60) == "hello"
            assert (await hf.run("child").info()).parent_id == "o"
            assert (await hf.run("night").info()).started_by == "o"


@pytest.mark.parametrize("namespace", ["default", "beta"])
async def test_code_cannot_reach_over_the_wall(store_url: str, namespace: str) -> None:
    """A workflow that names a stored id, or another namespace, fails. Nothing arrives there."""
    async with nodes(store_url, namespace, "acme") as (hf, acme):
        waits = await acme.start(later.using(id="x"))
        with pytest.raises(RunFailed, match="cannot be a run's id"):
            await (await hf.start(sender, "acme//x")).result(60)
        with pytest.raises(RunFailed, match="in the namespace of that workflow's run"):
            await (await hf.start(leaver)).result(60)
        assert await waits.state() is not RunState.SUCCEEDED
        await acme.send_signal("x", "opened", b'"own"', None)
        assert await waits.result(60) == "own"


@pytest.mark.parametrize("wrong_id", ["a//b", "//a", "/a", "a/", "acme//x"])
async def test_an_id_that_would_look_like_a_namespace_is_refused(store_url: str, wrong_id: str) -> None:
    """`//` stands between a namespace and an id, and a child of `a/` would have it."""
    with pytest.raises(DefinitionError, match="no `::` or `//` in it, no / at either end"):
        plain.using(id=wrong_id)
    async with nodes(store_url, "acme") as (hf,):
        run = await hf.start(plain.using(id="x"))
        await run.result(60)
        with pytest.raises(InvalidInput):
            await run.fork(id=wrong_id)


@pytest.mark.parametrize("name", ["", " a", "a/b", "a//b", "-a", "*a", 7])
def test_what_cannot_be_a_namespace_is_refused(name: Any) -> None:
    """The message says what a namespace may look like."""
    if name == "":
        assert Holdfast("sqlite:///x.db", namespace=name).namespace == "default"
        return
    with pytest.raises(InvalidInput, match="letters, digits, dots, dashes or underscores"):
        Holdfast("sqlite:///x.db", namespace=name)


async def test_a_run_is_started_only_where_the_holdfast_works(store_url: str) -> None:
    """`using(namespace=…)` chooses among the namespaces of the Holdfast."""
    async with nodes(store_url, ["acme", "beta"], "default") as (both, here_):
        assert await (await both.start(plain.using(namespace="beta"))).result(60) == "beta: done"
        assert await (await both.start(plain)).result(60) == "acme: done"
        with pytest.raises(InvalidInput, match=r"Holdfast\(namespace='acme'\)"):
            await here_.start(plain.using(namespace="acme"))


async def test_failures_in_one_namespace_open_no_breaker_of_another(store_url: str) -> None:
    """Both depend on a bank. One cannot reach it, and its breaker opens; the other goes on, and sees no breaker."""
    broken.add("acme")
    async with nodes(store_url, "default", "acme", config=QUICK) as (here_, acme):
        for _ in range(6):
            await acme.start(buy)
        (breaker,) = await eventually(
            acme.gates.breakers, lambda found: [one.state for one in found] == [BreakerState.OPEN]
        )
        assert breaker.name == "bank"
        assert await here_.gates.breakers() == []
        assert await (await here_.start(buy)).result(60) == "default"
        waiting = await acme.start(buy)
        said = await eventually(waiting.why, lambda words: "bank" in words)
        assert "acme//" not in said
        with pytest.raises(WrongState, match="'bank' has no breaker"):
            await here_.gates.reset("bank")
        alerts = await eventually(lambda: acme.desk.alerts.list(acme.who, everything=False, limit=9), bool)
        assert all("acme//" not in one.words for one in alerts)
        assert await here_.desk.alerts.list(here_.who, everything=True, limit=9) == []
        assert await here_.desk.alerts.clear(here_.who, alerts[0].alert.id) is False
        assert [one.verb for one in await acme.desk.journal.list(acme.who, 9)] == ["breaker open"]
        assert await here_.desk.journal.list(here_.who, 9) == []


@pytest.mark.parametrize("scope", ["workflow", "step", "dependency", "everything"])
async def test_a_hold_in_one_namespace_stops_nothing_in_another(store_url: str, scope: str) -> None:
    """Everything in a namespace is what is in that namespace."""
    scopes: dict[str, dict[str, Any]] = {
        "workflow": {"workflow": "buy"},
        "step": {"step": "pay"},
        "dependency": {"dependency": "bank"},
        "everything": {"everything": True},
    }
    what = scopes[scope]
    async with nodes(store_url, "default", "acme") as (here_, acme):
        await (await acme.start(buy)).result(60)
        placed = await acme.gates.hold(**what, note="the bank moves")
        assert placed.new
        assert placed.known
        assert "//" not in placed.hold.value
        agent = acme.node.agent
        assert agent is not None
        await until(lambda: agent.gates.shut)
        held = await acme.start(buy.using(id="held"))
        assert await (await here_.start(buy)).result(60) == "default"
        assert await here_.gates.holds() == []
        with pytest.raises(WrongState, match="there is no hold"):
            await here_.gates.release(**what)
        said = await eventually(held.why, lambda words: "has been held by" in words)
        assert "acme//" not in said
        assert await held.state() is not RunState.SUCCEEDED
        (seen,) = await acme.gates.holds()
        assert seen == placed.hold
        assert (seen.scope is HoldScope.NAMESPACE) == (scope == "everything")
        await acme.gates.release(**what)
        assert await held.result(60) == "acme"


async def test_quarantine_keeps_to_its_namespace(store_url: str) -> None:
    """The same step that kills its process has another fingerprint in each namespace, and nobody decides about another's."""
    quick = Config(poll_s=0.05, sweep_s=0.05, suspect_losses=1, losses_max=1)
    async with nodes(store_url, "default", "acme", config=quick) as (here_, acme):
        for hf in (here_, acme):
            await hf.start(dies.using(id="x"))
        found = []
        for hf in (here_, acme):
            found += await eventually(hf.quarantine, bool)
        one, other = found
        assert one.fingerprint != other.fingerprint
        assert (one.step, one.example) == (other.step, other.example) == (poison.name, "x")
        assert await here_.resolve("fail", other.fingerprint) == 0
        assert len(await acme.quarantine()) == 1
        assert await acme.resolve("fail", other.fingerprint) == 1
        with pytest.raises(RunFailed):
            await acme.run("x").result(60)
        assert await acme.quarantine() == []
        assert len(await here_.quarantine()) == 1


async def test_acts_on_many_mean_one_namespace(store_url: str) -> None:
    """A plan lists only runs of its namespace, and another namespace does not know the act."""
    # A plan leaves alone what changes after it was made: so the runs wait already, and are not parked meanwhile.
    stays = structs.replace(FAST, park_after_s=600.0)
    async with nodes(store_url, "default", "acme", config=stays) as (here_, acme):
        for hf in (here_, acme):
            run = await hf.start(later.using(id="x"))
            await eventually(run.steps, bool)
        plan = await acme.plan("cancel", workflow="later")
        assert [one.run_id async for one in plan.runs()] == ["x"]
        assert plan.preview.changes[0].sample == ["x"]
        assert await here_.acts() == []
        for ask in (here_.act(plan.id).info, here_.act(plan.id).stop, here_.act(plan.id).carry_out):
            with pytest.raises(UnknownAct):
                await ask()
        assert (await plan.carry_out()).done == 1
        with pytest.raises(Exception, match="cancelled"):
            await acme.run("x").result(60)
        assert await here_.run("x").state() in {RunState.RUNNING, RunState.PENDING}


async def test_a_retry_and_a_fork_stay_in_the_namespace(store_url: str) -> None:
    """Their ids are bare there, and they keep what the run has recorded."""
    async with nodes(store_url, "acme") as (acme,):
        run = await acme.start(wrong.using(id="x"))
        with pytest.raises(RunFailed):
            await run.result(60)
        again = await run.retry()
        assert again.id == "x~2"
        with pytest.raises(RunFailed):
            await again.result(60)
        assert (await again.info()).retry_of == "x"
        good = await acme.start(plain.using(id="good"))
        await good.result(60)
        made = await good.fork()
        assert made.id == "good-fork-1"
        assert await made.result(60) == "acme: done"
        named = await good.fork(id="mine", input={"text": "other"})
        assert (named.id, await named.result(60)) == ("mine", "acme: other")
        assert (await named.info()).forked_from == "good"


async def test_updates_are_answered_inside(store_url: str) -> None:
    """Both namespaces have a run of the same id that serves the update."""
    async with nodes(store_url, "default", "acme") as (here_, acme):
        for hf in (here_, acme):
            await hf.start(answering.using(id="x"))
            assert await hf.call_update("x", "asked", b'"so"', None, 60) == b'"so!"'


async def test_nodes_and_workflows_are_seen_where_they_work(store_url: str) -> None:
    """A namespace sees its own nodes and what their code declares. A node for all is seen everywhere."""
    async with nodes(store_url, "default", "acme", "*") as (here_, acme, whole):
        seen = [
            {one.node.id for one in (await hf.desk.agents.list(hf.who)).nodes} for hf in (here_, acme, whole)
        ]
        ids = [hf.node_id for hf in (here_, acme, whole)]
        assert seen == [{ids[0], ids[2]}, {ids[1], ids[2]}, set(ids)]
        (own,) = [one for one in (await acme.desk.agents.list(acme.who)).nodes if one.node.id == ids[1]]
        assert plain.name in {one.rpartition("@")[0] for one in own.offers["workflows"]}
        assert {one.namespace for one in await acme.desk.workflows.list(acme.who)} == {"acme", "*"}
        with pytest.raises(UnknownWorkflow):
            await acme.runs(workflow="nothing_of_the_kind")


async def test_a_plan_of_names_is_the_same_in_any_order_of_namespaces(store_url: str) -> None:
    """What a caller sees does not depend on which namespace was there first, nor on how many there are."""
    names = [f"n{i}" for i in range(12)]
    chance.Random(7).shuffle(names)
    async with nodes(store_url, "*") as (whole,):
        for name in names:
            await whole.start(plain.using(id="x", namespace=name))
        for name in names:
            await whole.run(f"{name}//x").result(60)
        listed = [one.id for one in await whole.runs(limit=5)]
        assert listed == [f"{name}//x" for name in reversed(names)][:5]
        page = await whole.runs(limit=5, before=(await whole.runs(limit=5))[-1])
        assert [one.id for one in page] == [f"{name}//x" for name in reversed(names)][5:10]


def test_a_step_has_stored_names_in_a_namespace() -> None:
    """An agent has the same step once for each namespace, with the names that the store has there."""
    inside = work.within("acme")
    assert (inside.name, inside.depends, inside.bare_name) == (
        f"acme//{work.name}",
        f"acme//{work.name}",
        work.name,
    )
    assert pay.within("acme").depends == "acme//bank"
    assert work.within("default") is work

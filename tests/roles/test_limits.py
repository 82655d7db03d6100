"""Limits with real nodes: never more at work than a key allows, whoever executes it, and what `why` says meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast, Retry, step, workflow
from holdfast.config import Config
from holdfast.errors import DefinitionError, InvalidInput, LimitReached, RunCancelled, UnknownLimit
from holdfast.limits import Limit, Rate
from holdfast.queues import LimitKey, QueueKey
from holdfast.store.operations import Start
from tests.roles.conftest import until
from tests.store.conftest import run_sql

QUICK = Config(poll_s=0.05, heart=False)
at_work: Counter[str] = Counter()
most: Counter[str] = Counter()
opened: list[bool] = []
fails: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def clean() -> None:
    at_work.clear()
    most.clear()
    fails.clear()
    opened.clear()


async def work(key: str) -> None:
    at_work[key] += 1
    most[key] = max(most[key], at_work[key])
    try:
        await asyncio.sleep(0.005)
    finally:
        at_work[key] -= 1


@step(limits=[Limit("account:{account}", 2)], retry=Retry(attempts=3, delay=0.001))
async def charge(account: str, number: int) -> int:
    await work(account)
    if number % 7 == 0 and fails[f"{account} {number}"] < 1:
        fails[f"{account} {number}"] += 1
        raise ConnectionError("busy")
    return number


@step(limits=[Limit("customer:{fair}", 1), Limit("memory", 4, weight=3), Rate("calls", 100_000, per=1)])
async def heavy(number: int) -> int:
    await work("heavy")
    return number


@step(limits=[Limit("slow", 1)])
async def slow() -> str:
    at_work["slow"] += 1
    while not opened:  # noqa: ASYNC110  an Event would belong to the loop of the first test
        await asyncio.sleep(0.005)
    return "done"


@step(limits=[Rate("mail", 1, per=1000, burst=3)])
async def mail(number: int) -> int:
    at_work["mail"] += 1
    return number


@workflow
async def charges(account: str, number: int) -> int:
    return sum(await asyncio.gather(*(charge(account, one) for one in range(number))))


@workflow
async def heavies(number: int) -> int:
    return sum(await asyncio.gather(*(heavy(one) for one in range(number))))


@workflow
async def waits() -> str:
    return await slow()


@workflow
async def mails(number: int) -> int:
    return len(await asyncio.gather(*(mail(one) for one in range(number))))


@pytest.mark.parametrize("agents", [1, 3])
async def test_no_more_are_at_work_than_the_limit(store_url: str, agents: int) -> None:
    """Each account has its own limit, over all agents. Retries wait without a place."""
    async with Holdfast(store_url, config=QUICK) as hf:
        others = [Holdfast(store_url, config=QUICK, roles=("agent",)) for _ in range(agents - 1)]
        for one in others:
            await one.__aenter__()
        try:
            runs = [await hf.start(charges, account, 12) for account in ("a", "b")]
            for run in runs:
                assert await run.result(60) == sum(range(12))
        finally:
            for one in others:
                await one.__aexit__(None, None, None)
        assert most == {"a": 2, "b": 2}
        listed = {one.key: (one.most, one.used) for one in await hf.limits.list()}
        assert listed == {"account:a": (2, 0), "account:b": (2, 0)}


async def test_several_limits_and_a_weight(store_url: str) -> None:
    """A step of weight 3 under a limit of 4 is alone."""
    async with Holdfast(store_url, config=QUICK) as hf:
        runs = [await hf.start(heavies.using(fair=f"c{number}"), 3) for number in range(3)]
        for run in runs:
            await run.result(60)
    assert most["heavy"] == 1


async def test_why_names_the_limit_and_an_operator_can_raise_it(store_url: str) -> None:
    """`why` says which limit is full, `limits` who holds it, and a higher number counts at once."""
    async with Holdfast(store_url, config=QUICK) as hf:
        first = await hf.start(waits.using(id="first"))
        await until(lambda: at_work["slow"] == 1)
        second = await hf.start(waits.using(id="second"))

        async def waiting() -> bool:
            return len((await hf.limits.show("slow")).waiters) == 1

        for _ in range(200):
            if await waiting():
                break
            await asyncio.sleep(0.02)
        said = await second.why()
        assert "a slot under slow: 1 of 1 are taken" in said
        assert "holdfast limits slow" in said
        seen = await hf.limits.show("slow")
        assert [(one.run, one.n) for one in seen.holders] == [("first", 1)]
        assert [(one.run, one.n) for one in seen.waiters] == [("second", 1)]
        await hf.limits.set("slow", 2, "more came")
        await until(lambda: at_work["slow"] == 2)
        opened.append(True)
        assert (await first.result(60), await second.result(60)) == ("done", "done")
        with pytest.raises(UnknownLimit, match="no limit has the key 'nothing'"):
            await hf.limits.set("nothing", 2)
        with pytest.raises(InvalidInput, match="whole number"):
            await hf.limits.set("slow", -1)


async def test_a_rate_lets_a_burst_begin(store_url: str) -> None:
    """The others wait for their tokens, and `why` says when the next one comes."""
    async with Holdfast(store_url, config=QUICK) as hf:
        run = await hf.start(mails, 5)
        await until(lambda: at_work["mail"] == 3)
        await asyncio.sleep(0.2)
        assert at_work["mail"] == 3
        assert "its turn under the rate mail" in await run.why()
        await hf.limits.set("mail", 1_000_000)
        assert await run.result(60) == 5


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ([Limit("a", 0)], "the number: expected a whole number above 0"),
        (
            [Limit("a:{missing}", 1)],
            r"there is no \{missing\}: a key can name \{account\}, \{fair\}|there is no",
        ),
        ([Limit("", 1)], "a key needs 1 to 200"),
        ([Limit("a//b", 1)], "no `//` in it"),
        ([Limit("a{", 1)], "braces"),
        ([Limit("a", 1, full="skip")], "is for workflows"),
        ([Limit("a", 2, weight=3)], "it could never begin"),
        ([Limit("a", 1), Limit("a", 2)], "each key once"),
        ([Limit(str(one), 1) for one in range(4)], "at most 3 limits and 2 rates"),
        ([Rate(str(one), 1) for one in range(3)], "at most 3 limits and 2 rates"),
        ([Rate("a", 1, per=0)], "above 0"),
        ([Rate("a", 1, burst=0)], "burst: expected a whole number above 0"),
        ([Limit("a", 9, adaptive="yes")], "adaptive: expected True or False"),  # type: ignore[arg-type]
        ([Limit("a", 9, least=2)], r"Limit\('a', …\): least=2 is for adaptive limits"),
        ([Limit("a", 9, adaptive=True, least=0)], "least: expected a whole number above 0"),
        ([Limit("a", 9, adaptive=True, least=10)], "least=10 is more than the ceiling 9"),
        ([Limit("a", 9, weight=3, adaptive=True)], "Write least=3"),
        (["a"], "expected a Limit or a Rate"),
        (Limit("a", 1), r"write limits=\["),
        (7, "expected a list"),
    ],
)
def test_a_wrong_limit_is_refused_where_it_is_written(limits: Any, words: str) -> None:
    """The message names the step, the limit and what is wrong with it."""
    with pytest.raises(DefinitionError, match=words):

        @step(name="wrong", limits=limits)
        async def wrong(account: str) -> None: ...


def test_keys_are_filled_in_once_for_each_fair_key() -> None:
    """Keys that name no argument are remembered, so that a hop does not fill them in again. Others depend on the arguments."""
    remembered, read = [
        step(name=f"filled.{one}", limits=[Limit(one, 5)]) for one in ("a:{fair}", "b:{site}")
    ]

    async def fetch(site: str) -> None: ...

    plain, named = remembered(fetch).limits, read(fetch).limits
    assert plain is not None
    assert named is not None
    first, again, other = [plain.filled("default", fair, b"{}") for fair in ("acme", "acme", "bolt")]
    assert first is again
    assert [one.name for one in (*first, *other)] == ["a:acme", "a:bolt"]
    found = [named.filled("default", "acme", b'{"site": "%s"}' % site)[0].name for site in (b"x", b"y")]
    assert found == ["b:x", "b:y"]
    assert plain.filled("team", "acme", b"{}")[0].name == "team//a:acme"


def test_an_adaptive_limit_is_for_steps() -> None:
    """A workflow that has one is refused where it is written, and so is an adaptive rate."""
    with pytest.raises(DefinitionError, match=r"wrong.*Limit\('a', …\): adaptive=True is for steps"):

        @workflow(name="wrong", limits=[Limit("a", 5, adaptive=True)])
        async def wrong() -> None: ...

    with pytest.raises(TypeError, match="adaptive"):
        Rate("a", 5, adaptive=True)  # type: ignore[call-arg]


def test_a_hedged_step_has_no_limit() -> None:
    """Its second attempt would be one too many."""
    with pytest.raises(DefinitionError, match="hedge=True runs a call twice"):

        @step(name="twice", hedge=True, limits=[Limit("a", 1)])
        async def twice() -> None: ...


@workflow(limits=[Limit("import:{site}", 1)])
async def imports(site: str) -> str:
    at_work[site] += 1
    most[site] = max(most[site], at_work[site])
    await asyncio.sleep(0.01)
    at_work[site] -= 1
    return site


@workflow(limits=[Limit("alone:{site}", 1, full="skip")])
async def alone(site: str) -> str:
    await wait_open()
    return site


@workflow(limits=[Limit("newest", 1, full="replace")])
async def newest(number: int) -> int:
    await wait_open()
    return number


@workflow(limits=[Limit("strict", 1, full="refuse")])
async def strict() -> None:
    await wait_open()


@step
async def wait_open() -> None:
    while not opened:  # noqa: ASYNC110  as above
        await asyncio.sleep(0.005)


@workflow(limits=[Limit("nest", 1)])
async def outer(depth: int) -> int:
    return depth if depth == 0 else await outer(depth - 1)


async def test_all_limits_and_fair_keys_are_listed(store_url: str) -> None:
    """However many there are: each page goes on after the one before it."""
    keys = [f"customer:{number:05}" for number in range(1203)]
    async with Holdfast(store_url, roles=()) as hf:
        await hf.store.queues.number_queues([QueueKey(key, (LimitKey(key, 1),)) for key in keys])
        assert [one.key for one in await hf.limits.list()] == keys
        assert [one.key for one in await hf.limits.fairs()] == keys


async def test_runs_are_limited_too(store_url: str) -> None:
    """One run is open for each key, also while it sleeps. The others wait, and none is lost."""
    async with Holdfast(store_url, config=QUICK) as hf, Holdfast(store_url, config=QUICK) as other:
        runs = [
            await one.start(imports, site) for _ in range(4) for site in ("a", "b") for one in (hf, other)
        ]
        for run in runs:
            await run.result(60)
    assert most == {"a": 1, "b": 1}


async def test_a_full_limit_skips_a_start(store_url: str) -> None:
    """The start answers with the open run. When that has ended, another one can be started."""
    async with Holdfast(store_url, config=QUICK) as hf:
        first = await hf.start(alone, "a")
        again, other = await hf.start(alone, "a"), await hf.start(alone, "b")
        assert again.id == first.id != other.id
        opened.append(True)
        await first.result(60)
        assert (await hf.start(alone, "a")).id != first.id


async def test_a_full_limit_replaces_the_oldest(store_url: str) -> None:
    """The open run is cancelled, and the new one begins when it has ended."""
    async with Holdfast(store_url, config=QUICK) as hf:
        first = await hf.start(newest, 1)
        second = await hf.start(newest, 2)
        with pytest.raises(RunCancelled):
            await first.result(60)
        opened.append(True)
        assert await second.result(60) == 2


@step
async def reserve(number: int) -> int:
    return number


@reserve.undo
async def give_back(_: int | None, number: int) -> None:
    at_work["leaving"] += 1
    while not opened:  # noqa: ASYNC110  as above
        await asyncio.sleep(0.005)


@workflow(limits=[Limit("careful", 1, full="replace")])
async def careful(number: int) -> int:
    await reserve(number)
    at_work["here"] += 1
    await wait_open()
    return number


async def test_a_full_limit_replaces_who_waits_too(store_url: str) -> None:
    """While the oldest one undoes itself, each start takes the slot of the one before it. Only the newest runs."""
    async with Holdfast(store_url, config=QUICK) as hf:
        first = await hf.start(careful, 0)
        await until(lambda: at_work["here"] > 0)
        runs = [await hf.start(careful, 1)]
        await until(lambda: at_work["leaving"] > 0)
        runs += [await hf.start(careful, number) for number in (2, 3)]
        for run in runs[:-1]:
            with pytest.raises(RunCancelled):
                await run.result(60)
        opened.append(True)
        with pytest.raises(RunCancelled):
            await first.result(60)
        assert await runs[-1].result(60) == 3


@workflow(limits=[Limit("room", 4, weight=1, full="replace")])
async def small(number: int) -> int:
    await wait_open()
    return number


@workflow(limits=[Limit("room", 4, weight=3, full="replace")])
async def large(number: int) -> int:
    await wait_open()
    return number


async def test_a_heavy_run_replaces_as_many_as_it_needs(store_url: str) -> None:
    """The oldest ones make room for it, and no others."""
    async with Holdfast(store_url, config=QUICK) as hf:
        runs = [await hf.start(small, number) for number in range(4)]
        heavy_one = await hf.start(large, 9)
        for run in runs[:3]:
            with pytest.raises(RunCancelled):
                await run.result(60)
        opened.append(True)
        assert (await runs[3].result(60), await heavy_one.result(60)) == (3, 9)


async def test_a_limit_of_nothing_refuses_a_start(store_url: str) -> None:
    """It has no room, although no run is open. `why` and the message say that the number is the reason."""
    async with Holdfast(store_url, config=QUICK) as hf:
        opened.append(True)
        await (await hf.start(strict)).result(60)
        await hf.limits.set("strict", 0)
        with pytest.raises(LimitReached, match="the limit's number is 0"):
            await hf.start(strict)


async def test_why_a_heavy_step_cannot_begin(store_url: str) -> None:
    """A step that takes three slots says so when the limit has room for two only, and when its number is too low."""
    async with Holdfast(store_url, config=QUICK) as hf:
        await (await hf.start(heavily)).result(60)
        await hf.limits.set("memory", 2)
        run = await hf.start(heavily)
        await until_waits(run, "for 3 slots under memory, which has 2: `holdfast limits set memory 3`")
        await hf.limits.set("memory", None)
        assert await run.result(60) == 1


@workflow
async def heavily() -> int:
    return await heavy(1)


@step(limits=[Limit("memory", 4)])
async def hold_memory() -> None:
    at_work["memory"] += 1
    while not opened:  # noqa: ASYNC110  as above
        await asyncio.sleep(0.005)


@workflow
async def lightly() -> None:
    await hold_memory()


async def test_why_names_slots_that_are_saved_up(store_url: str) -> None:
    """A heavy step that has waited for long, and who may not have the slot that is free now, say for whom it is saved up. Both
    begin when there is room."""
    async with Holdfast(store_url, config=QUICK) as hf:
        runs: list[Any] = [await hf.start(lightly) for _ in range(3)]
        await until(lambda: at_work["memory"] == 3)
        heavy_one = await hf.start(heavily)
        await until_waits(heavy_one, "for 3 slots under memory: 3 of 4 are taken")
        ago = "1.0" if store_url.startswith("sqlite") else "'epoch'"
        run_sql(store_url, f"UPDATE steps SET ready_at = {ago} WHERE state = 'ready'")
        await until_waits(heavy_one, "what is free is saved up for it")
        late = await hf.start(lightly)
        await until_waits(late, "what is free is saved up for what takes several at once")
        opened.append(True)
        for run in [*runs, late, heavy_one]:
            await run.result(60)


async def until_waits(run: Any, words: str) -> None:
    async with asyncio.timeout(60):
        while words not in await run.why():  # noqa: ASYNC110  a condition in the store gives no event
            await asyncio.sleep(0.05)


async def test_a_full_limit_refuses_a_start(store_url: str) -> None:
    """The start raises, and says which run is open."""
    async with Holdfast(store_url, config=QUICK) as hf:
        first = await hf.start(strict)
        with pytest.raises(LimitReached, match=first.id):
            await hf.start(strict)
        opened.append(True)
        await first.result(60)
        await (await hf.start(strict)).result(60)


async def test_a_child_does_not_wait_for_its_parent(store_url: str) -> None:
    """Who is under a key that a run above it is under takes no second slot."""
    async with Holdfast(store_url, config=QUICK) as hf:
        assert await (await hf.start(outer, 3)).result(60) == 0


async def test_a_run_that_was_started_without_the_code_gets_its_limits(store_url: str) -> None:
    """The scheduler that claims it puts it into its queue. So a schedule or a server cannot pass a limit."""
    async with Holdfast(store_url, config=QUICK) as hf:
        for number in range(4):
            new = hf._new_run(imports.using(id=f"r{number}"), b'{"site": "a"}')
            bare = msgspec.structs.replace(new, limits=())
            await hf.store.batches.commit(hf.node.id, [Start(bare)])
        for number in range(4):
            await hf.run(f"r{number}").result(60)
        rows = [await hf.store.reads.run(f"r{number}") for number in range(4)]
    assert most == {"a": 1}
    assert all(row is not None and row.queue > 0 and row.state == "succeeded" for row in rows)

"""Steps that kill their processes, with real processes and signals: they are found, the fleet stays up, and a person
decides."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Run
from holdfast.agent.assignment import Assignment
from holdfast.config import Config
from holdfast.errors import RunCancelled, RunFailed, RunStuck, RunUndone
from holdfast.model import RunState, StepState
from tests.roles import flows, outside, poisonous
from tests.roles.conftest import FAST, until
from tests.roles.crash import through
from tests.roles.outside import effects
from tests.roles.test_recovery import node_process
from tests.store.conftest import run_sql

CONFIG = Config(
    poll_s=0.1,
    beat_s=0.1,
    sweep_s=0.05,
    watch_s=0.1,
    leader_lease_s=2.0,
    loss_back_off_s=0.05,
    park_after_s=0.5,
)
LONG_S = 60.0


async def eventually(true: Callable[[], Awaitable[Any]], limit_s: float = LONG_S) -> None:
    """Wait until a condition of the store is true, with a deadline instead of a guess."""
    async with asyncio.timeout(limit_s):
        while not await true():  # noqa: ASYNC110  what the store says has no event
            await asyncio.sleep(0.02)


async def becomes(run: Run[Any], state: RunState) -> None:
    async def is_so() -> bool:
        return await run.state() is state

    await eventually(is_so)


@asynccontextmanager
async def fleet(url: str, deaths: list[int]) -> AsyncIterator[None]:
    """Run one agent process at a time. Whenever one dies, start the next, as a pool would."""

    async def keep() -> None:
        while True:
            async with node_process(url, "agent") as agent:
                await agent.wait()
                deaths.append(agent.pid)

    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


@asynccontextmanager
async def others(url: str) -> AsyncIterator[Holdfast]:
    """A scheduler and a supervisor; other processes execute the steps."""
    async with Holdfast(url, roles=["scheduler", "supervisor"], config=CONFIG) as hf:
        yield hf


@pytest.mark.parametrize("how", ["exit", "segv", "kill"])
async def test_a_step_that_kills_its_agents_is_found_out(store_url: str, tmp_path: Path, how: str) -> None:
    """After its budget of losses it is in quarantine and its run is stuck, though the run's owner is alive in another
    process. The next agent lives and does other work. Once it is mended and released, it goes on and succeeds."""
    folder, deaths = str(tmp_path), list[int]()
    async with others(store_url) as hf, fleet(store_url, deaths):
        run = await hf.start(poisonous.exploding, folder, how)
        with pytest.raises(RunStuck, match="was lost"):
            await run.result(LONG_S)
        assert effects(folder) == [f"explode attempt {number}" for number in (1, 2, 3, 4)]
        other = await hf.start(poisonous.refused.using(id="other"), folder)
        await eventually(lambda: hf.store.quarantine.quarantined("other"))
        assert len(deaths) == 4
        (poison,) = [one for one in await hf.quarantine() if one.place == "agent lost"]
        assert (poison.step, poison.steps, poison.example) == ("tests.roles.poisonous.explode", 1, run.id)
        assert f"`holdfast quarantine release {poison.fingerprint}`" in await run.why()
        await eventually(lambda: has_alert(hf, poison.fingerprint))
        (tmp_path / "mended").touch()
        assert await hf.resolve("release", poison.fingerprint, note="mended") == 1
        assert await run.result(LONG_S) == "mended"
        assert (await run.steps())[0].attempt == 5
        await hf.resolve("fail", run_id=other.id)
        assert await other.result(LONG_S) == "caught not today"
        assert len(deaths) == 4
        await eventually(lambda: has_alert(hf, poison.fingerprint, False))
        assert [name for name, _, rows in await hf.store.reads.doctor() if rows] == []


async def has_alert(hf: Holdfast, fingerprint: str, there: bool = True) -> bool:
    opened = await hf.store.alerts.open_alerts(100)
    return any(alert.key == f"step quarantined:{fingerprint}" for alert in opened) is there


async def test_those_beside_a_poison_step_are_not_taken_for_one(store_url: str, tmp_path: Path) -> None:
    """At first, steps in the same agent lose it as often as the one that kills it. Then they are suspects, begun one at
    a time: the innocent ones end, and only the poison one is in quarantine."""
    folder, deaths, many = str(tmp_path), list[int](), 4
    async with others(store_url) as hf, fleet(store_url, deaths):
        run = await hf.start(poisonous.beside, folder, "kill", many)
        await until(lambda: "explode attempt 2" in effects(folder), LONG_S)
        for number in range(many):
            (tmp_path / f"gate-{number}").touch()
        await becomes(run, RunState.STUCK)
        rows = await run.steps()
        assert Counter(row.state for row in rows) == {StepState.SUCCEEDED: many, StepState.READY: 1}
        assert [row.name for row in rows if row.quarantined] == ["tests.roles.poisonous.explode"]
        (tmp_path / "mended").touch()
        await run.retry()
        assert await run.result(LONG_S) == [1] * many
        assert len(deaths) == 4


async def test_suspects_wait_their_turn_without_being_claimed(store_url: str) -> None:
    """Forty steps lost their agents before, and there is one agent. While the first one runs, none of the others is
    claimed and handed back. Each is claimed once, steps that are no suspects pass them, and `why` says what they wait
    for."""
    many = 40
    flows.gates["suspects"] = asyncio.Event()
    async with Holdfast(store_url, roles=["scheduler", "supervisor"], config=FAST) as hf:
        runs = [await hf.start(flows.gate.using(id=f"s{i}"), "suspects") for i in range(many)]
        run_sql(store_url, "UPDATE steps SET losses = 2, attempt = 2, fence = fence + 4")
        async with Holdfast(store_url, roles=["agent"], config=FAST) as other:
            agent = other.node.agent
            assert agent is not None
            claims: list[int] = []
            claim = agent._claims.claim

            async def counted(assignments: Iterable[Assignment]) -> int:
                claims.append(await claim(assignments))
                return claims[-1]

            agent._claims.claim = counted  # type: ignore[method-assign]
            await until(lambda: len(agent.assignments) == 1, LONG_S)
            flows.gates["no suspect"] = asyncio.Event()
            flows.gates["no suspect"].set()
            await (await hf.start(flows.gate, "no suspect")).result(LONG_S)
            polls = len(claims)
            await until(lambda: len(claims) >= polls + 10, LONG_S)
            assert len(agent.assignments) == 1
            waiting = [run for run in runs if (await run.steps())[0].state is StepState.READY]
            assert len(waiting) == many - 1
            assert "this one waits for its turn" in await waiting[-1].why()
            flows.gates["suspects"].set()
            for run in runs:
                await run.result(LONG_S)
        for run in runs:
            (row,) = await run.steps()
            assert (row.attempt, row.excused) == (3, 0), "claimed once, and never handed back"


async def test_a_policy_may_let_it_fail_instead(store_url: str, tmp_path: Path) -> None:
    """With `quarantine=False` the workflow gets StepLost, and can take another branch."""
    deaths: list[int] = []
    async with others(store_url) as hf, fleet(store_url, deaths):
        assert await (await hf.start(poisonous.catches_the_loss, str(tmp_path))).result(LONG_S) == "StepLost"
        assert len(deaths) == 1


async def test_an_undo_that_kills_its_agents_waits_and_the_others_go_on(
    store_url: str, tmp_path: Path
) -> None:
    """Undoing goes on with what does not depend on it; then the run is stuck. Mended and retried, it ends undone."""
    folder, deaths = str(tmp_path), list[int]()
    async with others(store_url) as hf, fleet(store_url, deaths):
        run = await hf.start(poisonous.undone, folder)
        with pytest.raises(RunStuck):
            await run.result(LONG_S)
        row = (await run.rows()).run
        assert (row.state, row.resume) == (RunState.STUCK, RunState.UNDOING)
        assert await run.cancel("a cancel changes nothing") is RunState.STUCK
        assert "unbook last attempt 1" in effects(folder)
        assert not any(line.startswith("unbook first") for line in effects(folder))
        (tmp_path / "mended").touch()
        await run.retry()
        with pytest.raises(RunUndone):
            await run.result(LONG_S)
        assert any(line.startswith("unbook first") for line in effects(folder))


@pytest.mark.parametrize("act", ["skip", "abandon", "resolve"])
async def test_an_undo_in_quarantine_can_be_done_without(store_url: str, tmp_path: Path, act: str) -> None:
    """It is counted as done by hand, by its run or by its fingerprint, or it is left as it is with the rest."""
    folder, deaths = str(tmp_path), list[int]()
    async with others(store_url) as hf, fleet(store_url, deaths):
        run = await hf.start(poisonous.undone, folder)
        await becomes(run, RunState.STUCK)
        if act == "skip":
            (poison,) = [row for row in await run.steps() if row.quarantined]
            await run.skip(poison.key.removeprefix("undo:"), "by hand")
        elif act == "abandon":
            await run.cancel(force=True)
        else:
            (one,) = await hf.quarantine()
            await hf.resolve("skip", one.fingerprint)
        with pytest.raises(RunFailed) as failed:
            await run.result(LONG_S)
        assert isinstance(failed.value, RunUndone) is (act != "abandon")
        assert any(line.startswith("unbook first") for line in effects(folder)) is (act != "abandon")
        assert await hf.quarantine() == []
        assert [name for name, _, rows in await hf.store.reads.doctor() if rows] == []


async def test_a_childs_poison_is_the_childs(store_url: str, tmp_path: Path) -> None:
    """The child is stuck, and its parent waits and says so. When the child fails, its parent gets the error."""
    folder, deaths = str(tmp_path), list[int]()
    async with others(store_url) as hf, fleet(store_url, deaths):
        run = await hf.start(poisonous.parent, folder, "kill")
        await eventually(lambda: hf.store.reads.children(run.id))
        (row,) = await hf.store.reads.children(run.id)
        child: Run[Any] = hf.run(row.id)
        await becomes(child, RunState.STUCK)
        assert await run.state() is RunState.RUNNING
        assert "which is stuck" in await run.why()
        (poison,) = await hf.quarantine()
        assert await hf.resolve("fail", poison.fingerprint) == 1
        assert await run.result(LONG_S) in {"StepLost", "RunFailed", "StepFailed"}
        assert await child.state() is RunState.FAILED


# --- steps in processes of their own: the agent survives ------------------------------------------------------------------


@pytest.fixture
async def hf(store_url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(store_url, config=CONFIG) as holdfast:
        yield holdfast


@pytest.mark.parametrize(("how", "place"), [("exit", "exit 3"), ("segv", "SIGSEGV"), ("kill", "SIGKILL")])
async def test_a_step_that_kills_its_own_process(hf: Holdfast, tmp_path: Path, how: str, place: str) -> None:
    """It has the same budget, and the fingerprint says how it died. When it is skipped, the workflow gets the result
    that was given."""
    run = await hf.start(poisonous.exploding_alone, str(tmp_path), how)
    with pytest.raises(RunStuck, match="the step's process"):
        await run.result(LONG_S)
    (poison,) = await hf.quarantine()
    assert (poison.error, poison.place) == ("holdfast.errors.StepLost", place)
    assert effects(tmp_path) == ["book first", "alone attempt 1", "alone attempt 2"]
    assert await hf.resolve("skip", poison.fingerprint, result="by hand") == 1
    assert await run.result(LONG_S) == "by hand"


async def test_a_failed_one_undoes_its_run(hf: Holdfast, tmp_path: Path) -> None:
    """What was done before is undone, in a run that does not catch the error."""
    run = await hf.start(poisonous.exploding_alone, str(tmp_path), "segv")
    await becomes(run, RunState.STUCK)
    await hf.resolve("fail", run_id=run.id)
    with pytest.raises(RunUndone, match="SIGSEGV"):
        await run.result(LONG_S)
    assert effects(tmp_path)[-1] == "unbook first attempt 1"


async def test_other_branches_of_its_run_go_on(hf: Holdfast, tmp_path: Path) -> None:
    """The run is stuck only when they have ended."""
    run = await hf.start(poisonous.branches, str(tmp_path))
    await becomes(run, RunState.STUCK)
    marks = [line for line in effects(tmp_path) if line.startswith("mark")]
    assert marks == ["mark one", "mark two", "mark three"]
    (tmp_path / "mended").touch()
    await run.retry()
    assert await run.result(LONG_S) == "mended and through"


async def test_a_released_step_that_kills_again_waits_again(hf: Holdfast, tmp_path: Path) -> None:
    """It has all of its budget again, and the same fingerprint."""
    run = await hf.start(poisonous.exploding_alone, str(tmp_path), "kill")
    await becomes(run, RunState.STUCK)
    (first,) = await hf.quarantine()
    await run.retry()
    await eventually(lambda: _attempts(run, 4))
    await becomes(run, RunState.STUCK)
    (second,) = await hf.quarantine()
    assert second.fingerprint == first.fingerprint


async def _attempts(run: Run[Any], number: int) -> bool:
    return len((await run.view()).attempts) == number


@pytest.mark.parametrize("force", [False, True])
async def test_a_stuck_run_is_cancelled_like_any_other(hf: Holdfast, tmp_path: Path, force: bool) -> None:
    """Its code gets the cancel, what it did is undone, and it ends. Nothing of it stays in quarantine."""
    run = await hf.start(poisonous.exploding_alone, str(tmp_path), "segv")
    await becomes(run, RunState.STUCK)
    await run.cancel("enough", force=force)
    with pytest.raises(RunCancelled):
        await run.result(LONG_S)
    assert effects(tmp_path)[-1] == "unbook first attempt 1"
    assert await hf.quarantine() == []
    assert [name for name, _, rows in await hf.store.reads.doctor() if rows] == []


async def test_a_deadline_ends_a_run_that_waits_for_a_person(hf: Holdfast, tmp_path: Path) -> None:
    """A run with a deadline is not stuck: when the deadline comes, the run is undone."""
    run = await hf.start(poisonous.in_time, str(tmp_path))
    with pytest.raises(RunFailed) as failed:
        await run.result(LONG_S)
    assert not isinstance(failed.value, RunStuck)
    assert effects(tmp_path)[-1] == "unbook first attempt 1"
    assert await hf.quarantine() == []


async def test_errors_of_its_own_send_a_step_there_if_its_policy_says_so(
    hf: Holdfast, tmp_path: Path
) -> None:
    """It goes there after all its attempts, and the fingerprint names the line. When it is failed, the workflow gets
    that very exception."""
    run = await hf.start(poisonous.refused, str(tmp_path))
    await becomes(run, RunState.STUCK)
    (poison,) = await hf.quarantine()
    assert poison.error == "builtins.ValueError"
    assert poison.place.startswith("poisonous.py:")
    assert effects(tmp_path) == ["refuse attempt 1", "refuse attempt 2"]
    await hf.resolve("fail", poison.fingerprint)
    assert await run.result(LONG_S) == "caught not today"


async def test_the_line_is_known_across_processes(hf: Holdfast, tmp_path: Path) -> None:
    """An exception from an isolated step's process keeps its place."""
    run = await hf.start(poisonous.refused_alone, str(tmp_path))
    await becomes(run, RunState.STUCK)
    (poison,) = await hf.quarantine()
    assert poison.place.startswith("poisonous.py:")


async def test_many_that_are_alike_are_decided_at_once(store_url: str, tmp_path: Path) -> None:
    """They are decided in batches, however many runs wait."""
    config = Config(**{name: getattr(CONFIG, name) for name in CONFIG.__struct_fields__} | {"claim_max": 4})
    async with Holdfast(store_url, config=config) as hf:
        # Fewer failures than open a breaker.
        runs = [await hf.start(poisonous.refused, str(tmp_path)) for _ in range(9)]
        for run in runs:
            await becomes(run, RunState.STUCK)
        (poison,) = await hf.quarantine()
        assert (poison.steps, poison.runs) == (9, 9)
        (tmp_path / "mended").touch()
        heard: list[int] = []
        assert await hf.resolve("release", poison.fingerprint, progress=heard.append) == 9
        assert heard == [4, 8, 9]
        assert [await run.result(LONG_S) for run in runs] == ["mended"] * 9


async def test_a_node_that_hosts_everything_comes_back_after_its_own_death(
    store_url: str, tmp_path: Path
) -> None:
    """Scheduler, agent and supervisor are in one process, and one of its own steps kills it, again and again. The next
    one that is started counts, and the last one lives."""
    folder, deaths = str(tmp_path), 0
    async with Holdfast(store_url, roles=[]) as caller:
        run = await caller.start(poisonous.exploding, folder, "kill")
        while deaths < 4:
            async with node_process(store_url, "scheduler,agent,supervisor") as doomed:
                await asyncio.wait_for(doomed.wait(), LONG_S)
                deaths += 1
        async with node_process(store_url, "scheduler,agent,supervisor") as survivor:
            await becomes(run, RunState.STUCK)
            open_ = tmp_path / "other"
            open_.mkdir()
            (open_ / "gate").touch()
            assert await (await caller.start(outside.around_block, str(open_))).result(LONG_S) == 1
            assert survivor.returncode is None
        assert len(effects(folder)) == 4


async def test_a_crash_anywhere_leaves_it_in_quarantine_once(store_url: str, tmp_path: Path) -> None:
    """The process dies before or after any write on the way there. The next one counts what was spent, the run is
    stuck, and a release ends it."""
    crash_at, points = 0, 1
    while crash_at <= points:
        folder = tmp_path / f"crash-{crash_at}"
        folder.mkdir()
        run_id = f"run-{crash_at}"

        async def begin(hf: Holdfast, run_id: str = run_id, folder: Path = folder) -> None:
            await hf.start(poisonous.refused.using(id=run_id), str(folder))

        passed, state = await through(store_url, CONFIG, begin, crash_at or None, run_id)
        where = passed.passed[-1]
        assert state == "stuck", where
        # A node that dies after the attempt and before its report has the attempt counted as lost.
        assert 2 <= len(effects(folder)) <= (3 if crash_at else 2), where
        (folder / "mended").touch()
        async with Holdfast(store_url, config=CONFIG) as hf:
            assert len(await hf.store.quarantine.quarantined(run_id)) == 1, where
            assert await hf.resolve("release", run_id=run_id) == 1, where
            assert await hf.run(run_id).result(LONG_S) == "mended", where
            assert [name for name, _, rows in await hf.store.reads.doctor() if rows] == [], where
        points = points if crash_at else len(passed.passed)
        crash_at += 1
    assert points > 4

"""What a run does in one node that hosts all roles, on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.config import Config
from holdfast.errors import Conflict, InvalidInput, RunCancelled, RunFailed, UnknownRun, WrongState
from holdfast.model import Outcome, RunState, StepKind, StepState
from holdfast.run import Run
from holdfast.store.answers import Undelivered
from tests.roles import flows
from tests.roles.conftest import FAST, until
from tests.roles.flows import Parcel, effects, gates


async def test_a_run_gives_its_result_and_each_step_ran_once(hf: Holdfast) -> None:
    """A chain of steps runs each once, in order, and the result is typed."""
    run = await hf.start(flows.chain, 5)
    assert await run.result(60) == 5
    assert effects["add"] == 5
    assert [step.key for step in await run.steps()] == ["add", "add#2", "add#3", "add#4", "add#5"]


async def test_plain_functions_run_in_threads(hf: Holdfast) -> None:
    """A `def` step runs in a thread of the agent, not in its loop."""
    assert await (await hf.start(flows.threads, 6)).result(60) == 21
    assert effects["thread holdfast-step"] == 6


async def test_the_same_id_gives_the_same_run(hf: Holdfast) -> None:
    """Starting an id again with the same input returns the run that exists, and runs nothing twice."""
    first = await hf.start(flows.chain.using(id="one"), 3)
    second = await hf.start(flows.chain.using(id="one"), 3)
    assert (await first.result(60), await second.result(60)) == (3, 3)
    third = await hf.start(flows.chain.using(id="one"), 3)
    assert await third.result(60) == 3
    assert effects["add"] == 3


async def test_the_same_id_fifty_times_at_once_is_one_run(hf: Holdfast) -> None:
    """Fifty starts in parallel with one id make one run."""
    runs = await asyncio.gather(*(hf.start(flows.chain.using(id="fifty"), 2) for _ in range(50)))
    assert {await run.result(60) for run in runs} == {2}
    assert effects["add"] == 2


async def test_the_same_id_with_another_input_is_a_conflict(hf: Holdfast) -> None:
    """The same id with another input is refused, also while the first is in memory."""
    run = await hf.start(flows.chain.using(id="x"), 3)
    with pytest.raises(Conflict, match="'x'"):
        await hf.start(flows.chain.using(id="x"), 4)
    await run.result(60)
    with pytest.raises(Conflict, match="'x'"):
        await hf.start(flows.chain.using(id="x"), 4)


async def test_an_input_that_does_not_fit_is_refused_at_the_caller(hf: Holdfast) -> None:
    """A wrong input names its field, and no run exists afterwards."""
    with pytest.raises(InvalidInput, match="grams"):
        await hf.start(flows.takes_parcel, Parcel("Oslo", "heavy"))  # type: ignore[arg-type]  # the point
    assert await hf.runs() == []
    assert "Oslo 6" in await (await hf.start(flows.takes_parcel, Parcel("Oslo", 5))).result(60)


async def test_a_failing_step_is_retried_with_the_same_key(hf: Holdfast) -> None:
    """Attempts share `here.key`. Those that failed are kept for the timeline, and the outcome is that of the last
    one."""
    run = await hf.start(flows.retried.using(id="r"), "flaky", 2)
    assert await run.result(60) == 3
    assert effects["flaky"] == 3
    assert set(flows.keys) == {"r::flaky"}
    view = await run.view()
    assert [(attempt.attempt, attempt.ending) for attempt in view.attempts] == [(1, "failed"), (2, "failed")]


async def test_a_step_that_gives_up_raises_its_own_exception(hf: Holdfast) -> None:
    """When the budget is spent the workflow sees the step's exception; uncaught, the run fails with it."""
    run = await hf.start(flows.retried, "hopeless", 99)
    with pytest.raises(RunFailed, match="ConnectionError: attempt 3"):
        await run.result(60)
    assert effects["hopeless"] == 3
    assert await run.state() is RunState.FAILED


async def test_stop_is_not_retried(hf: Holdfast) -> None:
    """`Stop` ends a step at its first attempt, and the workflow can catch it."""
    assert await (await hf.start(flows.stopped, "stop")).result(60) == "caught no use"
    assert effects["stop"] == 1


async def test_retry_in_spends_no_attempt(hf: Holdfast) -> None:
    """Three `RetryIn` do not use up a budget of two attempts."""
    assert await (await hf.start(flows.calls_put_off, "later")).result(60) == 4


async def test_an_attempt_that_overruns_is_timed_out_and_retried(hf: Holdfast) -> None:
    """Each attempt gets its timeout; after the last the workflow sees TimeoutError."""
    run = await hf.start(flows.times_out, "slow")
    assert await run.result(60) == "timed out"
    assert effects["slow"] == 2
    assert [attempt.ending for attempt in (await run.view()).attempts] == ["timed out"]


async def test_a_thread_that_overruns_sees_that_it_is_cancelled(hf: Holdfast) -> None:
    """A thread cannot be killed. So the step is timed out, and its code sees `here.cancelled`."""
    assert await (await hf.start(flows.times_out_in_thread, "thread")).result(60) == "timed out"
    await until(lambda: effects["thread cancelled"] == 1)


async def test_a_checkpoint_is_found_by_the_next_attempt(hf: Holdfast) -> None:
    """What `here.save` kept, the next attempt finds in `here.saved`."""
    assert await (await hf.start(flows.resumes_checkpoint, "cp")).result(60) == 2
    assert [effects[f"cp from {n}"] for n in range(3)] == [1, 1, 1]


async def test_a_signal_is_delivered_to_the_wait(hf: Holdfast) -> None:
    """A typed signal resumes the run that waits for it."""
    run = await hf.start(flows.waits_for_payment, 60)
    assert "signal 'paid'" in await run.why()
    await flows.paid.send(run.id, Parcel("Bergen", 7))
    assert await run.result(60) == "Bergen 7"


async def test_a_signal_may_come_before_the_wait(hf: Holdfast) -> None:
    """A signal that arrives while the workflow is busy elsewhere is there when it waits."""
    gates["busy"] = asyncio.Event()
    run = await hf.start(flows.busy_then_paid, "busy")
    await until(lambda: effects["busy"] == 1)
    await flows.paid.send(run.id, Parcel("Hamar", 1))
    gates["busy"].set()
    assert await run.result(60) == "Hamar"


async def test_a_signal_with_the_same_key_counts_once(hf: Holdfast) -> None:
    """An event that is sent twice with one key is delivered once."""
    run = await hf.start(flows.waits_for_payment, 60)
    for grams in (1, 2):
        await flows.paid.send(run.id, Parcel("Bergen", grams), key="event-1")
    assert await run.result(60) == "Bergen 1"
    assert len(await hf.store.reads.signals(run.id)) == 1


async def test_a_wait_times_out_durably(hf: Holdfast) -> None:
    """A wait's timeout is a durable timer."""
    assert await (await hf.start(flows.waits_for_payment, 0.05)).result(60) == "never paid"


async def test_a_signal_to_an_unknown_or_ended_run_is_refused(hf: Holdfast) -> None:
    """The sender gets an error, because nothing will receive the signal."""
    with pytest.raises(UnknownRun):
        await flows.paid.send("nobody", Parcel("X", 1))
    run = await hf.start(flows.chain, 1)
    await run.result(60)
    with pytest.raises(WrongState):
        await flows.paid.send(run.id, Parcel("X", 1))


async def test_child_runs_return_their_results(hf: Holdfast) -> None:
    """A workflow called in a workflow is a run of its own, with a parent."""
    run = await hf.start(flows.parent.using(id="p"), 2)
    assert await run.result(60) == 5
    assert {child.id for child in await hf.store.reads.children("p")} == {"p/chain", "child-of-2"}


async def test_a_childs_failure_reaches_its_parent(hf: Holdfast) -> None:
    """The parent sees the child's own exception and can go on."""
    assert await (await hf.start(flows.parent_of_failure)).result(60) == "child said boom"


async def test_cancelling_reaches_the_running_step(hf: Holdfast) -> None:
    """Cancelling a run cancels the step that runs, and the run ends `cancelled`."""
    gates["held"] = asyncio.Event()
    run = await hf.start(flows.gate, "held")
    await until(lambda: effects["held"] == 1)
    await run.cancel("changed our mind")
    with pytest.raises(RunCancelled):
        await run.result(60)
    await until(lambda: effects["held cancelled"] == 1)
    assert [step.state for step in await run.steps()] == ["cancelled"]


async def test_a_cancelled_workflow_may_clean_up(hf: Holdfast) -> None:
    """`finally` runs, with durable steps of its own, before the run ends."""
    gates["c"] = asyncio.Event()
    run = await hf.start(flows.cleans_up, "c")
    await until(lambda: effects["c"] == 1)
    await run.cancel()
    with pytest.raises(RunCancelled):
        await run.result(60)
    assert effects["c cleaned"] == 1


async def test_cancelling_a_parent_cancels_its_child(hf: Holdfast) -> None:
    """A child whose parent no longer waits is cancelled too."""
    gates["deep"] = asyncio.Event()
    run = await hf.start(flows.parent_of_gate.using(id="pg"), "deep")
    await until(lambda: effects["deep"] == 1)
    await run.cancel()
    with pytest.raises(RunCancelled):
        await run.result(60)
    with pytest.raises(RunCancelled):
        await hf.run("pg/gate").result(60)
    await until(lambda: effects["deep cancelled"] == 1)


async def test_cancelling_an_ended_run_changes_nothing(hf: Holdfast) -> None:
    """An ended run stays as it is."""
    run = await hf.start(flows.chain, 1)
    await run.result(60)
    assert await run.cancel() is RunState.SUCCEEDED
    assert await run.result(60) == 1


async def test_a_run_past_its_deadline_fails(hf: Holdfast) -> None:
    """`@workflow(timeout=…)` ends the run with RunTimeout and cancels what runs."""
    gates["late"] = asyncio.Event()
    run = await hf.start(flows.too_long, "late")
    with pytest.raises(RunFailed, match="deadline") as caught:
        await run.result(60)
    assert caught.value.error_type.endswith("RunTimeout")
    await until(lambda: effects["late cancelled"] == 1)


async def test_a_sleep_is_durable_and_punctual(hf: Holdfast) -> None:
    """`asyncio.sleep` takes its time, by the run's own clock."""
    assert 0.15 <= await (await hf.start(flows.sleeps, 0.15)).result(60) < 2


async def test_a_stale_timer_fires_no_other(store_url: str) -> None:
    """A hop that was never written may have set a timer whose number is another, later timer's now."""
    async with Holdfast(store_url, config=Config(park_after_s=3600)) as hf:
        scheduler = hf.node.scheduler
        assert scheduler is not None
        run = await hf.start(flows.waits_for_payment, 600)
        await until(lambda: run.id in scheduler.runs and bool(scheduler.runs[run.id].decider.waiting))
        waiting = scheduler.runs[run.id].decider.waiting
        (timer,) = [n for n, wait in waiting.items() if wait.kind is StepKind.TIMER]
        scheduler.timers.set(1.0, run.id, timer)
        assert scheduler.fire() == 0
        assert timer in waiting
        await flows.paid.send(run.id, Parcel("Voss", 3))
        assert await run.result(60) == "Voss 3"


async def test_a_sleeping_run_leaves_memory_and_wakes(hf: Holdfast) -> None:
    """A run that waits is parked: no owner, no decider; its timer brings it back."""
    run = await hf.start(flows.sleeps, 1.5)
    scheduler = hf.node.scheduler
    assert scheduler is not None
    await until(lambda: run.id not in scheduler.runs)
    assert (await run.rows()).run.owner is None
    assert "sleeps" in await run.why()
    assert await run.result(60) >= 1.5


async def test_a_parked_run_wakes_by_a_signal(hf: Holdfast) -> None:
    """A signal to a run that nobody owns makes it claimable."""
    run = await hf.start(flows.waits_for_payment, 600)
    scheduler = hf.node.scheduler
    assert scheduler is not None
    await until(lambda: run.id not in scheduler.runs)
    await flows.paid.send(run.id, Parcel("Voss", 3))
    assert await run.result(60) == "Voss 3"


async def test_map_keeps_its_limit_and_tolerates_failures(hf: Holdfast) -> None:
    """At most `limit` steps run at a time. Tolerated failures leave their places in the list empty."""
    assert await (await hf.start(flows.mapped, 20, 1)).result(60) == sum(x * x for x in range(20) if x != 13)
    assert 1 < effects["most"] <= 5


async def test_continue_as_new_starts_a_fresh_history(hf: Holdfast) -> None:
    """The run keeps its id, its history begins anew, and keys of effects differ between generations."""
    run = await hf.start(flows.counts_down, 3, [])
    assert await run.result(60) == ["3:3", "2:2", "1:1", "0:0"]
    info = await run.info()
    assert info.generation == 4
    assert len(await run.steps()) == 1


async def test_a_run_that_continued_as_new_keeps_its_deadline(hf: Holdfast) -> None:
    """The deadline is the run's, not the generation's. The run never leaves this process's memory."""
    gates["round"] = asyncio.Event()
    run = await hf.start(flows.goes_round, "round", 2)
    with pytest.raises(RunFailed, match="deadline"):
        await run.result(60)
    assert (await run.info()).generation == 3


async def test_a_run_may_continue_as_new_as_soon_as_a_signal_came(hf: Holdfast) -> None:
    """The wait that the signal ended goes with the history, so a loop that waits for signals can run for ever."""
    run = await hf.start(flows.collects, 3, 0)
    for i in range(3):
        await flows.paid.send(run.id, flows.Parcel("Oslo", i + 1), key=f"{i}")
    assert await run.result(60) == 6
    assert (await run.info()).generation == 3


async def test_chance_and_time_replay_alike(hf: Holdfast) -> None:
    """uuid4, random and now give the same values when the run is replayed."""
    gates["none"] = asyncio.Event()
    run = await hf.start(flows.chance.using(id="dice"))
    first = await run.result(60)
    assert len(set(first)) == 4
    again = await hf.start(flows.chance.using(id="dice"))
    assert await again.result(60) == first


async def test_progress_and_published_values_are_visible(hf: Holdfast) -> None:
    """`set_progress` and `publish` can be read while the run goes on."""
    gates["speaks"] = asyncio.Event()
    run = await hf.start(flows.speaks)
    await until(lambda: effects["speaks"] == 1)
    assert (await run.info()).progress == (0.5, "half way")
    assert await run.published() == {"city": "Oslo"}
    gates["speaks"].set()
    await run.result(60)
    assert await run.published() == {"city": "Oslo", "grams": 12}


async def test_a_held_run_waits_until_released(hf: Holdfast) -> None:
    """While held, an outcome is recorded and nothing further is decided; release delivers it."""
    gates["g"] = asyncio.Event()
    run = await hf.start(flows.gate, "g")
    await until(lambda: effects["g"] == 1)
    assert await run.hold("wait for the audit") is RunState.HELD
    why = await run.why()
    assert "It has been held by" in why
    assert "(wait for the audit); `holdfast release" in why
    gates["g"].set()
    agent = hf.node.agent
    assert agent is not None
    await until(lambda: not agent.assignments)
    assert await run.state() is RunState.HELD
    await run.release()
    assert await run.result(60) == "g"
    assert effects["g"] == 1


async def test_a_step_waits_for_an_agent_with_its_needs(hf: Holdfast, store_url: str) -> None:
    """An agent without the label does not run the step, and `why` says so. An agent with the label takes it."""
    run = await hf.start(flows.renders)
    assert "no live agent" in await run.why()
    assert "gpu" in await run.why()
    async with Holdfast(store_url, roles=["agent"], labels=["gpu"]):
        assert await run.result(60) == "rendered"


async def test_needs_that_are_asked_for_later_find_their_agent(hf: Holdfast, store_url: str) -> None:
    """Needs that came up for the first time get a lane when the code asks for them, also in a run in memory."""
    run = await hf.start(flows.renders_later)
    async with Holdfast(store_url, roles=["agent"], labels=["gpu", "large"]):
        assert await run.result(60) == "rendered"


async def test_retry_continues_a_failed_run_from_the_step_that_failed(hf: Holdfast) -> None:
    """`retry` of a failed run is a new run that keeps what succeeded before; the failed step runs again."""
    run = await hf.start(flows.fails.using(id="f"), "boom")
    with pytest.raises(RunFailed):
        await run.result(60)
    again = await run.retry()
    assert again.id == "f~2"
    with pytest.raises(RunFailed, match="boom"):
        await again.result(60)
    assert effects["add"] == 1
    assert (await again.info()).retry_of == "f"


async def test_the_doctor_finds_nothing_after_all_that(hf: Holdfast) -> None:
    """The invariants hold after runs of every kind."""
    gates["d"] = asyncio.Event()
    runs: list[Run[Any]] = [
        await hf.start(flows.chain, 3),
        await hf.start(flows.parent, 2),
        await hf.start(flows.retried, "doc", 2),
        await hf.start(flows.counts_down, 2, []),
    ]
    cancelled = await hf.start(flows.gate, "d")
    await cancelled.cancel()
    for run in runs:
        await run.result(60)
    with pytest.raises(RunCancelled):
        await cancelled.result(60)
    assert [(name, meaning) for name, meaning, broken in await hf.store.reads.doctor() if broken] == []


async def test_an_answer_about_a_run_that_came_back_meanwhile_is_not_taken_for_it(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler asks what it has lost. Before the answer arrives, the run is taken from it, and it claims the run
    again. The run belongs to it, and stays in memory."""
    run = await hf.start(flows.waits_for_payment.using(id="back"), 60.0)
    scheduler, ask = hf.node.scheduler, hf.store.schedulers.lost_runs
    assert scheduler is not None
    owned, answered = scheduler.runs["back"], asyncio.Event()

    async def ask_and_wait(node: str, held: Sequence[tuple[str, int]]) -> list[str]:
        monkeypatch.setattr(hf.store.schedulers, "lost_runs", ask)
        await run.hold()
        await run.release()
        await until(lambda: scheduler.runs.get("back") not in (None, owned))
        lost = await ask(node, held)
        assert lost == ["back"], "what was asked about is gone"
        answered.set()
        return lost

    await until(lambda: not owned.in_flight)
    monkeypatch.setattr(hf.store.schedulers, "lost_runs", ask_and_wait)
    await scheduler.check_lost()
    assert answered.is_set()
    assert scheduler.runs["back"] is not owned
    await flows.paid.send("back", flows.Parcel("Oslo", 3))
    assert await run.result(60) == "Oslo 3"


async def test_outcomes_of_a_run_that_left_memory_keep_nothing_from_the_others(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the store answers what there is to deliver, one of the runs leaves memory, and a step of another one is no
    longer waited for. Both outcomes are left to whoever owns those runs, and the rest is delivered."""
    run = await hf.start(flows.waits_for_payment.using(id="stays"), 60.0)
    scheduler, ask = hf.node.scheduler, hf.store.schedulers.undelivered
    assert scheduler is not None
    await until(lambda: not scheduler.runs["stays"].in_flight)

    async def ask_late(node: str, limit: int) -> Undelivered:
        found = await ask(node, limit)
        late = [Outcome(run_id, 9, StepState.SUCCEEDED, None, None, 0.0, 1) for run_id in ("left", "stays")]
        return Undelivered([*late, *found.steps], found.signals)

    monkeypatch.setattr(hf.store.schedulers, "undelivered", ask_late)
    assert await scheduler.collect() == 0
    await flows.paid.send("stays", flows.Parcel("Oslo", 3))
    assert await run.result(60) == "Oslo 3"


async def test_a_run_that_sleeps_goes_on_when_its_timer_fires_and_not_with_the_next_poll(
    store_url: str,
) -> None:
    """The run is in nobody's memory. The scheduler that fires its timer claims it at once."""
    async with Holdfast(store_url, config=FAST) as hf:
        await hf.start(flows.sleeps.using(id="asleep"), 2.0)
        scheduler = hf.node.scheduler
        assert scheduler is not None
        await until(lambda: "asleep" not in scheduler.runs)
    async with Holdfast(store_url, config=Config(poll_s=600.0)) as hf:
        run = hf.run("asleep")
        assert await run.result(60) >= 2.0


async def test_a_run_that_leaves_memory_is_woken_when_its_timer_comes_due(store_url: str) -> None:
    """The scheduler looked at the timers of sleeping runs before this run was one of them. It looks again in time."""
    async with Holdfast(store_url, config=Config(poll_s=600.0, park_after_s=0.1)) as hf:
        scheduler = hf.node.scheduler
        assert scheduler is not None
        run = await hf.start(flows.sleeps, 2.5)
        await until(lambda: run.id in scheduler.runs)
        await until(lambda: run.id not in scheduler.runs)
        assert await run.result(60) >= 2.5

"""Plain code (scripts, Flask, Django, threads) can do what async code can, with `hf.wait`, and never waits for ever."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, HoldfastError, RunState, Signal, step, workflow
from holdfast.errors import RunCancelled, StoreUnsupported, UnknownRun, WorkflowError
from tests.roles import flows
from tests.roles.conftest import FAST, until

ROOT = Path(__file__).parents[2]
go = Signal("go", int)


@step
def ask_in_a_thread(run_id: str) -> str:
    """A `def` step is plain code."""
    return str(opened[0].wait(opened[0].run(run_id).state()))


@step(retry=1)
async def ask_in_the_loop(run_id: str) -> str:
    return str(opened[0].wait(opened[0].run(run_id).state()))


@workflow
async def asks(run_id: str, in_a_thread: bool) -> str:
    return await (ask_in_a_thread if in_a_thread else ask_in_the_loop)(run_id)


@workflow
async def asks_itself(run_id: str) -> str:
    return str(opened[0].wait(opened[0].run(run_id).state()))


@workflow
async def waits() -> int:
    return await go.wait()


opened: list[Holdfast] = []


def everything(hf: Holdfast) -> None:
    """Do all that a program does with runs, without an event loop."""
    run = hf.wait(hf.start(flows.chain.using(id="chain", tags={"team": "a"}), 3))
    assert hf.wait(run.result(60)) == 3
    assert hf.wait(run.state()) is RunState.SUCCEEDED
    assert [one.key for one in hf.wait(run.steps())] == ["add", "add#2", "add#3"]
    assert [one.id for one in hf.wait(hf.runs(tags={"team": "a"}))] == ["chain"]

    waiting = hf.wait(hf.start(waits))
    seen = []
    for view in hf.wait(waiting.watch(), timeout=10):
        seen.append(view.run.state)
        if len(seen) == 1:
            hf.wait(go.send(waiting.id, 7))
    assert seen[-1] is RunState.SUCCEEDED
    assert hf.wait(waiting.result()) == 7

    held = hf.wait(hf.start(waits))
    assert hf.wait(held.hold("look first")) is RunState.HELD
    assert hf.wait(held.info()).note == "look first"
    assert "held" in hf.wait(held.why())
    assert hf.wait(held.release()) in {RunState.PENDING, RunState.RUNNING}
    hf.wait(held.cancel())
    with pytest.raises(RunCancelled):
        hf.wait(held.result(), timeout=10)

    hf.wait(hf.gates.hold(workflow=flows.chain.name, note="stocktaking"))
    assert [hold.note for hold in hf.wait(hf.gates.holds())] == ["stocktaking"]
    hf.wait(hf.gates.release(workflow=flows.chain.name))
    with pytest.raises(UnknownRun):
        hf.wait(hf.run("no such run").result())


def test_plain_code_can_do_everything(store_url: str) -> None:
    """`with Holdfast(…) as hf:` has an event loop of its own; `hf.wait` is its `await` and its `async for`."""
    with Holdfast(store_url, config=FAST) as hf:
        everything(hf)
    with pytest.raises(HoldfastError, match="not open"):
        hf.wait(hf.runs())


def test_a_program_opens_for_as_long_as_it_lives(store_url: str) -> None:
    """Without a block, `hf.wait(hf.open())` opens it, once, from whichever thread comes first. Closed, it can be opened
    again."""
    hf = Holdfast(store_url, config=FAST)

    def opens(_: int) -> int:
        try:
            hf.wait(hf.open())
        except HoldfastError as error:
            return 0 if "open already" in str(error) else 5
        return 1

    for _ in range(2):
        with ThreadPoolExecutor(4) as threads:
            assert sum(threads.map(opens, range(4))) == 1
        assert hf.wait(hf.wait(hf.start(flows.chain, 2)).result(60)) == 2
        hf.wait(hf.close())
    assert not any(thread.name == "holdfast" for thread in threading.enumerate())


async def test_threads_use_a_holdfast_of_an_event_loop(hf: Holdfast) -> None:
    """`def` endpoints of FastAPI do this with a Holdfast that `lifespan` opened: the loop runs in another thread."""
    await asyncio.to_thread(everything, hf)
    opened[:] = [hf]
    await hf.start(flows.chain.using(id="one"), 1)
    assert await (await hf.start(asks, "one", True)).result(60) in {"running", "succeeded"}


async def test_in_the_event_loops_own_thread_it_is_refused(hf: Holdfast) -> None:
    """There it would wait for itself: in async code, in an async step, in a workflow."""
    with pytest.raises(HoldfastError, match="write `await`"):
        hf.wait(hf.runs())
    with pytest.raises(HoldfastError, match="write `await`"):
        hf.wait(hf.run("one").watch())
    opened[:] = [hf]
    with pytest.raises(HoldfastError, match="write `await`"):
        await (await hf.start(asks, "one", False)).result(60)
    with pytest.raises(HoldfastError, match="a workflow uses no Holdfast"):
        await (await hf.start(asks_itself, "one")).result(60)


def test_another_event_loop_is_refused(store_url: str) -> None:
    """A Holdfast belongs to the loop it was opened in; there is a way from another one."""
    with Holdfast(store_url, config=FAST) as hf:

        async def elsewhere() -> list[object]:
            for call in (hf.runs, hf.run("one").state, hf.close, lambda: go.send("one", 1)):
                with pytest.raises(HoldfastError, match="another event loop"):
                    await call()
            return list(await asyncio.to_thread(hf.wait, hf.runs()))

        assert asyncio.run(elsewhere()) == []


def test_what_is_not_open_says_how_to_open_it(store_url: str) -> None:
    """It says so at once, and without a warning about a coroutine that was never awaited."""
    hf = Holdfast(store_url, config=FAST)
    unopened: list[Any] = [
        hf.start(flows.chain, 1),
        hf.run("x").result(),
        hf.run("x").watch(),
        hf.gates.holds(),
    ]
    for call in unopened:
        with pytest.raises(HoldfastError, match=r"not open.*with Holdfast.*hf\.wait\(hf\.open\(\)\)"):
            hf.wait(call)
    with pytest.raises(WorkflowError, match=r"needs an open Holdfast.*hf\.wait\(go\.send"):
        asyncio.run(go.send("x", 1))
    with pytest.raises(HoldfastError, match="not open"):
        hf.wait(go.send("x", 1))
    for wrong in (hf.runs, None, 5):
        with pytest.raises(HoldfastError, match="what you would await"):
            hf.wait(wrong)  # type: ignore[call-overload]  # wrong on purpose
    hf.wait(hf.close())  # closing what is not open does nothing
    assert not any(thread.name == "holdfast" for thread in threading.enumerate())


def test_a_signal_goes_through_the_one_that_is_named(tmp_path: Path) -> None:
    """With two stores in one program, `hf.wait(signal.send(…))` uses its own store."""
    with (
        Holdfast(f"sqlite:///{tmp_path}/one.db", config=FAST) as one,
        Holdfast(f"sqlite:///{tmp_path}/two.db", config=FAST) as two,
    ):
        runs = [hf.wait(hf.start(waits.using(id="same"))) for hf in (one, two)]
        one.wait(go.send("same", 1))
        two.wait(go.send("same", 2))
        assert [hf.wait(run.result(60)) for hf, run in zip((one, two), runs, strict=True)] == [1, 2]


def test_waiting_has_an_end(store_url: str) -> None:
    """A timeout of the call or of the waiting ends it. What was waited for goes on."""
    with Holdfast(store_url, config=FAST) as hf:
        run = hf.wait(hf.start(waits))
        with pytest.raises(TimeoutError):
            hf.wait(run.result(), timeout=0.05)
        with pytest.raises(TimeoutError):
            hf.wait(run.result(timeout=0.05))
        with pytest.raises(TimeoutError):
            hf.wait(run.result(timeout=0))
        with pytest.raises(WorkflowError, match="above 0"):
            hf.wait(run.result(), timeout=-1)
        views = hf.wait(run.watch(), timeout=60)
        assert next(views).run.state in {RunState.PENDING, RunState.RUNNING}
        with pytest.raises(TimeoutError):
            list(hf.wait(run.watch(), timeout=0.2))
        hf.wait(go.send(run.id, 3))
        assert hf.wait(run.result(60)) == 3
        assert hf.wait(run.result(timeout=0)) == 3


def test_closing_ends_all_waiting_with_an_error(store_url: str) -> None:
    """Threads that wait for a run get an error. None waits for an answer that cannot come."""
    hf = Holdfast(store_url, config=FAST)
    hf.wait(hf.open())
    run = hf.wait(hf.start(waits))
    errors: list[BaseException] = []
    began = threading.Barrier(3)

    def wait_for(make: Callable[[], Any]) -> None:
        began.wait()
        try:
            waited = hf.wait(make())
            list(waited)
        except BaseException as error:  # noqa: BLE001  the test looks at it
            errors.append(error)

    threads = [threading.Thread(target=wait_for, args=(make,)) for make in (run.result, run.watch)]
    for thread in threads:
        thread.start()
    began.wait()
    hf.wait(asyncio.sleep(0.2))
    hf.wait(hf.close())
    for thread in threads:
        thread.join(10)
    assert [type(error) for error in errors] == [HoldfastError, HoldfastError], errors


async def test_async_code_that_waits_gets_an_error_when_it_is_closed(store_url: str) -> None:
    """It is not cancelled, as if someone had cancelled its task."""
    hf = await Holdfast(store_url, config=FAST).open()
    run = await hf.start(waits)
    waiting = asyncio.ensure_future(run.result())
    await until(lambda: run.id in hf.caller._watchers)
    await hf.close()
    with pytest.raises(HoldfastError, match="was closed"):
        await waiting


def test_a_loop_that_ended_without_closing_raises_an_error(store_url: str) -> None:
    """Nothing is left that could answer. The call raises, and does not wait."""
    hf = Holdfast(store_url, config=FAST, roles=())
    loop = asyncio.new_event_loop()
    loop.run_until_complete(hf.open())
    with pytest.raises(HoldfastError, match="does not run any more"):
        hf.wait(hf.runs())
    loop.run_until_complete(hf.close())
    loop.close()


# --- fork -----------------------------------------------------------------------------------------------------------


def in_a_fork(what: Callable[[], None]) -> None:
    """Do this in a forked process, which must end by itself with exit code 0."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        code = 1
        try:
            what()
            code = 0
        except BaseException:  # noqa: BLE001  the exit code reports it
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_fork_gets_an_error_and_can_open_its_own(store_url: str) -> None:
    """With gunicorn --preload, a Holdfast that was opened before belongs to the process that opened it, and goes on
    there."""
    with Holdfast(store_url, config=FAST) as hf:
        hf.wait(hf.wait(hf.start(flows.chain, 1)).result(60))

        def child() -> None:
            calls: list[Coroutine[Any, Any, Any]] = [
                hf.runs(), hf.run("x").result(), hf.start(flows.chain, 1), hf.gates.holds(), go.send("x", 1)
            ]  # fmt: skip
            for call in calls:
                with pytest.raises(HoldfastError, match="before this process was forked"):
                    hf.wait(call)
            with pytest.raises(HoldfastError, match="before this process was forked"):
                list(hf.wait(hf.run("x").watch()))
            if store_url.startswith("sqlite:"):
                with pytest.raises(StoreUnsupported, match="was forked from one that had it open"):
                    hf.wait(hf.open())
                return
            with hf:
                assert hf.node.environment.pid == os.getpid()
                assert hf.wait(hf.wait(hf.start(flows.chain.using(id="of the fork"), 2)).result(60)) == 2

        in_a_fork(child)
        if not store_url.startswith("sqlite:"):
            assert hf.wait(hf.run("of the fork", flows.chain).result(60)) == 2
        assert hf.wait(hf.wait(hf.start(flows.chain, 3)).result(60)) == 3


def test_forks_give_different_ids(store_url: str, tmp_path: Path) -> None:
    """Two processes with the same random numbers would be one node, and start each other's runs."""
    hf = Holdfast(store_url, config=FAST)
    hf.environment.new_id()

    def child() -> None:
        with (tmp_path / "dice").open("a") as file:
            print(hf.environment.random.getrandbits(64), file=file)

    for _ in range(3):
        in_a_fork(child)
    dice = (tmp_path / "dice").read_text().split()
    assert len({*dice, str(hf.environment.random.getrandbits(64))}) == 4


def test_a_fork_opens_a_file_that_was_closed_before(tmp_path: Path) -> None:
    """What counts is whether the file was open when the process was forked."""
    hf = Holdfast(f"sqlite:///{tmp_path}/holdfast.db", config=FAST)
    with hf:
        pass

    def child() -> None:
        with hf:
            assert hf.wait(hf.wait(hf.start(flows.chain, 2)).result(60)) == 2

    in_a_fork(child)


def _in_a_pool(url: str, number: int) -> int:
    with Holdfast(url, config=FAST, roles=()) as hf:
        return hf.wait(hf.wait(hf.start(flows.chain.using(id=f"pool-{number}"), number)).result(60))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_pool_of_processes_uses_one_store(store_url: str, method: str) -> None:
    """multiprocessing makes processes from one that has a Holdfast open, and that one does the work."""
    if method == "fork" and store_url.startswith("sqlite:"):
        pytest.skip("SQLite does not work in a fork of a process that has the file open")
    with (
        Holdfast(store_url, config=FAST) as hf,
        multiprocessing.get_context(method).Pool(2) as pool,
    ):
        assert pool.starmap(_in_a_pool, [(store_url, number) for number in (1, 2, 3)]) == [1, 2, 3]
        assert len(hf.wait(hf.runs(state="succeeded"))) == 3


# --- the end of the program -------------------------------------------------------------------------------------------


def program(text: str, *arguments: str) -> subprocess.Popen[str]:
    header = """
        import signal, sys, threading, time
        from holdfast import Holdfast, step, workflow
        from holdfast.config import Config

        @step
        async def long() -> None:
            print("begun", flush=True)
            import asyncio
            await asyncio.sleep(3600)

        @step
        def long_in_a_thread() -> None:
            print("begun", flush=True)
            time.sleep(3600)

        @workflow
        async def takes_long() -> None:
            await long()

        @workflow
        async def blocks_long() -> None:
            await long_in_a_thread()

        hf = Holdfast(sys.argv[1])
    """
    code = textwrap.dedent(header) + textwrap.dedent(text)
    return subprocess.Popen(
        [sys.executable, "-W", "default", "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


async def handed_back(url: str) -> tuple[int, int]:
    """Return how often the one step was begun, and how often its agent was lost."""
    async with Holdfast(url, roles=(), config=FAST) as hf:
        (run,) = await hf.runs()
        (found,) = await hf.run(run.id).steps()
        return found.attempt, found.losses


@pytest.mark.parametrize("flow", ["takes_long", "blocks_long"])
def test_a_program_that_ends_without_closing_hands_its_work_back(store_url: str, flow: str) -> None:
    """The program ends at once, also when a `def` step does not return, and the step that was running costs nothing."""
    ends = program(
        f"""
        hf.wait(hf.open())
        run = hf.wait(hf.start({flow}))
        while not hf.wait(run.steps()) or hf.wait(run.steps())[0].state != "running":
            pass
        """,
        store_url,
    )
    out, errors = ends.communicate(timeout=30)
    assert (ends.returncode, out, errors) == (0, "begun\n", "")
    assert asyncio.run(handed_back(store_url)) == (1, 0)


@pytest.mark.parametrize("flow", ["takes_long", "blocks_long"])
def test_ctrl_c_ends_the_waiting(store_url: str, flow: str) -> None:
    """KeyboardInterrupt is raised where the program waits, the block is left, and the process ends."""
    ends = program(
        f"""
        with hf:
            try:
                hf.wait(hf.wait(hf.start({flow})).result())
            except KeyboardInterrupt:
                print("interrupted", hf.wait(hf.runs())[0].state, flush=True)
        """,
        store_url,
    )
    assert ends.stdout is not None
    assert ends.stdout.readline() == "begun\n"
    ends.send_signal(signal.SIGINT)
    out, errors = ends.communicate(timeout=30)
    assert (ends.returncode, out, errors) == (0, "interrupted running\n", "")
    assert asyncio.run(handed_back(store_url)) == (1, 0)

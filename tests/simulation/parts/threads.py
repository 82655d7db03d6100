"""Steps in threads and in processes of their own, which take time, hang and die. There are no threads and no other
processes in a simulation: the thread's code runs when its time is over, and the process is a coroutine."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from holdfast import Retry, Stop, here, step
from holdfast.agent.assignment import Assignment
from holdfast.agent.executor import Executor
from holdfast.agent.isolation import ChildDied
from holdfast.testing.loop import PROCESS, VirtualLoop
from holdfast.testing.world import Process
from tests.simulation import program
from tests.simulation.ledger import ledger
from tests.simulation.mutants import code, mutant
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

QUICK = Retry(attempts=3, delay=0.1, max_delay=0.4)
PATIENT = Retry(attempts=6, delay=0.1, max_delay=0.3)


@step(retry=QUICK, timeout=0.8)
def grind(tag: int, how: str) -> int:
    """The end of a thread. Nobody can stop a thread, so it may have its effect after its node has lost its lease."""
    simulation = ledger.simulation
    if how == "stop":
        raise Stop("no")
    if how == "flaky" and here.attempt == 1:
        raise ConnectionError("not yet")
    simulation.book.did(here.key, tag, here.run_id, simulation.root_of(here.run_id))
    return tag


@grind.undo(retry=PATIENT)
async def ungrind(done: int | None, tag: int, how: str) -> None:
    await program._undo(done, tag, how)


@step(retry=QUICK, timeout=0.8, isolate=True)
def press(tag: int, how: str) -> int:
    raise AssertionError("the simulation plays the process of this step")


@press.undo(retry=PATIENT)
async def unpress(done: int | None, tag: int, how: str) -> None:
    await program._undo(done, tag, how)


async def _press(tag: int, how: str) -> int:
    """The process of the step `press`."""
    simulation = ledger.simulation
    part = simulation.parts.find("threads")
    assert isinstance(part, Threads)
    simulation.began(tag)
    node = part.enter(simulation)
    try:
        await asyncio.sleep(part.takes_s(how))
        if how == "kills" and not simulation.healed:
            simulation.sometimes("the process of a step died")
            raise ChildDied(-9, press.name)
        if how == "stop":
            raise Stop("no")
        simulation.book.did(here.key, tag, here.run_id, simulation.root_of(here.run_id))
    finally:
        part.leave(node)
    return tag


CHILDREN: dict[str, Callable[..., Any]] = {press.name: _press}
"""What plays the process of each isolated step."""
program.STEPS["grind"], program.STEPS["press"] = grind, press
program.UNDOABLE.update(("grind", "press"))


class Threads(Part):
    name = "threads"
    share = 0.12
    known = (grind, ungrind, press, unpress)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._busy: Counter[str] = Counter()

    def settings(self) -> dict[str, Any]:
        return {"threads_max": self.dice.choice((1, 2))}

    def steps(self) -> tuple[str, ...]:
        return ("grind", "grind", "press", "press")

    def behaviours(self) -> tuple[str, ...]:
        return ("kills", "hangs", "slow")

    def begin(self, simulation: Simulation) -> None:
        simulation.loop.run_in_executor = self._in_thread  # type: ignore[method-assign, assignment]

    def takes_s(self, how: str) -> float:
        """Return how long an execution takes: sometimes longer than its timeout."""
        first = here.attempt == 1 and not ledger.simulation.healed
        return (
            0.5 + self.dice.random() * 1.5 if how in ("hangs", "slow") and first else self.dice.random() * 0.3
        )

    def enter(self, simulation: Simulation) -> str:
        """Note that an execution begins. A thread that timed out keeps its place until it returns."""
        process = PROCESS.get()
        assert isinstance(process, Process)
        node = process.node.id
        self._busy[node] += 1
        if self._busy[node] > simulation.config.threads_max:
            simulation.broke(
                f"I6 {node} runs {self._busy[node]} threads and has {simulation.config.threads_max} places"
            )
        return node

    def leave(self, node: str) -> None:
        self._busy[node] -= 1

    def _in_thread(self, executor: object, call: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        simulation, loop = ledger.simulation, ledger.simulation.loop
        if len(args) < 3 or getattr(args[1], "name", None) != grind.name:
            return VirtualLoop.run_in_executor(loop, executor, call, *args)
        future: asyncio.Future[Any] = loop.create_future()
        node = self.enter(simulation)
        tag, how = args[2].tag, args[2].how
        call(simulation.began, tag)

        def end() -> None:
            self.leave(node)
            if future.cancelled():
                return
            try:
                future.set_result(call(*args))
            except BaseException as error:  # noqa: BLE001  the future's waiter gets it
                future.set_exception(error)

        loop.call_later(call(self.takes_s, how), end)
        return future


@mutant("a thread that timed out keeps its place until it returns", within=60, part="threads")
def hung_threads_free_their_place(stack: ExitStack) -> None:
    code(stack, Executor, "_abandon", lambda self, assignment, call: None)


@mutant("a step whose process died is lost, and tried again", within=60, part="threads")
def dead_children_succeed(stack: ExitStack) -> None:
    real = Executor._end

    def end(self: Any, assignment: Assignment, ended: Any) -> None:
        real(self, assignment, ended if isinstance(ended, bytes) else b"0")

    code(stack, Executor, "_end", end)

"""The fixture `sim`: one test's own Holdfast, in memory, in one thread, in virtual time.

def test_order(sim: Sim) -> None:
    sim.stub(charge, Charge("c1", 300))
    run = sim.start(order, "tok_1", [1, 2])
    sim.advance(days=1)
    assert run.result() == Receipt(…)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, NoReturn, ParamSpec, Self, TypeVar

import msgspec

from holdfast.errors import HoldfastError
from holdfast.lifecycle import RUN_ENDED, STEP_LIVE
from holdfast.model import DEADLINE, NewSignal, RunState, StepKind
from holdfast.run import Run as Handle
from holdfast.store.operations import Close
from holdfast.testing.crashes import Explorer, NotEnded, Settings, executing
from holdfast.testing.parts import Part
from holdfast.testing.report import Report
from holdfast.testing.stage import Doing, Stage
from holdfast.testing.stand_ins import Play, StandIn, execute
from holdfast.workflow.here import here_var
from holdfast.workflow.options import UNSET, Unset
from holdfast.workflow.signal import Signal
from holdfast.workflow.step import Step
from holdfast.workflow.workflow import Workflow

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Call(NamedTuple):
    """One execution of a step, as it was asked for."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    attempt: int
    key: str
    """Its `here.key`."""


class Killed(BaseException):
    """Ends a step whose process was killed from inside of it. Nobody hears of it."""


class SimRun(Generic[R]):
    """A run in a simulation."""

    def __init__(self, sim: Sim, run_id: str, workflow: Workflow[Any, R]) -> None:
        self._sim, self.id, self._workflow = sim, run_id, workflow

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    def result(self) -> R:
        """The workflow's result; raises RunFailed, or a subclass, when the run ended otherwise, and NotEnded, with what it
        waits for, when it has not."""
        stage = self._sim.stage
        stage.settle()
        row = stage.run(self.id)
        if row.state not in RUN_ENDED and row.state is not RunState.STUCK:
            self._not_ended()
        assert stage.process is not None
        return Handle(stage.process, self.id, self._workflow)._result(
            Close(row.state, row.output, row.error, row.finished_at or 0.0)
        )

    @property
    def state(self) -> RunState:
        """The run's state, when everything has happened that can without time passing."""
        self._sim.stage.settle()
        return RunState(self._sim.stage.run(self.id).state)

    def why(self) -> str:
        """One sentence: what the run waits for, and what would move it."""
        self._sim.stage.settle()
        return self._sim.stage.why(self.id)

    @property
    def published(self) -> dict[str, Any]:
        """What the workflow made visible with `publish`."""
        self._sim.stage.settle()
        raw = self._sim.stage.run(self.id).published
        return msgspec.json.decode(raw) if raw else {}

    def _not_ended(self) -> NoReturn:
        stage = self._sim.stage
        steps, _ = stage.history(self.id)
        moves = {
            StepKind.TIMER: "`sim.advance(…)` lets time pass",
            StepKind.SIGNAL: "`sim.send(run, signal, value)` sends it",
        }
        waits = {step.kind for step in steps if step.state in STEP_LIVE and step.key != DEADLINE}
        move = "; ".join(words for kind, words in moves.items() if kind in waits)
        raise NotEnded(
            f"{self.id} has not ended. {stage.why(self.id)}{f' In a test: {move}.' if move else ''}"
        )


class Sim:
    """A Holdfast of one's own for a test. What it does is a function of the test and the seed."""

    def __init__(self, seed: int = 0) -> None:
        self._settings = Settings(seed=seed)
        self._stand_ins: dict[str, StandIn] = {}
        self._plays: dict[str, Play] = {}
        self._calls: dict[str, list[Call]] = {}
        self._promised: list[tuple[str, bytes]] = []
        self._stage: Stage | None = None

    @property
    def stage(self) -> Stage:
        """The world behind it: see `holdfast.testing.stage`."""
        if self._stage is None:
            self._stage = Stage(self._settings.seed, self._perform)
        return self._stage

    def close(self) -> None:
        if self._stage is not None:
            self._stage.close()
            self._stage = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # --- steps --------------------------------------------------------------------------------------------------------

    def stub(
        self,
        step: Step[..., R],
        *outcomes: R | BaseException | type[BaseException] | Callable[..., R] | Callable[..., Awaitable[R]],
    ) -> None:
        """What this step does instead of executing: a value to return, an exception to raise, or a function to call with the
        step's arguments. Of several, each execution takes the next, and the last one stays. None at all: a value made up
        from the declared type."""
        stand_in = StandIn(step.origin, outcomes)
        self._stand_ins[step.origin.name] = stand_in
        self._plays[step.origin.name] = stand_in.play()

    def calls(self, step: Step[Any, Any]) -> list[Call]:
        """The executions of this step so far, oldest first."""
        return list(self._calls.get(step.origin.name, ()))

    async def _perform(self, doing: Doing) -> Any:
        name = doing.step.origin.name
        self._calls.setdefault(name, []).append(
            Call(doing.args, doing.kwargs, doing.here.attempt, doing.here.effect)
        )
        play = self._plays.get(name)
        if play is None:
            return await execute(doing.step.fn, doing.args, doing.kwargs)
        return await play.perform(doing.args, doing.kwargs)

    # --- runs ---------------------------------------------------------------------------------------------------------

    def start(self, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> SimRun[R]:
        """Start a run, and let it come as far as it can without time passing."""
        raw, _ = workflow.shape.checked(args, kwargs)
        run = SimRun(self, self.stage.start(workflow, raw), workflow)
        self.stage.settle()
        return run

    def send(self, run: SimRun[Any], signal: Signal[T], value: T, key: str | None = None) -> None:
        """Send a signal to a run, and let the run go on. Sent twice with the same `key`, it arrives once."""
        payload = signal.encode(value)
        self.stage.send(NewSignal(run.id, signal.name, key or self.stage.new_id(), payload))
        self.stage.settle()

    def cancel(self, run: SimRun[Any]) -> None:
        """Ask a run to cancel itself, and let it."""
        self.stage.ask(lambda process: process.run(run.id).cancel())
        self.stage.settle()

    def kill_agent(self) -> None:
        """kill -9 of the process that executes the steps. Another one goes on. Called in a stub, that is where it dies."""
        self.stage.kill()
        if here_var.get() is not None:
            raise Killed
        self.stage.settle()

    # --- time ---------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.stage.now, UTC)

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Let time pass: what comes due happens at its time. It takes no real time."""
        total = seconds + 60 * minutes + 3600 * hours + 86_400 * days
        if not total > 0:
            raise HoldfastError(f"advance(): a time above 0, not {total:g} s")
        self.stage.advance(total)

    # --- crashes ------------------------------------------------------------------------------------------------------

    def crash_everywhere(self, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> Report:
        """Run the workflow once for each of its boundaries, and let the process die there: before and after every execution of
        a step and every commit. What is stubbed stays so; time passes as the workflow needs it."""
        raw, _ = workflow.shape.checked(args, kwargs)
        self.stage.demand_no_loop()
        return Explorer(
            workflow, raw, settings=self._settings, stand_ins=self._stand_ins, signals=self._promised
        ).explore()

    def will_send(self, signal: Signal[T], value: T) -> None:
        """For `crash_everywhere`: every run is sent this, in the order of these calls."""
        self._promised.append((signal.name, signal.encode(value)))

    def effect(self, key: str | None = None) -> bool:
        """Say, in a step or stub, that it changes something outside now. Then this is what is counted, not the execution; two
        with the same key are one. True the first time."""
        execution = executing.get()
        if execution is None:
            return True
        new = key is None or key not in execution.ledger
        execution.told.append(key)
        if key is not None:
            execution.ledger.add(key)
        return new

    def using(
        self,
        *,
        seed: int | Unset = UNSET,
        boundary: int | Unset | None = UNSET,
        failures: bool | Unset = UNSET,
        trust_keys: bool | Unset = UNSET,
        idempotent: Sequence[Step[Any, Any]] | Unset = UNSET,
        final: Sequence[Step[Any, Any]] | Unset = UNSET,
        unreached: Sequence[Part] | Unset = UNSET,
        boundaries_max: int | Unset = UNSET,
        interpreters: int | Unset = UNSET,
    ) -> Sim:
        """The same with other settings for `crash_everywhere`: `sim.using(failures=False).crash_everywhere(order, …)`.

        `failures`: also make each step fail in turn. `trust_keys`: a step that reads `here.key` had one effect, however often
        it ran. `idempotent`: steps that may run twice. `final`: steps that nothing has to undo. `unreached`: steps,
        workflows and signals that need not come up. `interpreters`: in how many others histories are replayed, each with
        another hash seed. `boundary`: only this one; 0 is the replays alone.
        """
        given: dict[str, Any] = {
            "seed": seed,
            "boundary": boundary,
            "failures": failures,
            "trust_keys": trust_keys,
            "boundaries_max": boundaries_max,
            "interpreters": interpreters,
        }
        changed = {name: value for name, value in given.items() if not isinstance(value, Unset)}
        if not isinstance(idempotent, Unset):
            changed["idempotent"] = frozenset(step.name for step in idempotent)
        if not isinstance(final, Unset):
            changed["final"] = frozenset(step.name for step in final)
        if not isinstance(unreached, Unset):
            changed["unreached"] = frozenset(part.name for part in unreached)
        other = Sim.__new__(Sim)
        other.__dict__.update(self.__dict__)
        other._settings = msgspec.structs.replace(self._settings, **changed)
        return other

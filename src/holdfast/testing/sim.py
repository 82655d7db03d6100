"""The fixture `sim`: Holdfast for one test, in memory, in one thread, in virtual time.

def test_order(sim: Sim) -> None:
    sim.stub(charge, Charge("c1", 300))
    run = sim.start(order, "tok_1", [1, 2])
    sim.advance(days=1)
    assert run.result() == Receipt(…)
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, NoReturn, ParamSpec, Self, TypeVar

import msgspec

from holdfast.client import Holdfast
from holdfast.desk.signals import answer_of
from holdfast.errors import HoldfastError
from holdfast.lifecycle import RUN_ENDED, STEP_LIVE
from holdfast.logs import LogInfo
from holdfast.model import DEADLINE, UPDATE_PREFIX, AskState, NewSignal, RunState, StepKind
from holdfast.run import Run as Handle
from holdfast.store.operations import Close
from holdfast.testing.crashes import CrashSettings, Explorer, NotEnded, executing
from holdfast.testing.parts import Part
from holdfast.testing.report import Report
from holdfast.testing.stage import Stage, StageAttempt
from holdfast.testing.stand_ins import Play, StandIn, execute
from holdfast.wire.answers import Ask, CalledBack, Fire, Upcoming
from holdfast.wire.events import EmittedEvent
from holdfast.workflow.here import here_var
from holdfast.workflow.options import UNSET, Unset
from holdfast.workflow.signal import Signal
from holdfast.workflow.step import Step
from holdfast.workflow.update import Update
from holdfast.workflow.workflow import Workflow, demand_workflow

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Call(NamedTuple):
    """One execution of a step, with its arguments."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    attempt: int
    key: str
    """Its `here.key`."""


class Killed(BaseException):
    """Ends the code of a step that killed its own process. No one catches it."""


class SimRun(Generic[R]):
    """A run in a simulation."""

    def __init__(self, sim: Sim, run_id: str, workflow: Workflow[Any, R]) -> None:
        self._sim, self.id, self._workflow = sim, run_id, workflow

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    def result(self) -> R:
        """Return the workflow's result. Raises RunFailed, or a subclass, when the run did not succeed, and NotEnded,
        with what the run waits for, when it has not ended."""
        stage = self._sim.stage
        stage.run_until_idle()
        row = stage.run(self.id)
        if row.state not in RUN_ENDED and row.state is not RunState.STUCK:
            self._not_ended()
        assert stage.process is not None
        return Handle(stage.process, self.id, self._workflow)._result(
            Close(row.state, row.output, row.error, row.finished_at or 0.0)
        )

    @property
    def state(self) -> RunState:
        """The run's state, after it went on until it has to wait."""
        self._sim.stage.run_until_idle()
        return RunState(self._sim.stage.run(self.id).state)

    def why(self) -> str:
        """Return a sentence that says what the run waits for, and what would let it go on."""
        self._sim.stage.run_until_idle()
        return self._sim.stage.why(self.id)

    @property
    def published(self) -> dict[str, Any]:
        """What the workflow made visible with `publish`."""
        self._sim.stage.run_until_idle()
        raw = self._sim.stage.run(self.id).published
        return msgspec.json.decode(raw) if raw else {}

    def logs(self, step: str | None = None) -> list[LogInfo]:
        """Return what the run and its steps have logged, in the order of time; with a step's key, only what that step
        has logged. `logging` must let it through: pytest's `caplog.set_level("INFO")` does that."""
        self._sim.stage.run_until_idle()
        return self._sim.stage.logs(self.id, step)

    def _not_ended(self) -> NoReturn:
        stage = self._sim.stage
        steps, _ = stage.history(self.id)
        moves = {
            StepKind.TIMER: "`sim.advance(…)` lets time pass",
            StepKind.SIGNAL: "`sim.send(run, signal, value)` sends it",
            StepKind.SERVE: "`sim.update(run, update, value)` calls it",
            StepKind.ASK: "`sim.answer(run, value)` answers it",
            StepKind.CALLBACK: "`sim.call_back(run, value)` calls back",
        }
        waits = {step.kind for step in steps if step.state in STEP_LIVE and step.key != DEADLINE}
        move = "; ".join(words for kind, words in moves.items() if kind in waits)
        raise NotEnded(
            f"{self.id} has not ended. {stage.why(self.id)}{f' In a test: {move}.' if move else ''}"
        )


class SimSchedule:
    """A schedule in a simulation. `sim.ask(lambda hf: hf.schedules.…)` does everything else with it."""

    def __init__(self, sim: Sim, name: str) -> None:
        self._sim, self.name = sim, name

    def __repr__(self) -> str:
        return f"<schedule {self.name}>"

    def preview(self, count: int = 10) -> Sequence[Upcoming]:
        """Return its next times, in its zone, and those that a calendar leaves out."""
        return self._sim.ask(lambda hf: hf.schedules.preview(self.name, count))

    def fires(self, limit: int = 20) -> Sequence[Fire]:
        """Return what became of its times, the newest first."""
        return self._sim.ask(lambda hf: hf.schedules.fires(self.name, limit))

    def run(self, *, anyway: bool = False) -> Fire:
        """Run it now, by its overlap policy; with `anyway`, whatever is open."""
        return self._sim.ask(lambda hf: hf.schedules.run(self.name, anyway=anyway))


class Sim:
    """Holdfast for one test. What it does depends only on the test and the seed."""

    def __init__(self, seed: int = 0) -> None:
        self._settings = CrashSettings(seed=seed)
        self._stand_ins: dict[str, StandIn] = {}
        self._plays: dict[str, Play] = {}
        self._calls: dict[str, list[Call]] = {}
        self._promised: list[tuple[str, bytes]] = []
        self._stages: list[Stage] = []
        """The stage, once something needed it. This is a list so that what `using` returns has the same one."""

    @property
    def stage(self) -> Stage:
        """The simulated world that the test runs in: see `holdfast.testing.stage`."""
        if not self._stages:
            self._stages.append(Stage(self._settings.seed, self._perform, schedules=True))
        return self._stages[0]

    def close(self) -> None:
        while self._stages:
            self._stages.pop().close()

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
        """Replace a step's code: by a value to return, an exception to raise, or a function to call with the step's
        arguments.

        With several outcomes, each execution takes the next one, and the last one stays. With none, the step returns a
        value that is made up from its declared type.
        """
        stand_in = StandIn(step.origin, outcomes)
        self._stand_ins[step.origin.name] = stand_in
        self._plays[step.origin.name] = stand_in.play()

    def calls(self, step: Step[Any, Any]) -> list[Call]:
        """Return the executions of this step so far, oldest first."""
        return list(self._calls.get(step.origin.name, ()))

    async def _perform(self, attempt: StageAttempt) -> Any:
        name = attempt.step.origin.name
        self._calls.setdefault(name, []).append(
            Call(attempt.args, attempt.kwargs, attempt.here.attempt, attempt.here.effect)
        )
        play = self._plays.get(name)
        if play is None:
            return await execute(attempt.step.fn, attempt.args, attempt.kwargs)
        return await play.perform(attempt.args, attempt.kwargs)

    # --- runs ---------------------------------------------------------------------------------------------------------

    def start(self, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> SimRun[R]:
        """Start a run, and let it go on until it has to wait."""
        demand_workflow(workflow)
        raw, _ = workflow.shape.checked(args, kwargs)
        run = SimRun(self, self.stage.start(workflow, raw), workflow)
        self.stage.run_until_idle()
        return run

    def send(self, run: SimRun[Any], signal: Signal[T], value: T, key: str | None = None) -> None:
        """Send a signal to a run, and let the run go on. If you send it twice with the same `key`, it arrives once."""
        payload = signal.encode(value)
        self.stage.send(NewSignal(run.id, signal.name, key or self.stage.new_id(), payload))
        self.stage.run_until_idle()

    def update(self, run: SimRun[Any], update: Update[T, R], value: T, key: str | None = None) -> R:
        """Call an update of a run, let the run go on, and return the answer. The same `key` again is the same call.

        Raises what `update.call()` raises, and NotEnded, with what the run waits for, if there is no answer yet. Then
        call again with the same `key`, after `advance`, for example.
        """
        payload = update.payload.encode(value)
        row = self.stage.call(run.id, update.name, payload, key or self.stage.new_id())
        self.stage.run_until_idle()
        end = self.stage.answer(row)
        if end is None:
            raise NotEnded(f"{run.id} has not answered {update.name}. {self.stage.why(run.id)}")
        answer: R = update.reply.decode(answer_of(end, run.id, update.name))
        return answer

    def asks(self, run: SimRun[Any] | None = None, who: str | None = None) -> Sequence[Ask]:
        """Return the open questions to people, the oldest first: all, those of a run, or those to a person or team."""
        run_id = None if run is None else run.id
        found = self.ask(lambda hf: hf.asks.list(who, run=run_id))
        return [one for one in found if one.state is AskState.OPEN]

    def answer(self, run: SimRun[Any], value: Any, *, by: str = "person:anna", note: str = "") -> Ask:
        """Answer the oldest open question of a run, for the person `by`, and let the run go on. Raises what
        `hf.asks.answer()` raises, and NotEnded, with what the run waits for, if it asks nothing."""
        found = self.asks(run)
        if not found:
            raise NotEnded(f"{run.id} asks nobody anything. {self.stage.why(run.id)}")
        return self.ask(lambda hf: hf.asks.answer(found[0].id, value, note, by=by)).ask

    def call_back(
        self, run: SimRun[Any], value: Any, *, step: str | None = None, note: str = ""
    ) -> CalledBack:
        """End a callback of a run as the other system would, and let the run go on. `value` is the result, or an exception:
        then the callback says that it failed. `step` is the key, name or number of the step, if the run waits for several.
        Raises what `hf.callbacks.answer()` raises."""
        if isinstance(value, Exception):
            kind = type(value).__name__
            return self.ask(
                lambda hf: hf.callbacks.fail(run.id, str(value), error_type=kind, step=step, note=note)
            )
        return self.ask(lambda hf: hf.callbacks.answer(run.id, value, step=step, note=note))

    def cancel(self, run: SimRun[Any]) -> None:
        """Ask a run to cancel itself, and let it go on."""
        self.ask(lambda hf: hf.run(run.id).cancel())

    def retry(self, run: SimRun[R]) -> SimRun[R]:
        """Retry a run as `run.retry()` does, let it go on, and return the run that goes on."""
        return self._another(run, lambda hf: hf.run(run.id, run._workflow).retry())

    def fork(
        self,
        run: SimRun[R],
        *,
        from_: str | None = None,
        input: Any = None,
        set: Mapping[str, Any] | None = None,
        id: str | None = None,
    ) -> SimRun[R]:
        """Fork a run as `run.fork(…)` does, let the fork go on, and return it."""
        return self._another(
            run, lambda hf: hf.run(run.id, run._workflow).fork(from_=from_, input=input, set=set, id=id)
        )

    def _another(
        self, run: SimRun[R], act: Callable[[Holdfast], Coroutine[Any, Any, Handle[R]]]
    ) -> SimRun[R]:
        return SimRun(self, self.ask(act).id, run._workflow)

    def ask(self, act: Callable[[Holdfast], Coroutine[Any, Any, T]]) -> T:
        """Let a client do something, let all runs go on, and return what it returned:
        `sim.ask(lambda hf: hf.run(run.id).hold())`.

        If the process dies meanwhile, another one does it again.
        """
        answer = self.stage.ask(act)
        self.stage.run_until_idle()
        return answer

    def emit(
        self,
        type: str,
        data: Any = None,
        *,
        subject: str | None = None,
        source: str | None = None,
        id: str | None = None,
    ) -> EmittedEvent:
        """Send an event, let all runs go on, and return what became of it: `sim.emit("order.created", order)`."""
        return self.ask(lambda hf: hf.emit(type, data, subject=subject, source=source, id=id))

    def kill_agent(self) -> None:
        """Kill the process that executes the steps, as kill -9 does; another one goes on. A stub can call this, too."""
        self.stage.kill()
        if here_var.get() is not None:
            raise Killed
        self.stage.run_until_idle()

    # --- time ---------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.stage.now, UTC)

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Let virtual time pass. What comes due happens at its time."""
        self.stage.advance(_total("advance", seconds, minutes, hours, days))

    def down(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Let virtual time pass while no process runs, as in an outage. What comes due meanwhile happens afterwards, late."""
        self.stage.down(_total("down", seconds, minutes, hours, days))

    def schedule(self, name: str) -> SimSchedule:
        """Return a schedule of the loaded code, by its name. Raise UnknownSchedule if there is none."""
        self.ask(lambda hf: hf.schedules.get(name))
        return SimSchedule(self, name)

    # --- crashes ------------------------------------------------------------------------------------------------------

    def crash_everywhere(self, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> Report:
        """Run the workflow once for each of its boundaries, let the process die there, and report what went wrong.

        There is a boundary before and after every execution of a step and every commit. Stubs stay in place. Time
        passes as the workflow needs it.
        """
        demand_workflow(workflow)
        raw, _ = workflow.shape.checked(args, kwargs)
        self.stage.demand_no_loop()
        return Explorer(
            workflow, raw, settings=self._settings, stand_ins=self._stand_ins, signals=self._promised
        ).explore()

    def will_send(self, signal: Signal[T], value: T) -> None:
        """Let `crash_everywhere` send this signal to every run. It sends several in the order of these calls."""
        self._promised.append((signal.name, signal.encode(value)))

    def will_call(self, update: Update[T, Any], value: T) -> None:
        """Let `crash_everywhere` call this update of every run. It does so in the order of these calls and those of
        `will_send`."""
        self._promised.append((UPDATE_PREFIX + update.name, update.payload.encode(value)))

    def effect(self, key: str | None = None) -> bool:
        """Count an effect, from the code of a step or a stub. Return True the first time that it has this key.

        For this execution `crash_everywhere` then counts these effects, and not the execution. Two effects with the
        same key count as one.
        """
        execution = executing.get()
        if execution is None:
            return True
        new = key is None or key not in execution.ledger
        execution.counted.append(key)
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
        """Return the same `Sim` with other settings for `crash_everywhere`:
        `sim.using(failures=False).crash_everywhere(order, …)`.

        `failures`: also make each step fail in turn. `trust_keys`: a step that reads `here.key` had one effect, however
        often it ran. `idempotent`: steps that may run twice. `final`: steps that nothing has to undo. `unreached`:
        steps, workflows, signals and updates that the runs need not reach. `interpreters`: in how many other interpreters
        histories are replayed, each with another hash seed. `boundary`: try only this boundary; 0 tries only the
        replays.
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


def _total(what: str, seconds: float, minutes: float, hours: float, days: float) -> float:
    total = seconds + 60 * minutes + 3600 * hours + 86_400 * days
    if not 0 < total < math.inf:
        raise HoldfastError(f"{what}() needs a time above 0, not {total:g} s")
    return total

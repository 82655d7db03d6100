"""Every boundary of a workflow, one after the other: what happens when the process dies there, and another goes on?

A boundary is before and after every execution of a step, and before and after every commit. First the workflow runs
undisturbed, which says what boundaries there are; then it runs once for each of them, from the beginning, and dies there.
The same again with each step made to fail in turn, which is when undos run. Everything is a function of the seed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from random import Random
from typing import Any, NamedTuple

import msgspec

from holdfast import codec
from holdfast.errors import HoldfastError, RunError, Stop, WrongState
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import Run, RunState, StepKind
from holdfast.store.operations import HandBack, Hop, NewSignal, Start, TryAgain
from holdfast.store.operations import Report as Reported
from holdfast.testing.report import NOT_UNDONE, OTHERWISE, TWICE, Boundary, Finding, Report
from holdfast.testing.stage import Doing, Stage
from holdfast.testing.stand_ins import Play, StandIn, execute, mentions_key
from holdfast.testing.world import Fate, Faults, Process
from holdfast.workflow import registry
from holdfast.workflow.definition import Workflow
from holdfast.workflow.step import Step
from holdfast.workflow.undo import Undo

RUN_ID = "simulated"
CRASHABLE = frozenset({"commit", "claim_runs", "claim_run", "claim_steps", "fire_timers", "answer_joins"})
POINTS_MAX = 20_000
"""A workflow that passes more has no end, or is too long to be explored."""
LASTS_S = 2.0
"""With a seed other than 0, a step that is pretended lasts up to this long, so that parallel ones end in another order."""


class NotEnded(RunError):
    """A run waits for something that the test did not give it."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What counts, and how much is tried."""

    seed: int = 0
    boundary: int | None = None
    """Only this one."""
    failures: bool = True
    """Also make each step fail in turn, and die at every boundary of the undoing."""
    trust_keys: bool = True
    """A step that hands on `here.key` had one effect, however often it ran: whoever got the key knows it."""
    idempotent: frozenset[str] = frozenset()
    """Names of steps that may run twice."""
    final: frozenset[str] = frozenset()
    """Names of steps that nothing undoes, and nothing has to."""
    pretend: bool = False
    """Execute no step that has no stand-in: make up its result from its type."""
    boundaries_max: int = 2000
    stop: Callable[[], bool] | None = None
    """Asked before each boundary: is it enough?"""
    tried: Callable[[int], None] | None = None
    """Told after each boundary, how many were tried."""


class Variant(NamedTuple):
    """Which step fails, and from which attempt on."""

    key: str | None = None
    attempt: int = 1
    name: str | None = None


class Execution:
    """One execution of a step that came to its end."""

    __slots__ = ("effect", "hands_on", "ledger", "step", "told", "undone")

    def __init__(self, step: Step[Any, Any], effect: str, undone: str | None, ledger: set[str]) -> None:
        self.step, self.effect, self.undone, self.ledger = step, effect, undone, ledger
        self.hands_on = False
        self.told: list[str | None] = []
        """What the test itself counted as effects."""


executing: ContextVar[Execution | None] = ContextVar("holdfast.execution", default=None)
"""What the code that runs now belongs to, in an exploration."""


class Ended(NamedTuple):
    """How one exploration run came out."""

    row: Run
    executions: list[Execution]
    points: list[str]
    kept: frozenset[str]
    """`here.key`s of what a point of no return keeps, or of runs that succeeded."""
    by_hand: bool
    """The workflow adds undos itself: nobody can tell which step each is for."""
    lives: frozenset[str]
    """Ids of runs that succeeded."""
    why: str
    trace: list[str]


class Points(Faults):
    """Counts the boundaries that are passed; the process dies at the chosen one."""

    def __init__(self, die_at: int | None) -> None:
        self.die_at = die_at
        self.passed: list[str] = []
        self.trace: list[str] = []
        self.trouble: HoldfastError | None = None
        """Why the exploration cannot go on."""
        self.ledger: set[str] = set()
        """Keys of effects that the test itself counted in this run."""
        self.keys: dict[tuple[str, int], str] = {}
        self._last_commit = 0
        self.clock: Callable[[], float] = lambda: 0.0

    def dies(self, name: str) -> bool:
        self.passed.append(name)
        here = len(self.passed) == self.die_at
        if here:
            self.say(f"the process dies {name}")
        return here

    def check(self) -> None:
        if self.trouble is not None:
            raise self.trouble
        if len(self.passed) > POINTS_MAX:
            raise HoldfastError(f"the run passes more than {POINTS_MAX:,} boundaries: give it less to do")

    def say(self, words: str) -> None:
        self.trace.append(f"{self.clock():10.3f} s  {words}")

    def fate(self, process: Process, verb: str) -> Fate:
        if verb not in CRASHABLE:
            return Fate.COMMITTED
        self._last_commit = len(self.passed)
        if self.dies(f"before {_VERBS.get(verb, 'a commit')}"):
            return Fate.DIES_BEFORE
        if self.dies(f"after {_VERBS.get(verb, 'a commit')}"):
            return Fate.DIES_AFTER
        return Fate.COMMITTED

    def committed(self, verb: str, asked: Mapping[str, Any]) -> None:
        """Name the two boundaries around this commit."""
        if verb not in CRASHABLE:
            return
        words = _VERBS.get(verb) or self._describe(asked.get("ops", ()))
        at = self._last_commit
        self.passed[at : at + 2] = [f"before {words}", f"after {words}"]
        self.say(f"commit: {words.removeprefix('the commit that ').removeprefix('the commit of ')}")

    def _describe(self, ops: Sequence[Any]) -> str:
        said: list[str] = []
        for op in ops:
            if isinstance(op, Hop):
                self.keys.update({(op.run_id, step.n): step.key for step in op.issued})
                said.append(self._hop(op))
            elif isinstance(op, Reported):
                said.append(f"of {self._key(op.run_id, op.n)}'s result")
            elif isinstance(op, TryAgain):
                said.append(f"that lets {self._key(op.run_id, op.n)} be tried again")
            elif isinstance(op, HandBack):
                said.append(f"that hands {self._key(op.run_id, op.n)} back")
            elif isinstance(op, Start):
                said.append("that starts the run")
        return f"the commit {' and '.join(dict.fromkeys(said)) or 'of a checkpoint'}"

    def _hop(self, hop: Hop) -> str:
        ends = [
            self._key(hop.run_id, n)
            for n in (*(out.n for out in hop.outcomes), *(n for n, _ in hop.delivered))
        ]
        issues = [step.key for step in hop.issued]
        then = [
            f"issues {_listed(issues)}" if issues else "",
            "ends the run" if hop.close is not None else "",
            "begins to undo" if hop.take_back is not None else "",
            "continues as new" if hop.next_input is not None else "",
        ]
        does = " and ".join(word for word in then if word)
        if hop.begin is not None:
            return f"that starts the run{f' and {does}' if does else ''}"
        if ends:
            return f"of {_listed(ends)}'s result{f', which {does}' if does else ''}"
        if hop.park and not does:
            return "that puts the run to rest"
        return f"that {does}" if does else "of a signal" if hop.signals else "of the run"

    def _key(self, run_id: str, n: int) -> str:
        return self.keys.get((run_id, n), f"step {n}")


_VERBS = {
    "claim_runs": "the run is claimed",
    "claim_run": "the run is claimed",
    "claim_steps": "a step is claimed",
    "fire_timers": "a timer fires",
    "answer_joins": "a joined run has ended",
}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{', '.join(names[:2])} and {len(names) - 2} more"


class Explorer:
    """Explores one workflow with one input."""

    def __init__(
        self,
        workflow: Workflow[Any, Any],
        raw: bytes,
        *,
        settings: Settings,
        stand_ins: Mapping[str, StandIn],
        signals: Sequence[tuple[str, bytes]],
        replay: str = "",
        move: str = "`sim.will_send(signal, value)` sends every run a signal",
        saying: str = "sim.using({option}=[{step}])",
    ) -> None:
        self._saying = saying
        """How a person says of a step that it may run twice, or that it is final."""
        self.move = move
        """What helps when the workflow waits for a signal."""
        self.workflow, self.raw, self.settings = workflow.using(id=RUN_ID), raw, settings
        self.stand_ins, self.signals = dict(stand_ins), signals
        self.report = Report(workflow.name, replay)
        self._number = 0

    # --- all of it ----------------------------------------------------------------------------------------------------

    def explore(self) -> Report:
        with _silence():
            return self._explore()

    def _explore(self) -> Report:
        settings = self.settings
        undisturbed = self._clean(Variant())
        if undisturbed.row.state is not RunState.SUCCEEDED:
            error = undisturbed.row.error
            told = f": {codec.describe_error(error)}" if error else ""
            self.report.undisturbed = f"{undisturbed.row.state}{told}"
            self._try(Variant(), None, None, undisturbed)
        calls = {run.effect: run.step for run in undisturbed.executions if run.undone is None}
        for n, name in enumerate(undisturbed.points, 1):
            self._try(Variant(), n, name, undisturbed)
        if settings.failures:
            for effect, step in calls.items():
                if self._enough():
                    self.report.left += 1  # and more: nobody has counted them
                else:
                    self._with_failure(effect, step, undisturbed)
        return self.report

    def _enough(self) -> bool:
        settings = self.settings
        return len(self.report.boundaries) >= settings.boundaries_max or bool(
            settings.stop and settings.stop()
        )

    def _with_failure(self, effect: str, step: Step[Any, Any], undisturbed: Ended) -> None:
        """This call fails: at once, with a crash at every boundary from there on; and after a crash that left its outcome
        unknown."""
        short = _short(step.name)
        variant = Variant(effect, 1, short)
        before = f"before {_shown(effect)}"
        if self._wanted_in(self._number + 1):
            clean = self._clean(variant)
            self._try(variant, None, None, clean)
            first = next((n for n, name in enumerate(clean.points, 1) if name == before), 1)
            for n, name in enumerate(clean.points[first - 1 :], first):
                self._try(variant, n, name, clean)
        after = f"after {_shown(effect)}"
        for n, name in enumerate(undisturbed.points, 1):
            if name.startswith(after) and step.origin.undone_by is not None:
                self._try(Variant(effect, 2, "its next attempt"), n, name, None)
                break

    def _wanted_in(self, first: int) -> bool:
        """May one of the boundaries from this one on be wanted?"""
        return self.settings.boundary is None or self.settings.boundary >= first

    def _clean(self, variant: Variant) -> Ended:
        ended = self._run(variant, None)
        if ended.why:
            raise NotEnded(f"{self.workflow.name} does not end: {ended.why} In a simulation: {self.move}.")
        return ended

    def _try(self, variant: Variant, n: int | None, name: str | None, clean: Ended | None) -> None:
        settings = self.settings
        self._number += 1
        if settings.boundary is not None and settings.boundary != self._number:
            return
        if self._enough():
            self.report.left += 1
            return
        boundary = Boundary(self._number, settings.seed, name, variant.name)
        ended = self._run(variant, n)
        self.report.boundaries.append(boundary)
        if settings.boundary is not None:
            self.report.trace = ended.trace
        self.report.findings += self._judge(ended, boundary, clean)
        if variant.key is None:
            self._count(ended, clean)
        if settings.tried is not None:
            settings.tried(len(self.report.boundaries))

    # --- one run ------------------------------------------------------------------------------------------------------

    def _run(self, variant: Variant, die_at: int | None) -> Ended:
        points = Points(die_at)
        plays = {name: stand_in.play() for name, stand_in in self.stand_ins.items()}
        executions: list[Execution] = []

        async def perform(doing: Doing) -> Any:
            return await self._perform(doing, variant, points, plays, executions, stage)

        stage = Stage(self.settings.seed, perform, faults=points)
        points.clock = lambda: stage.loop.now
        stage.check = points.check
        committed = stage.world.committed

        def told(process: Process, verb: str, asked: dict[str, Any]) -> None:
            committed(process, verb, asked)
            points.committed(verb, asked)

        stage.world.committed = told  # type: ignore[method-assign]
        try:
            stage.start(self.workflow, self.raw)
            for number, (name, payload) in enumerate(self.signals, 1):
                with suppress(WrongState):  # it ended before it could hear of it
                    stage.send(NewSignal(RUN_ID, name, f"simulated-{number}", payload))
            return self._ended(stage, self._to_the_end(stage), executions, points)
        finally:
            stage.close()

    @staticmethod
    def _to_the_end(stage: Stage) -> str:
        """Let the run end, and time pass as it needs; what it waits for when it does not."""
        while True:
            look = stage.settle()
            if stage.run(RUN_ID).state in RUN_ENDED | {RunState.STUCK}:
                return ""
            if look.busy or look.timer is None:
                return stage.why(RUN_ID)
            stage.advance(look.timer - stage.now)

    async def _perform(
        self,
        doing: Doing,
        variant: Variant,
        points: Points,
        plays: Mapping[str, Play],
        executions: list[Execution],
        stage: Stage,
    ) -> Any:
        step, here = doing.step.origin, doing.here
        shown = _shown(here.effect)
        play = plays.get(step.name)
        if play is None and self.settings.pretend:
            play = self._made_up(step, points)
        if play is not None and self.settings.seed:
            await doing.process.environment.sleep(self._lasts(doing))
        if points.dies(f"before {shown}"):
            stage.world.kill(doing.process)
            await stage.world.for_ever()
        if variant.key == here.effect and here.attempt >= variant.attempt:
            points.say(f"{shown} fails, attempt {here.attempt}")
            raise Stop("made to fail, to see what becomes of the run")
        execution = Execution(step, here.effect, here.undone, points.ledger)
        executing.set(execution)
        here.hands_on = False
        if play is None:
            value = await execute(doing.step.fn, doing.args, doing.kwargs)
            execution.hands_on = here.hands_on
        else:
            runs_code = play.runs_code
            value = await play.perform(doing.args, doing.kwargs)
            execution.hands_on = here.hands_on or (not runs_code and mentions_key(step.fn))
        executions.append(execution)
        points.say(f"{shown} executed, attempt {here.attempt}")
        if points.dies(f"after {shown}, before its result is recorded"):
            stage.world.kill(doing.process)
            await stage.world.for_ever()
        return value

    def _made_up(self, step: Step[Any, Any], points: Points) -> Play:
        if step.name not in self.stand_ins:
            try:
                self.stand_ins[step.name] = StandIn(step, ())
            except HoldfastError as error:
                points.trouble = error
                raise
        return self.stand_ins[step.name].play()

    def _lasts(self, doing: Doing) -> float:
        dice = Random(f"{self.settings.seed}/{doing.here.effect}/{doing.here.attempt}")  # noqa: S311  the seed's own dice
        most = min(LASTS_S, (doing.step.timeout_s or 2 * LASTS_S) / 2)
        return dice.random() * most

    @staticmethod
    def _ended(stage: Stage, why: str, executions: list[Execution], points: Points) -> Ended:
        kept: set[str] = set()
        by_hand, lives = False, set()
        for run in stage.runs():
            steps, _ = stage.history(run.id)
            by_hand |= any(step.kind is StepKind.UNDO for step in steps)
            kept |= {f"{run.id}::{step.key}" for step in steps if step.n <= run.kept_n}
            if run.state is RunState.SUCCEEDED:
                lives.add(run.id)
        return Ended(
            stage.run(RUN_ID),
            executions,
            points.passed,
            frozenset(kept),
            by_hand,
            frozenset(lives),
            why,
            points.trace,
        )

    # --- judging ------------------------------------------------------------------------------------------------------

    def _judge(self, ended: Ended, boundary: Boundary, clean: Ended | None) -> Iterator[Finding]:
        for effect, executions in _by_effect(ended.executions).items():
            step = executions[0].step
            times = self._times(executions)
            if times > 1:
                yield Finding(TWICE, step.name, effect, boundary, times, self._why_twice(executions))
        yield from self._left_behind(ended, boundary)
        if ended.why:
            words = f"did not end: {ended.why}"
            yield Finding(OTHERWISE, self.workflow.name, words, boundary, 1, "undisturbed, it does")
        elif clean is not None and _outcome(clean.row) != _outcome(ended.row):
            words = f"ended {ended.row.state} with {_value(ended.row)}"
            why = f"undisturbed, it ends {clean.row.state} with {_value(clean.row)}"
            yield Finding(OTHERWISE, self.workflow.name, words, boundary, 1, why)

    def _times(self, executions: list[Execution]) -> int:
        told = [key for execution in executions for key in execution.told]
        if told:
            return len({key for key in told if key is not None}) + told.count(None)
        if executions[0].step.name in self.settings.idempotent:
            return 1
        if self.settings.trust_keys and all(execution.hands_on for execution in executions):
            return 1
        return len(executions)

    def _why_twice(self, executions: list[Execution]) -> str:
        step = executions[0].step
        short = _short(step.name)
        if executions[0].told:
            return "so it says itself, by sim.effect()"
        key = "here.undoes or here.key" if isinstance(step, Undo) else "here.key"
        return (
            f"it does not hand on {key}: pass that to the service that does the work, which then knows that it was asked before; "
            f"if twice does no harm, say so: {self._said('idempotent', short)}"
        )

    def _said(self, option: str, step: str) -> str:
        return self._saying.format(option=option, step=step)

    def _left_behind(self, ended: Ended, boundary: Boundary) -> Iterator[Finding]:
        """Effects of a run that did not succeed, which nothing took back."""
        if ended.row.state in {RunState.SUCCEEDED, RunState.STUCK} or ended.why:
            return
        undone = {execution.undone for execution in ended.executions if execution.undone is not None}
        for effect, executions in _by_effect(ended.executions).items():
            step = executions[0].step
            if executions[0].undone is not None or effect in undone or effect in ended.kept:
                continue
            if step.name in self.settings.final or isinstance(step, Undo):
                continue
            if step.undone_by is not None:
                why = f"it has an undo, {_short(step.undone_by.name)}, which did not run"
            elif ended.by_hand or not any(execution.hands_on or execution.told for execution in executions):
                continue  # nobody can tell whether it changed anything
            else:
                short = _short(step.name)
                why = f"it has no undo: declare one with @{short}.undo; if nothing has to undo it, say so: {self._said('final', short)}"
            yield Finding(NOT_UNDONE, step.name, effect, boundary, 1, why)

    def _count(self, ended: Ended, clean: Ended | None) -> None:
        found = _by_effect(ended.executions)
        for effect, executions in _by_effect(clean.executions).items() if clean is not None else ():
            self.report.count(executions[0].step.name, self._times(found[effect]) if effect in found else 0)


@contextmanager
def _silence() -> Iterator[None]:
    """That processes die is what is meant here: nobody needs to read of it."""
    log = logging.getLogger("holdfast")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


def _by_effect(executions: list[Execution]) -> dict[str, list[Execution]]:
    found: dict[str, list[Execution]] = {}
    for execution in executions:
        found.setdefault(execution.effect, []).append(execution)
    return found


def _outcome(run: Run) -> tuple[str, bytes | None]:
    """A run that fails is undone if anything may have happened, which is for the crash to say."""
    return RunState.FAILED if run.state is RunState.UNDONE else run.state, run.output


def _value(run: Run) -> str:
    text = (run.output or b"no result").decode() if run.error is None else run.error
    return text if len(text) < 120 else text[:119] + "…"


def _short(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _shown(effect: str) -> str:
    """A step as the run's own code knows it."""
    run_id, _, key = effect.partition("::")
    return key if run_id == RUN_ID else f"{run_id.removeprefix(f'{RUN_ID}/')}::{key}"


def known_step(name: str) -> Step[Any, Any]:
    """The step of this name, or of this last part of a name."""
    found = [step for full, step in registry.steps.items() if name in {full, full.rsplit(".", 1)[-1]}]
    if len(found) != 1:
        known = ", ".join(sorted(registry.steps)) or "none"
        raise HoldfastError(
            f"{'no' if not found else 'more than one'} step is called {name!r}; known: {known}"
        )
    return found[0]

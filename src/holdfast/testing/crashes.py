"""Explores a workflow: lets its process die at every boundary in turn, and looks at what happens then.

There is a boundary before and after every execution of a step, and before and after every commit. First the workflow
runs undisturbed, to find out which boundaries there are. Then it runs once for each of them, from the beginning: its
process dies there, and another one goes on. Then the same with each step made to fail in turn, so that undos run. The
histories of the runs in which no process died are replayed, here and in other interpreters. The report names whatever
could not be tried, with the reason. The same seed gives the same report.
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
from holdfast.model import UPDATE_PREFIX, NewSignal, RunState, StepKind
from holdfast.testing import interpreters
from holdfast.testing.interpreters import NotReplayed, ReplayResult
from holdfast.testing.judge import (
    OPEN,
    RUN_ID,
    CountRules,
    Execution,
    RunOutcomes,
    by_effect,
    judge,
    open_signals,
    short,
    shown,
)
from holdfast.testing.parts import Part, named
from holdfast.testing.points import BoundaryState, Points, State, is_same
from holdfast.testing.replays import History, differs
from holdfast.testing.report import REPLAYED, Boundary, Finding, Report, Untried
from holdfast.testing.stage import Stage, StageAttempt
from holdfast.testing.stand_ins import Play, StandIn, execute, mentions_key
from holdfast.testing.world import Past, Process
from holdfast.workflow import registry
from holdfast.workflow.signal import Signal
from holdfast.workflow.step import Step
from holdfast.workflow.update import Update
from holdfast.workflow.workflow import Workflow

LASTS_S = 2.0
"""With a seed other than 0, steps with a stand-in last up to this long, so that parallel ones end in another order."""
CANCEL_S = 1.0
"""A step during which its run is cancelled lasts this much longer, so that the cancel takes effect meanwhile."""
INTERPRETERS = 8
"""Two texts in a set have the same order under every second hash seed. So 8 of them miss a difference once in 256."""


class NotEnded(RunError):
    """A run waits for something that the test did not give it."""


class CrashSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What counts as an effect, and how much is tried."""

    seed: int = 0
    boundary: int | None = None
    """Try only this boundary; 0 tries only the replays."""
    failures: bool = True
    """Also make each step fail in turn, and die at every boundary of the undoing."""
    trust_keys: bool = True
    """Count one effect for a step that reads `here.key`, however often it ran: whoever gets the key recognizes it."""
    idempotent: frozenset[str] = frozenset()
    """Names of steps that may run twice."""
    final: frozenset[str] = frozenset()
    """Names of steps that nothing undoes, and nothing has to."""
    unreached: frozenset[str] = frozenset()
    """Names of steps, workflows and signals that the runs need not reach."""
    pretend: bool = False
    """Do not execute a step that has no stand-in: make up its result from its type."""
    boundaries_max: int = 10_000
    interpreters: int = INTERPRETERS
    """In how many other interpreters histories are replayed."""
    stop: Callable[[], bool] | None = None
    """Called before each boundary. If it returns True, no further boundary is tried."""
    tried: Callable[[int, str], None] | None = None
    """Called after each boundary, with the number of boundaries tried so far and what is being tried now."""
    whole: bool = False
    """Run the workflow from the beginning for each boundary, also where the state before it is known. This is slower,
    and must find the same."""


class Advice(NamedTuple):
    """Phrases that advise a person what to do next, in a test or at the command line."""

    option: Callable[[str, Sequence[str]], str]
    """Returns how to set an option, such as `final`, for steps, workflows or signals of these names."""
    signal: str
    """How to send a signal."""
    update: str
    """How to call an update."""
    more: str
    """How to try more boundaries."""
    fewer: str
    """How to do without other interpreters."""
    values: str
    """How to let steps return something else."""
    in_a_test: bool = False
    """True in a test. A test may choose values that make the run fail, and other interpreters do not know what it
    changed in its own process."""


IN_A_TEST = Advice(
    lambda option, names: f"sim.using({option}=[{', '.join(names)}])",
    "`sim.will_send(signal, value)` sends every run a signal",
    "`sim.will_call(update, value)` calls every run",
    "`sim.using(boundaries_max=…)` tries more",
    "`sim.using(interpreters=0)` does without",
    "other arguments or stubs may lead there",
    in_a_test=True,
)


class Scenario(NamedTuple):
    """Which step fails, and from which attempt on; or during which step the run is cancelled."""

    key: str | None = None
    attempt: int = 1
    name: str | None = None
    cancels: bool = False

    def boundary(self, number: int, seed: int, crash: str | None) -> Boundary:
        failing, cancelled = (None, self.name) if self.cancels else (self.name, None)
        return Boundary(number, seed, crash, failing, cancelled)


UNDISTURBED = Scenario()

executing: ContextVar[Execution | None] = ContextVar("holdfast.execution", default=None)
"""In an exploration, the execution that the code which runs now belongs to."""


class Explored(NamedTuple):
    """One run of the workflow, with the boundaries it passed."""

    ended: RunOutcomes
    points: Points


class Explorer:
    """Explores one workflow with one input."""

    def __init__(
        self,
        workflow: Workflow[Any, Any],
        raw: bytes,
        *,
        settings: CrashSettings,
        stand_ins: Mapping[str, StandIn],
        signals: Sequence[tuple[str, bytes]],
        replay: str = "",
        words: Advice = IN_A_TEST,
    ) -> None:
        self.words = words
        self.workflow, self.raw, self.settings = workflow.using(id=RUN_ID), raw, settings
        self.stand_ins, self.signals = dict(stand_ins), signals
        self.report = Report(workflow.name, replay)
        self._counting = CountRules(settings.trust_keys, settings.idempotent, settings.final, words.option)
        self._number = 0
        self._left = 0
        self._phase = ""
        self._reached: set[str] = set()
        """Names of the steps that began, the workflows that ran and the signals that arrived, in any run."""
        self._undone: set[str] = set()
        """Names of the undos that ran in runs in which no process died."""
        self._missed: list[Boundary] = []
        """Boundaries that a run should have passed again, and did not."""
        self._kept: list[tuple[Scenario, History]] = []
        """Histories of the runs in which no process died, to be replayed."""

    # --- all of it ----------------------------------------------------------------------------------------------------

    def explore(self) -> Report:
        with _silence():
            if self.settings.interpreters and self._wants(0):
                with suppress(NotReplayed):
                    interpreters.warm_up(self._hash_seeds)
            self._explore()
        return self.report

    def _explore(self) -> None:
        settings = self.settings
        undisturbed = self._run(UNDISTURBED, None)
        clean = undisturbed.ended
        if clean.awaits:
            raise NotEnded(f"{self.workflow.name} does not end: {self._waits(clean)}.")
        if clean.why:
            # The run may be held, because its code decided otherwise after a wait.
            self._try(UNDISTURBED, None, None, clean)
            return
        if clean.row.state is not RunState.SUCCEEDED:
            error = clean.row.error
            reason = f": {codec.describe_error(error)}" if error else ""
            self.report.undisturbed = f"{clean.row.state}{reason}"
            self._try(UNDISTURBED, None, None, clean)
        self._replay(UNDISTURBED, clean)
        self._at_each(UNDISTURBED, undisturbed, 1)
        calls = {run.effect: run.step for run in clean.executions if run.undone is None}
        if settings.failures:
            for number, (effect, step) in enumerate(calls.items(), 1):
                self._phase = f"{short(step.name)} fails, {number} of {len(calls)}"
                if self._enough():
                    self._left += 1  # there are more, but they have not been counted
                else:
                    self._with_failure(effect, step, undisturbed)
            for effect, step in calls.items():
                if step.undone_by is not None and step.undone_by.name not in self._undone:
                    self._phase = f"cancelled during {short(step.name)}"
                    self._explore_variant(Scenario(effect, name=short(step.name), cancels=True))
        if self._wants(0):
            self._replay_elsewhere()
        self._report_untried()

    def _with_failure(self, effect: str, step: Step[Any, Any], undisturbed: Explored) -> None:
        """Try what happens when this call fails: at once, with a crash at every boundary from there on; and after a
        crash that left its outcome unknown."""
        self._explore_variant(Scenario(effect, 1, short(step.name)))
        after = f"after {shown(effect)}"
        for n, name in enumerate(undisturbed.points.passed, 1):
            if name.startswith(after) and step.origin.undone_by is not None:
                self._try(Scenario(effect, 2, "its next attempt"), n, name, None)
                break

    def _explore_variant(self, variant: Scenario) -> None:
        """Run this scenario, first without a crash, then with a crash at every boundary from its step on."""
        if not self._wants(self._number + 1) and not self._wants(0):
            return
        explored = self._run(variant, None)
        if explored.ended.awaits:
            what = f"what follows when {variant.boundary(0, 0, None).what}"
            self._untried(what, self._waits(explored.ended))
            return
        assert variant.key is not None
        self._replay(variant, explored.ended)
        self._try(variant, None, None, explored.ended)
        passed, before = explored.points.passed, f"before {shown(variant.key)}"
        first = next((n for n, name in enumerate(passed, 1) if name == before), 1)
        self._at_each(variant, explored, first)

    def _at_each(self, variant: Scenario, explored: Explored, first: int) -> None:
        """Die at each boundary of this run. Where a crash leaves the same behind as an earlier one, use its outcome."""
        known: dict[State, RunOutcomes] = {}
        points = explored.points
        for n in range(first, len(points.passed) + 1):
            state = points.states[n - 1]
            ended = self._try(variant, n, points.passed[n - 1], explored.ended, known.get(state), explored)
            if ended is not None and self._shortens:
                known[state] = ended

    def _wants(self, number: int) -> bool:
        """True if the settings want this boundary, or one after it. 0 stands for the replays."""
        wanted = self.settings.boundary
        return wanted is None or (wanted == 0 if number == 0 else wanted >= number)

    def _enough(self) -> bool:
        settings = self.settings
        return len(self.report.boundaries) >= settings.boundaries_max or bool(
            settings.stop and settings.stop()
        )

    def _try(
        self,
        variant: Scenario,
        n: int | None,
        name: str | None,
        clean: RunOutcomes | None,
        known: RunOutcomes | None = None,
        explored: Explored | None = None,
    ) -> RunOutcomes | None:
        """Try one boundary, and return how the run ended; None if the boundary was not tried.

        `known` is how the run ended where a crash left the same behind. `explored` is the run that passed this boundary
        alive.
        """
        settings = self.settings
        self._number += 1
        if settings.boundary is not None and settings.boundary != self._number:
            return None
        if self._enough():
            self._left += 1
            return None
        boundary = variant.boundary(self._number, settings.seed, name)
        ended = known
        if ended is None and explored is not None and n is not None and self._shortens:
            ended = self._go_on(variant, explored, n)
        if ended is None:
            run = self._run(variant, n)
            ended = run.ended
            if settings.boundary is not None:
                self.report.trace = run.points.trace
            if name is not None and not is_same(run.points.died_at, name):
                self._missed.append(boundary)
                return None
        if ended.awaits:
            self._untried(f"what follows when {boundary}", self._waits(ended))
        self.report.boundaries.append(boundary)
        self.report.findings += judge(ended, clean, boundary, self._counting)
        if variant.key is None:
            self._count(ended, clean)
        if settings.tried is not None:
            settings.tried(len(self.report.boundaries), self._phase)
        return ended

    def _count(self, ended: RunOutcomes, clean: RunOutcomes | None) -> None:
        found = by_effect(ended.executions)
        for effect, executions in by_effect(clean.executions).items() if clean is not None else ():
            times = self._counting.times(found[effect]) if effect in found else 0
            self.report.count(executions[0].step.name, times)

    # --- one run ------------------------------------------------------------------------------------------------------

    @property
    def _shortens(self) -> bool:
        return not self.settings.whole and self.settings.boundary is None

    def _run(self, variant: Scenario, die_at: int | None) -> Explored:
        """Run the workflow from the beginning, with a crash at this boundary."""
        points = Points(die_at)
        plays = {name: stand_in.play() for name, stand_in in self.stand_ins.items()}
        ended = self._play(variant, points, plays, [])
        if die_at is None:
            self._undone |= {one.step.name for one in ended.executions if one.undone is not None}
        return Explored(ended, points)

    def _go_on(self, variant: Scenario, explored: Explored, n: int) -> RunOutcomes | None:
        """Go on from what a crash at this boundary leaves behind; return None when that is not known."""
        found = explored.points.past(n)
        if found is None:
            return None
        past, mark = found
        plays = {name: self.stand_ins[name].play(taken) for name, taken in mark.taken.items()}
        executions = explored.ended.executions[: mark.executions]
        return self._play(variant, Points(None), plays, executions, past, mark)

    def _play(
        self,
        variant: Scenario,
        points: Points,
        plays: dict[str, Play],
        executions: list[Execution],
        past: Past | None = None,
        begun: BoundaryState | None = None,
    ) -> RunOutcomes:
        async def perform(attempt: StageAttempt) -> Any:
            return await self._perform(attempt, variant, points, plays, executions, stage)

        opened, sent = (0, 0) if begun is None else (begun.opened, begun.sent)
        stage = Stage(self.settings.seed, perform, faults=points, past=past, opened=opened)
        points.clock = lambda: stage.loop.now
        points.mark = lambda: BoundaryState(
            tuple(stage.world.alive),
            stage.opened,
            sent,
            len(executions),
            {name: play.taken for name, play in plays.items()},
        )
        if points.die_at is None and past is None and self._shortens:
            points.look = stage.world.rows
            points.rows.append(points.look())
        stage.check = points.check
        stage.world.committed = _both(stage.world.committed, points.committed)  # type: ignore[method-assign]
        try:
            if sent == 0:
                stage.start(self.workflow, self.raw)
                sent = 1
            for number, (name, payload) in list(enumerate(self.signals, 1))[sent - 1 :]:
                with suppress(WrongState):  # the run ended before the signal was sent
                    stage.send(NewSignal(RUN_ID, name, f"simulated-{number}", payload))
                sent += 1
            why = self._to_the_end(stage)
            histories = {run.id: History(run, *stage.history(run.id)) for run in stage.runs()}
        finally:
            stage.close()
        for one in histories.values():
            self._reached.add(one.run.workflow)
            self._reached |= {row.update or row.name for row in one.signals if row.delivered_seq}
        return RunOutcomes(histories, executions, why, open_signals(histories) if why else [])

    def _to_the_end(self, stage: Stage) -> str:
        """Let time pass until the run and all that belong to it have ended. Return what it waits for if it does not
        end."""
        while True:
            look = stage.run_until_idle(stage.now)
            if self.signals and self._send_to_children(stage):
                continue
            ended = stage.run(RUN_ID).state in RUN_ENDED | {RunState.STUCK}
            if ended and not stage.has_active_run():
                return ""
            due = min((at for at in (look.back_off, look.timer) if at is not None), default=None)
            if look.busy or due is None:
                return "" if ended else stage.why(RUN_ID)
            stage.advance(due - stage.now)

    def _send_to_children(self, stage: Stage) -> bool:
        """Send the signals to child runs that wait for them, too. Return whether any was sent."""
        sent = False
        for run in stage.runs():
            if run.id == RUN_ID or run.state not in OPEN:
                continue
            steps, signals = stage.history(run.id)
            waited_for = {
                *open_signals({run.id: History(run, steps, signals)}),
                *(UPDATE_PREFIX + step.name for step in steps if step.kind is StepKind.SERVE),
            }
            known = {signal.key for signal in signals}
            for number, (name, payload) in enumerate(self.signals, 1):
                key = f"simulated-{number}"
                if name in waited_for and key not in known:
                    stage.send(NewSignal(run.id, name, key, payload))
                    sent = True
        return sent

    async def _perform(
        self,
        attempt: StageAttempt,
        variant: Scenario,
        points: Points,
        plays: dict[str, Play],
        executions: list[Execution],
        stage: Stage,
    ) -> Any:
        step, here = attempt.step.origin, attempt.here
        name = shown(here.effect)
        self._reached.add(step.name)
        play = plays.get(step.name)
        if play is None and self.settings.pretend:
            play = plays[step.name] = self._made_up(step, points)
        if play is not None and self.settings.seed:
            await attempt.process.environment.sleep(self._lasts(attempt))
        if points.dies(f"before {name}"):
            stage.world.kill(attempt.process)
            await stage.world.for_ever()
        chosen = variant.key == here.effect
        if chosen and not variant.cancels and here.attempt >= variant.attempt:
            points.say(f"{name} fails, attempt {here.attempt}")
            raise Stop("the simulation made this step fail")
        execution = Execution(step, here.effect, here.undone, points.ledger)
        executing.set(execution)
        here.reads_key = False
        runs_code = play is None or play.runs_code
        if runs_code:
            points.begins()
        try:
            if play is None:
                value = await execute(attempt.step.fn, attempt.args, attempt.kwargs)
            else:
                value = await play.perform(attempt.args, attempt.kwargs)
        finally:
            points.ends(ran=runs_code)
        execution.reads_key = here.reads_key or (not runs_code and mentions_key(step.fn))
        executions.append(execution)
        points.say(f"{name} executed, attempt {here.attempt}")
        if chosen and variant.cancels and here.attempt == 1:
            points.say("the run is cancelled")
            await attempt.process.run(RUN_ID).cancel()
            await attempt.process.environment.sleep(CANCEL_S)
        if points.dies(f"after {name}, before its result is recorded"):
            stage.world.kill(attempt.process)
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

    def _lasts(self, attempt: StageAttempt) -> float:
        here = attempt.here
        random = Random(f"{self.settings.seed}/{here.effect}/{here.attempt}")  # noqa: S311  reproducible from the seed
        most = min(LASTS_S, (attempt.step.timeout_s or 2 * LASTS_S) / 2)
        return random.random() * most

    # --- replays ------------------------------------------------------------------------------------------------------

    @property
    def _hash_seeds(self) -> range:
        return range(1, self.settings.interpreters + 1)

    def _replay(self, variant: Scenario, ended: RunOutcomes) -> None:
        """Replay in this process: the same history must lead to the same decisions."""
        if not self._wants(0):
            return
        for history in ended.histories.values():
            self._kept.append((variant, history))
            how = differs(history, self._workflows)
            if how:
                self._found(variant, history, "replayed a second time in the same process", how)

    @property
    def _workflows(self) -> dict[tuple[str, str], Workflow[Any, Any]]:
        own = self.workflow
        return {**registry.workflows, (own.name, own.version): own}

    def _found(self, variant: Scenario, history: History, when: str, how: str) -> None:
        boundary = variant.boundary(0, self.settings.seed, when)
        why = (
            f"{how}. A workflow's code must decide only by its input and by what was recorded. Sort what has no order, "
            "like a set. Read clocks, random numbers, the environment and whatever outlives the run in a step"
        )
        self.report.findings.append(Finding(REPLAYED, history.run.workflow, history.run.id, boundary, 1, why))

    def _replay_elsewhere(self) -> None:
        """Replay in other interpreters, where texts have other hashes."""
        if not self.settings.interpreters or self.report.replayed_otherwise:
            return
        self._phase = "replayed in other interpreters"
        workflows = self._workflows
        names = dict.fromkeys((one.run.workflow, one.run.version) for _, one in self._kept)
        what = "replays in other interpreters, under other hash seeds"
        results: list[ReplayResult] = []
        try:
            for each in interpreters.replay(
                [workflows[name] for name in names],
                [history for _, history in self._kept],
                self._hash_seeds,
            ):
                results.append(each)
                if self.settings.tried is not None:
                    self.settings.tried(len(self.report.boundaries), self._phase)
        except NotReplayed as error:
            self._untried(what, f"{error}; {self.words.fewer}")
            return
        self.report.interpreters = len(results)
        differ = [each for each in results if each.difference is not None]
        if not differ:
            return
        differences = {(each.difference.history, each.difference.how) for each in differ if each.difference}
        first = differ[0]
        assert first.difference is not None
        when = first.difference.when or f"replayed in another process (PYTHONHASHSEED={first.hash_seed})"
        variant, history = self._kept[first.difference.history]
        if len(differ) == len(results) > 1 and len(differences) == 1 and self.words.in_a_test:
            # The others all agree, so it is not the hash seed. They do not know what a test changed in this process.
            why = f"in all of them {first.difference.how}: does the test change this? {self.words.fewer}"
            self._untried(what, why)
            return
        self._found(variant, history, when, first.difference.how)

    # --- what was not tried -------------------------------------------------------------------------------------------

    def _untried(self, what: str, why: str) -> None:
        untried = Untried(what, why)
        if untried not in self.report.untried:
            self.report.untried.append(untried)

    def _waits(self, ended: RunOutcomes) -> str:
        return f"{ended.why} In a simulation: {self.words.signal}"

    def _report_untried(self) -> None:
        settings = self.settings
        if self._left:
            self.report.left = self._left
            self._untried(f"{self._left:,} boundaries or more", f"a limit was reached: {self.words.more}")
        if self._missed:
            first = self._missed[0]
            what = f"{len(self._missed)} boundaries, from boundary {first.number} on"
            self._untried(
                what if len(self._missed) > 1 else f"boundary {first.number}",
                f"a run that should have died {first.crash} did not get there: it is not the same every time. "
                "Stub the steps that return something else when they are executed again",
            )
        if settings.boundary is not None or not settings.failures:
            return  # the caller did not want everything to be tried
        missing = [part for part in self._parts(self.workflow, set()) if part.name not in settings.unreached]
        for kind, word in ((Step, "step"), (Workflow, "workflow"), (Signal, "signal"), (Update, "update")):
            self._untried_parts(word, [short(part.name) for part in missing if isinstance(part, kind)])
        if not self.words.in_a_test and self.report.undisturbed:
            self._untried(
                "a run that succeeds", f"undisturbed, it ends {self.report.undisturbed}: {self.words.values}"
            )

    def _untried_parts(self, kind: str, names: list[str]) -> None:
        if not names:
            return
        never = "came" if kind in ("signal", "update") else "ran"
        advice = {"signal": self.words.signal, "update": self.words.update}.get(kind, self.words.values)
        intended = self.words.option("unreached", names)
        self._untried(
            f"the {kind}{'s' if len(names) > 1 else ''} {', '.join(names)}, which never {never}",
            f"{advice}; if that is intended, say so: {intended}",
        )

    def _parts(self, workflow: Workflow[Any, Any], seen: set[str]) -> Iterator[Part]:
        """Yield what the workflow names and no run reached, and the undos, which no run reached, of steps that ran."""
        for part in named(workflow.fn):
            if part.name in seen:
                continue
            seen.add(part.name)
            if part.name not in self._reached:
                yield part
            elif isinstance(part, Workflow):
                yield from self._parts(part, seen)
            elif isinstance(part, Step):
                undo = part.undone_by
                if undo is not None and undo.name not in self._reached | seen:
                    seen.add(undo.name)
                    yield undo


def _both(first: Callable[..., None], second: Callable[..., None]) -> Callable[..., None]:
    def committed(process: Process, verb: str, asked: dict[str, Any]) -> None:
        first(process, verb, asked)
        second(verb, asked)

    return committed


@contextmanager
def _silence() -> Iterator[None]:
    """Log nothing: here processes die on purpose."""
    log = logging.getLogger("holdfast")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


def known_part(name: str) -> str:
    """Return the full name of the step or workflow with this name, or this last part of a name. Otherwise it is a
    signal's name, which is returned as it is."""
    names = [*registry.steps, *(full for full, _ in registry.workflows)]
    return next((full for full in names if name in {full, short(full)}), name)


def known_step(name: str) -> Step[Any, Any]:
    """Return the step with this name, or this last part of a name."""
    found = [step for full, step in registry.steps.items() if name in {full, short(full)}]
    if len(found) != 1:
        known = ", ".join(sorted(registry.steps)) or "none"
        raise HoldfastError(
            f"{'no' if not found else 'more than one'} step is called {name!r}; these are known: {known}"
        )
    return found[0]

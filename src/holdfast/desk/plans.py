"""The plan of an act on many runs: which of the runs that were meant it can do something to, and the same in words and
numbers. Pure: rows in, words out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from holdfast.lifecycle import RUN_ENDED
from holdfast.model import ActOptions, ActVerb, Breaker, BreakerState, Hold, HoldScope, RunState
from holdfast.store.acts import is_undoing
from holdfast.store.answers import MeantRun

SAMPLE = 3
"""How many runs are named as examples."""
NAMED_MAX = 5
"""How many workflows or dependencies a warning names."""
_S = RunState
STATES: Mapping[ActVerb, tuple[RunState, ...]] = {
    ActVerb.CANCEL: (_S.PENDING, _S.RUNNING, _S.HELD, _S.STUCK),
    ActVerb.HOLD: (_S.PENDING, _S.RUNNING, _S.UNDOING),
    ActVerb.RELEASE: (_S.HELD,),
    ActVerb.RETRY: (_S.FAILED, _S.UNDONE, _S.STUCK),
    ActVerb.SKIP: (_S.STUCK,),
    ActVerb.FORK: (),
}
"""Which runs are meant by a filter that names no state. A retry of what somebody cancelled must be asked for."""
DID = {
    ActVerb.CANCEL: "cancelled",
    ActVerb.HOLD: "held",
    ActVerb.RELEASE: "released",
    ActVerb.RETRY: "retried",
    ActVerb.SKIP: "skipped",
    ActVerb.FORK: "forked",
}


class AlikeRuns(msgspec.Struct, kw_only=True):
    """Runs to which the same would happen."""

    count: int
    words: str
    sample: list[str] = []
    """The ids of some of them."""


class Preview(msgspec.Struct, kw_only=True):
    """What an act would do, in words and numbers."""

    sentence: str = ""
    changes: list[AlikeRuns] = []
    left: list[AlikeRuns] = []
    """Runs that were meant and that the act can do nothing to. They are not in the plan."""
    warnings: list[str] = []


class RunChange(NamedTuple):
    """What would happen to a run."""

    words: str
    is_left: bool = False
    """True if the act can do nothing to it."""


def _left(words: str) -> RunChange:
    return RunChange(words, is_left=True)


AT_ONCE = RunChange("cancelled at once: not begun yet")
CANCELLED = RunChange("asked to cancel themselves: nothing that they did has an undo")
CANCELLED_UNDONE = RunChange("asked to cancel themselves: up to {undos} of their steps are undone")
ABANDONED = RunChange("stopped where they are: what is not undone yet stays")
UNDOING_ALREADY = _left("undoing already, and go on with that; --force stops them where they are")
ASKED_BEFORE = _left("asked to cancel themselves before; --force asks those again whose code heard it")
ENDED = _left("ended before")
HELD = RunChange("held: steps that run now may finish, and no other begins")
HELD_ALREADY = _left("held already")
STUCK = _left("stuck: they wait for a person anyway")
RELEASED = RunChange("released, and go on")
RELEASED_UNDOING = RunChange("released, and go on undoing")
NOT_HELD = _left("not held")
RETRIED = RunChange("retried under a new id, from where they ended")
RETRIED_UNDOS = RunChange("retried at the undos that gave up")
RETRIED_NOW = RunChange(
    "retried at once: {waiting} of their steps wait for the next attempt or are in quarantine"
)
SUCCEEDED = _left("succeeded: there is nothing to retry")
RETRIED_BEFORE = _left("retried before")
CHILDREN = _left("children of a run that has not succeeded: a retry of that one goes on with them")
NOTHING_WAITS = _left("open, and none of their steps waits for its next attempt")
SKIPPED = RunChange("go on: their undos that gave up count as done")
NO_UNDO = _left("without an undo that gave up")
FORKED = RunChange("forked: each gets a new run that keeps all that was recorded")
FORKED_FROM = RunChange("forked from {start}: each gets a new run")
NO_STEP = _left("without a step {start}")
CODE_GONE = _left("without code: no process has declared their workflow and version")


def kind_of(
    verb: ActVerb, options: ActOptions, run: MeantRun, *, has_code: bool, has_step: bool
) -> RunChange:
    """Return what an act would do to a run. `has_code`: some process has declared its workflow. `has_step`: it has the
    step that a fork is to begin with."""
    match verb:
        case ActVerb.CANCEL:
            return _cancelled(run, options.force)
        case ActVerb.HOLD:
            return _held(run)
        case ActVerb.RELEASE:
            if run.state is not RunState.HELD:
                return NOT_HELD
            return RELEASED_UNDOING if run.resume == RunState.UNDOING else RELEASED
        case ActVerb.RETRY:
            return _retried(run)
        case ActVerb.SKIP:
            return SKIPPED if run.state is RunState.STUCK and is_undoing(run.state, run.resume) else NO_UNDO
        case ActVerb.FORK:
            if not has_code:
                return CODE_GONE
            if not has_step:
                return NO_STEP
            return FORKED if options.start is None else FORKED_FROM


def _cancelled(run: MeantRun, force: bool) -> RunChange:
    if run.state in RUN_ENDED:
        return ENDED
    if is_undoing(run.state, run.resume):
        return ABANDONED if force else UNDOING_ALREADY
    if run.is_asked and run.state is not RunState.HELD and not (force and run.is_heard):
        return ASKED_BEFORE
    if run.state is RunState.PENDING and not run.is_begun:
        return AT_ONCE
    return CANCELLED_UNDONE if run.undos else CANCELLED


def _held(run: MeantRun) -> RunChange:
    if run.state in RUN_ENDED:
        return ENDED
    if run.state is RunState.HELD:
        return HELD_ALREADY
    return STUCK if run.state is RunState.STUCK else HELD


def _retried(run: MeantRun) -> RunChange:
    if run.state is RunState.SUCCEEDED:
        return SUCCEEDED
    if run.state in RUN_ENDED:
        if run.retried_as is not None:
            return RETRIED_BEFORE
        is_child = run.parent_state is not None and run.parent_state != RunState.SUCCEEDED
        return CHILDREN if is_child else RETRIED
    if run.state is RunState.STUCK and run.resume != RunState.RUNNING:
        return RETRIED_UNDOS
    return RETRIED_NOW if run.waiting or run.quarantined else NOTHING_WAITS


class PlanTally:
    """Counts what would happen to the runs of a plan, while they are listed."""

    def __init__(self, verb: ActVerb, options: ActOptions) -> None:
        self._verb, self._options = verb, options
        self._counts: dict[RunChange, int] = {}
        self._samples: dict[RunChange, list[str]] = {}
        self._undos = self._waiting = 0
        self.code: dict[tuple[str, str], int] = {}
        """How many runs of the plan need this workflow and version."""
        self.planned = self.seen = 0

    def take(self, run: MeantRun, *, has_code: bool, has_step: bool = True) -> bool:
        """Count a run. Return whether it belongs to the plan."""
        kind = kind_of(self._verb, self._options, run, has_code=has_code, has_step=has_step)
        self.seen += 1
        self._counts[kind] = self._counts.get(kind, 0) + 1
        sample = self._samples.setdefault(kind, [])
        if len(sample) < SAMPLE:
            sample.append(run.id)
        if kind.is_left:
            return False
        self.planned += 1
        self._undos += run.undos if kind is CANCELLED_UNDONE else 0
        self._waiting += run.waiting + run.quarantined if kind is RETRIED_NOW else 0
        if kind not in {AT_ONCE, HELD, ABANDONED}:
            code = (run.workflow, run.version)
            self.code[code] = self.code.get(code, 0) + 1
        return True

    def preview(self, warnings: Iterable[str]) -> Preview:
        """Return the counts in words, the largest first."""
        changes: list[AlikeRuns] = []
        left: list[AlikeRuns] = []
        for kind, count in sorted(self._counts.items(), key=lambda item: -item[1]):
            words = kind.words.format(
                undos=f"{self._undos:,}", waiting=f"{self._waiting:,}", start=self._options.start
            )
            change = AlikeRuns(count=count, words=words, sample=self._samples[kind])
            (left if kind.is_left else changes).append(change)
        return Preview(sentence=self._sentence(), changes=changes, left=left, warnings=list(warnings))

    def _sentence(self) -> str:
        if not self.seen:
            return "no run is meant by that"
        did = DID[self._verb]
        if not self.planned:
            return f"none of the {_runs(self.seen)} that are meant can be {did}"
        rest = self.seen - self.planned
        left = f"; {rest:,} more cannot be" if rest else ""
        return f"{_runs(self.planned)} would be {did}{left}"


def warnings(
    tally: PlanTally, live_code: Iterable[str], breakers: Iterable[Breaker], holds: Iterable[Hold]
) -> list[str]:
    """Return what a person should know before the act: what keeps its runs from going on at once. `live_code` is what
    processes that are up have loaded, as `workflow@version`."""
    if not tally.code:
        return []
    found, up = [], set(live_code)
    gone = {code: count for code, count in tally.code.items() if f"{code[0]}@{code[1]}" not in up}
    if gone:
        names = _listed(f"{name} version {version}" for name, version in gone)
        found.append(
            f"no process that is up has {names}: {_runs(sum(gone.values()))} will wait until one has it"
        )
    shut = [one.name for one in breakers if one.state is not BreakerState.CLOSED]
    if shut:
        found.append(f"in trouble: {_listed(shut)}; steps and undos that depend on it wait")
    known = {name for name, _ in tally.code}
    stops = [
        "everything" if one.scope is HoldScope.ALL else f"{one.scope} {one.value}"
        for one in holds
        if one.scope is not HoldScope.WORKFLOW or one.value in known
    ]
    if stops:
        found.append(f"on hold: {_listed(stops)}; what is covered by that begins when it is released")
    return found


def _runs(count: int) -> str:
    return f"{count:,} run" if count == 1 else f"{count:,} runs"


def _listed(names: Iterable[str]) -> str:
    given = list(names)
    rest = len(given) - NAMED_MAX
    return ", ".join(given[:NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")

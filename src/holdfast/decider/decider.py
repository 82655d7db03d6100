"""One run's code, driven by its history.

The decider runs the workflow on a loop of its own and turns what the code waits for into commands. The owner of the run
delivers outcomes one at a time and records their order. After each delivery the code runs until nothing is ready. With
the same input and the same deliveries, the decider does the same again: that is all that a replay needs. It has no
lock, writes nothing and reads no clock.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import random as chance
from asyncio import Future
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import codec
from holdfast.codec import Payload, digest
from holdfast.config import DEFAULT, OnBug
from holdfast.decider.commands import RUN_ID, CallbackWait, ChildRun, Finish, Issue, Named, Turn, Wait
from holdfast.decider.effect import Effect, open_scope
from holdfast.decider.finish import Interruption, LeftSaga, bug, failed, finish_of, interrupted, stalled
from holdfast.decider.heritage import Heritage
from holdfast.decider.history import Recorded, described, drift, timeline, unreadable
from holdfast.decider.loop import Runaway, RunLoop, Timer
from holdfast.decider.mailbox import Mailbox
from holdfast.decider.markers import Markers
from holdfast.decider.updates import Updates, UpdateScope
from holdfast.errors import Drift, HoldfastError, InvalidInput, StepFailed, WorkflowError
from holdfast.lifecycle import STEP_ENDED
from holdfast.log_buffer import LogBuffer, LogLimits, line_of
from holdfast.model import (
    BY_TAG,
    CANCEL,
    DEADLINE,
    TRACE_TAG,
    UNDO_PREFIX,
    UPDATE_PREFIX,
    ChildUndo,
    Ending,
    Inherited,
    NewSignal,
    Outcome,
    RunRow,
    SignalRow,
    StepKind,
    StepRow,
    StepState,
    callback_key,
    request_key,
    undo_key,
)
from holdfast.namespaces import BETWEEN, namespace_of, stored

if TYPE_CHECKING:
    from holdfast.questions import Question
    from holdfast.workflow.step import Step as AuthoredStep
    from holdfast.workflow.workflow import Workflow

_CALL, _TIMER, _SIGNAL, _CHILD = StepKind.CALL, StepKind.TIMER, StepKind.SIGNAL, StepKind.CHILD
_UNDO, _MARKER, _SERVE, _START = StepKind.UNDO, StepKind.MARKER, StepKind.SERVE, StepKind.START
_ASK, _CALLBACK = StepKind.ASK, StepKind.CALLBACK
_SUCCEEDED, _FAILED = StepState.SUCCEEDED, StepState.FAILED
_KEEP = Wait("", _UNDO, "keep")
"""Marks the place in `Decider._new` where the code passed a point of no return."""


class Decider:
    """The code of one run. Between two deliveries it is at rest."""

    needs_reload = False
    """Always false: all that the code needs is delivered to it."""

    # There are slots because an ordinary instance gets slow beyond 30 attributes.
    __slots__ = (
        "_abandoned",
        "_asked_undoable",
        "_begun_waits",
        "_by_hand",
        "_cancelled",
        "_deadline",
        "_dice",
        "_drift",
        "_dropped",
        "_fence",
        "_finish",
        "_given_up_before",
        "_has_history",
        "_heritage",
        "_holds_bugs",
        "_input",
        "_interruption",
        "_is_child",
        "_kept_undoable",
        "_left_sagas",
        "_left_tasks_cancelled",
        "_logs",
        "_loop",
        "_mailbox",
        "_main",
        "_markers",
        "_new",
        "_newly_published",
        "_placed",
        "_progress",
        "_published",
        "_recorded",
        "_replaying",
        "_saga_effects",
        "_saga_failure",
        "_sagas",
        "_sends",
        "_undo_left_to_run",
        "_undoable",
        "_updates",
        "deadline",
        "done",
        "generation",
        "last_n",
        "log_limits",
        "payload_max",
        "run_id",
        "seq",
        "tags",
        "waiting",
        "workflow",
    )

    def __init__(
        self,
        workflow: Workflow[Any, Any],
        run_id: str,
        input: bytes,
        *,
        begun_at: float,
        generation: int = 1,
        base_n: int = 0,
        deadline: float | None = None,
        heritage: Heritage | None = None,
        payload_max: int = DEFAULT.payload_max_bytes,
        log_limits: LogLimits | None = None,
        fence: int = 0,
        on_bug: OnBug = DEFAULT.on_bug,
        is_child: bool = False,
        tags: str | None = None,
    ) -> None:
        """`heritage` is what this run takes over from the run that it retries or was forked from. What the code logs is kept
        within `log_limits`, under the `fence` that the run's owner has. `on_bug` counts if the workflow does not say it."""
        self.workflow = workflow
        self.log_limits = log_limits
        self._fence = fence
        self._logs: LogBuffer | None = None
        self.payload_max = payload_max
        self.run_id, self.generation, self._is_child = run_id, generation, is_child
        self.seq, self.done = 0, False
        self.waiting: dict[int, Wait] = {}
        self._input, self.deadline = input, deadline
        self.tags = tags
        """The run's tags, as JSON."""
        self._deadline: Wait | None = None
        self.last_n = base_n
        self._loop = RunLoop(  # type: ignore[abstract]  # loop.py sets its other methods
            self, begun_at, "" if generation == 1 else f"@{generation}"
        )
        self._main: asyncio.Task[Any] | None = None
        self._interruption: Interruption | None = None
        self._finish: Finish | None = None
        self._new: list[Wait] = []
        self._dropped: list[int] = []
        self._cancelled: list[int] = []
        self._begun_waits: list[int] = []
        self._placed: list[tuple[int, int]] = []
        self._sends: list[NewSignal] = []
        self._progress: str | None = None
        self._published: dict[str, bytes] = {}
        self._newly_published: dict[str, bytes] = {}
        self._mailbox = Mailbox(self.waiting)
        self._updates: Updates | None = None
        """None until the run gets an update, or its code serves one."""
        self._recorded: Recorded | None = None
        self._given_up_before: list[Wait] = []
        self._replaying = self._has_history = False
        self._drift: Drift | None = None
        self._dice: dict[str, chance.Random] = {}
        self._undoable = False
        """If the run fails, something that the code asked for may have to be undone."""
        self._asked_undoable = self._kept_undoable = self._sagas = 0
        self._saga_effects: dict[str, Effect] = {}
        """What may have to be undone in sagas, by its key."""
        self._by_hand: list[Wait] = []
        self._abandoned: dict[int, str] = {}
        """Children that the code no longer waits for and that have not ended: their keys, by n. What they did may need
        undoing."""
        self._left_tasks_cancelled = self._undo_left_to_run = False
        self._left_sagas: tuple[LeftSaga, ...] = ()
        self._saga_failure: Finish | None = None
        self._heritage = Heritage(run_id) if heritage is None else heritage
        self._holds_bugs = (workflow.on_bug or on_bug) == "hold"
        self._markers: Markers | None = None
        """None until there is a marker: most code has none."""

    @classmethod
    def of_run(
        cls,
        workflow: Workflow[Any, Any],
        run: RunRow,
        *,
        inherited: Sequence[Inherited] = (),
        resumed_at: float = 0.0,
        payload_max: int = DEFAULT.payload_max_bytes,
        log_limits: LogLimits | None = None,
        on_bug: OnBug = DEFAULT.on_bug,
    ) -> Decider:
        """Return the decider of a recorded run, before its replay."""
        return cls(
            workflow,
            run.id,
            run.input,
            begun_at=run.started_at or run.created_at,
            generation=run.generation,
            base_n=run.base_n,
            deadline=run.deadline,
            heritage=Heritage(run.id, inherited, resumed_at, run.created_at),
            payload_max=payload_max,
            log_limits=log_limits,
            fence=run.fence,
            on_bug=on_bug,
            is_child=run.parent_id is not None,
            tags=run.tags,
        )

    # What the owner of the run calls.

    def begin(self, *, whole: bool = False) -> None:
        """Run the code of a fresh run until nothing is ready. `whole` means that other code may have recorded the
        input, so it must be read without loss."""
        if self.deadline is not None:
            timer = Timer(self.deadline, self._expire, (), self._loop)
            timer.wait = None
            self._deadline = self._open_timer(self._loop.root.prefix + DEADLINE, "deadline", timer)
        shape = self.workflow.shape
        try:
            arguments = shape.decode_whole(self._input) if whole else shape.decode(self._input)
        except HoldfastError as wrong:
            raise unreadable("", "input", "the run's input", self._input, wrong) from None
        coroutine = shape.call(self.workflow.fn, arguments)
        self._main = self._loop.create_main(coroutine)
        self._run()

    def replay(self, steps: Sequence[StepRow], signals: Sequence[SignalRow]) -> None:
        """Begin, and deliver again what was delivered, in the recorded order. A run without steps has not committed its
        first turn, so it only begins."""
        if not steps and not signals and not self._heritage:
            self.begin(whole=True)
            return
        self.last_n = max((step.n for step in steps), default=self.last_n)
        markers = [step for step in steps if step.kind is _MARKER]
        if markers:
            self._markers = Markers(markers)
            steps = [step for step in steps if step.kind is not _MARKER]
        self._recorded = Recorded(steps)
        self._heritage.recall(steps)
        self._mailbox.recall(steps, is_retry=bool(self._heritage))
        # The limit may be smaller now than when these inputs were recorded, and a replay must accept them.
        self.payload_max = max(self.payload_max, *(len(step.input or b"") for step in steps), 0)
        self._has_history = bool(steps or signals)
        events = list(timeline(steps, signals))
        # What a fork does first by itself is not a repetition. It begins at the beginning, or with a result that is set.
        is_new = self._heritage.is_new_fork(self.last_n)
        own_seq = self._heritage.own_seq(steps) if is_new else None
        self._replaying = self._loop.quiet = bool(events) or not (is_new and self._heritage.begins_anew)
        self.begin(whole=True)
        for seq, event in events:
            if self.done or self._drift is not None:
                break
            if seq == own_seq:
                self._replaying = self._loop.quiet = False
            self.seq = seq - 1
            if isinstance(event, StepRow):
                self.deliver(event.outcome, whole=True)
            else:
                self.deliver_signal(event.name, event.payload, event.sent_at, event.set_aside, event.answer)
        self._replaying = self._loop.quiet = False
        if self._heritage.is_fork:
            self._newly_published = dict(self._published)  # the row of a fork begins without
        if self._drift is None and any(self._is_open(step) for step in steps):
            self._drift = self._fails_now()
        if markers:
            self._drift = self._removed_marker(steps, signals) or self._drift
        self._check_at_rest()

    def deliver(self, outcome: Outcome, *, whole: bool = False) -> int:
        """Give one outcome to the code, run the code on, and return the outcome's number in the history. `whole` means
        that another process may have written it with other code, so it must be read without loss."""
        self.seq += 1
        loop, n = self._loop, outcome.n
        loop.now = max(loop.now, outcome.at)
        wait = self.waiting.pop(n, None)
        if wait is None:
            is_awaited = self._end_abandoned(n, outcome.state)
            if n in self._dropped:
                # The code gave the step up in this very turn. It has ended, so there is nothing to cancel.
                self._dropped.remove(n)
            elif self._recorded is not None:
                self._recorded.keep(outcome)
            if is_awaited:
                self._run()
            return self.seq
        self._resolve(wait, outcome, whole=whole or self._replaying)
        self._run()
        return self.seq

    def deliver_signal(
        self, name: str, payload: bytes, at: float, set_aside: str | None = None, answer: str | None = None
    ) -> int:
        """Give one signal to the code, run the code on, and return the signal's number in the history. `at` is the
        recorded `sent_at`. `set_aside` is the recorded reason why no wait took the signal; then no wait takes it now.
        `answer` is how an update was answered. `$cancel` cancels the run's main task."""
        self.seq += 1
        if name.startswith(UPDATE_PREFIX):
            # Nothing has happened for the code until the call begins, so that an update which nothing serves changes
            # nothing.
            if self._own_updates().deliver(self.seq, name.removeprefix(UPDATE_PREFIX), payload, answer):
                self._loop.now = max(self._loop.now, at)
            self._run()
            return self.seq
        self._loop.now = max(self._loop.now, at)
        if name == CANCEL:
            self._cancel("cancel")
        elif (found := self._mailbox.deliver(self.seq, name, payload, set_aside)) is not None:
            self.stop_for_drift(found)
        self._run()
        return self.seq

    def expects(self, n: int) -> bool:
        """True if the outcome of this step is still to be delivered."""
        if n in self.waiting or n in self._abandoned:
            return True
        return self._recorded is not None and self._recorded.is_unasked(n)

    @property
    def inherited(self) -> list[Inherited]:
        """What this run took over from the run that it retries. The next generation takes it over as well."""
        return list(self._heritage.by_key.values())

    def effect_key(self, key: str) -> str:
        """Return the `here.key` of the step with this key."""
        return self._heritage.effect_key(key)

    @property
    def ways(self) -> dict[str, bool]:
        """The markers of this run that are decided. True is the new way."""
        return {} if self._markers is None else self._markers.ways

    def unasked(self) -> list[StepRow]:
        """Return the recorded steps that the code has not asked for: it does not reach them yet, or left them out."""
        return [] if self._recorded is None else list(self._recorded.by_key.values())

    def take(self) -> Turn:
        """Return everything the code did since the last call. New steps get their final number here."""
        issued: list[Issue] = []
        kept_n: int | None = None
        n, mailbox = self.last_n, self._mailbox
        ended: list[tuple[int, int, bytes]] = []
        if self._markers is not None:
            for marker, way in self._markers.take(n):
                n = marker.n
                issued.append(marker)
                ended.append((n, 0, way))
        for wait in self._new:
            issue = wait.issue
            if issue is None:
                if wait is _KEEP:
                    kept_n = n
                continue  # the code gave it up before it was issued
            n += 1
            wait.issue = None
            wait.n = issue.n = n
            issued.append(issue)
            if wait.timer is not None or not wait.future.done():
                self.waiting[n] = wait
            elif wait.kind is _UNDO and self._finish is not None and self._finish.how == "succeeded":
                self._dropped.append(n)
        self.last_n = n
        self._new.clear()
        finish, self._finish = self._finish, None
        if not (
            ended
            or kept_n is not None
            or mailbox.answered
            or mailbox.set_aside
            or self._dropped
            or self._cancelled
            or self._sends
            or self._newly_published
            or self._progress is not None
            or self._updates is not None
            or self._logs is not None
            or self._begun_waits
            or self._placed
        ):
            return Turn(issued, finish, is_plain=True)
        ended += [(wait.n, seq, payload) for wait, seq, payload in mailbox.answered]
        turn = Turn(
            issued,
            finish,
            dropped=self._dropped,
            cancelled=self._cancelled,
            ended=ended,
            sends=self._sends,
            progress=self._progress,
            published=self._newly_published or None,
            kept_n=kept_n,
            set_aside=mailbox.set_aside,
            begun_waits=self._begun_waits,
            placed=self._placed,
        )
        if self._updates is not None:
            turn.replies, self._updates.replies = self._updates.replies, []
        if self._logs is not None:
            turn.logs = self._logs.take()
        mailbox.answered.clear()
        self._dropped, self._cancelled, self._sends, mailbox.set_aside = [], [], [], []
        self._newly_published, self._begun_waits, self._placed, self._progress = {}, [], [], None
        return turn

    def close(self) -> None:
        """Leave memory. This closes suspended code; what the code does then is not recorded."""
        self.done = True
        self._loop.close()
        self.waiting.clear()
        self._new.clear()
        self._main = None

    # What workflow code calls, through the functions in `workflow/`.

    def call(self, step: AuthoredStep[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Wait:
        """Ask for a step."""
        shape = step.shape
        raw, arguments = shape.checked(args, kwargs, self.payload_max)
        loop = self._loop
        key = loop.branch().name(step.label)
        name = step.name
        issue = Issue(0, key, _CALL, name, raw, digest(raw), step, arguments, self.seq)
        wait = Wait(key, _CALL, name, Future(loop=loop), shape.result, issue)
        undo = step.origin.undone_by
        if undo is not None:
            self._note_undoable(wait, undo, raw, undo_failed=step.undo_failed)
        if self._recorded is None:  # most runs are fresh: `_ask` would find nothing recorded
            self._new.append(wait)
            return wait
        return self._ask(wait)

    def child(
        self,
        workflow: Workflow[Any, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        detached: bool = False,
    ) -> Wait:
        """Ask for a run of another workflow. If it is `detached`, ask only that it is started: the result is its id, and
        this run neither waits for it nor undoes it."""
        shape = workflow.shape
        raw, arguments = shape.checked(args, kwargs, self.payload_max)
        loop = self._loop
        key = loop.branch().name(workflow.label)
        if workflow.namespace not in {None, self.namespace}:
            raise WorkflowError(
                f"{workflow.name}: a run that a workflow starts is in the namespace of that workflow's run, which is "
                f"{self.namespace!r}, not {workflow.namespace!r}"
            )
        child = ChildRun(
            workflow,
            f"{self.run_id}/{key}" if workflow.id is None else stored(self.namespace, workflow.id),
            workflow.priority,
            workflow.timeout_s,
            self._tags_of(workflow),
            workflow.joins,
            detached=detached,
            begin_at=workflow.begin_at,
            begin_in_s=workflow.begin_in_s,
        )
        kind = _START if detached else _CHILD
        issue = Issue(0, key, kind, workflow.name, raw, digest(raw), None, arguments, self.seq, None, child)
        if detached:
            return self._ask(Wait(key, kind, workflow.name, Future(loop=loop), RUN_ID, issue))
        wait = Wait(key, _CHILD, workflow.name, Future(loop=loop), shape.result, issue)
        wait.joins = workflow.joins
        self._note_undoable(wait, None, b"")
        return self._ask(wait)

    def _tags_of(self, workflow: Workflow[Any, Any]) -> dict[str, str]:
        """Return the tags of a child. Who started this run has started the child, too, and in the same trace."""
        if self.tags is None or (BY_TAG not in self.tags and TRACE_TAG not in self.tags):
            return dict(workflow.tags)
        own: dict[str, str] = msgspec.json.decode(self.tags)
        return {name: own[name] for name in (BY_TAG, TRACE_TAG) if name in own} | workflow.tags

    @property
    def started_by(self) -> str | None:
        """The person who started this run, or the run above it. None if nobody said so."""
        if self.tags is None or BY_TAG not in self.tags:
            return None
        found: dict[str, str] = msgspec.json.decode(self.tags)
        return found.get(BY_TAG)

    def ask(self, label: str, question: Question, result: Payload) -> Wait:
        """Ask people. If this is a replay, the question that was recorded counts, whatever the code asks now."""
        raw = msgspec.json.encode(question)
        if len(raw) > self.payload_max:
            raise InvalidInput(
                f"ask: {len(raw):,} bytes are more than the {self.payload_max:,} that a question may have with all it shows"
            )
        loop = self._loop
        key = loop.branch().name(label)
        issue = Issue(0, key, _ASK, label, raw, None, None, question, self.seq)
        return self._ask(Wait(key, _ASK, label, Future(loop=loop), result, issue))

    def call_back(
        self,
        step: AuthoredStep[Any, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        form: bytes,
        last: CallbackWait | None = None,
    ) -> tuple[Wait, CallbackWait]:
        """Ask for a step whose result another system gives: for the request, which an agent executes, and for the callback,
        which waits. `form` is the JSON Schema of the result. `last` is the callback before, if nobody answered it in time. If this is a replay, the form, the time
        and the number that were recorded count, whatever the code says now."""
        shape, loop, name = step.shape, self._loop, step.name
        raw, arguments = shape.checked(args, kwargs, self.payload_max)
        call = loop.branch().name(step.label) if last is None else last.call
        number = 1 if last is None else last.number + 1
        key = callback_key(call, number)
        asked = request_key(key)
        issue = Issue(0, asked, _CALL, name, raw, digest(raw), step, arguments, self.seq)
        request = Wait(asked, _CALL, name, Future(loop=loop), None, issue)
        number_max = step.retry.timeouts_max if last is None else last.number_max
        recorded = None if self._recorded is None else self._recorded.by_key.get(key)
        if recorded is not None:
            number_max = recorded.attempts_max
        waits = Issue(0, key, _CALLBACK, name, form, None, None, (step.expires_s, number_max), self.seq)
        answer = CallbackWait(
            key, _CALLBACK, name, Future(loop=loop), shape.result, waits, call=call, number=number, number_max=number_max
        )  # fmt: skip
        undo = step.origin.undone_by
        if undo is not None:
            self._note_undoable(request, undo, raw, undo_failed=step.undo_failed)
            if asked in self._saga_effects:
                self._saga_effects[key] = self._saga_effects[asked]
        self._ask(request)
        self._ask(answer)
        return request, answer

    def begin_wait(self, wait: CallbackWait) -> None:
        """Let the time of a callback begin: its request has been made."""
        if wait.n in self.waiting and not self._replaying:
            self._begun_waits.append(wait.n)

    def wait_signal(self, signal: Named) -> Wait:
        """Ask for the next signal of this name."""
        name, loop = signal.name, self._loop
        key = loop.branch().name(signal.label)
        recorded = None if self._recorded is None else self._recorded.by_key.get(key)
        issue = Issue(0, key, _SIGNAL, name, after_seq=self.seq)
        wait = self._ask(Wait(key, _SIGNAL, name, Future(loop=loop), signal.payload, issue))
        # A recorded wait that has ended took its signal, was given up, or has a result that somebody set.
        if recorded is None or recorded.state not in STEP_ENDED:
            self._mailbox.wait(wait)
        return wait

    def patched(self, name: str) -> bool:
        """Return the way at this marker, which is decided once for the run. If the code that recorded the history went
        past this point without the marker, it is the old way. A retry that keeps nothing begins anew. Other retries and
        forks go the ways of the other run while they have not asked for all that they took over: see `Heritage.leads`."""
        if self._markers is None:
            self._markers = Markers()
        recorded, heritage = self._recorded, self._heritage
        if recorded is not None and heritage and heritage.leads(recorded.by_key):
            is_new = heritage.way(name)
        else:
            is_new = not (self._replaying and self._has_history)
        return self._markers.ask(name, is_new=is_new, seq=self.seq)

    def serve(self, serving: UpdateScope) -> None:
        """Serve the updates of one name from now on."""
        update, branch, updates = serving.update, self._loop.branch(), self._own_updates()
        updates.demand_unserved(update.name)
        key = branch.name(f"{update.label}.serve")
        issue = Issue(0, key, _SERVE, update.name, after_seq=self.seq)
        wait = self._ask(Wait(key, _SERVE, update.name, Future(loop=self._loop), None, issue))
        updates.serve(serving, branch, wait)

    def stop_serving(self, serving: UpdateScope) -> None:
        """Begin no more calls in this scope."""
        self._own_updates().close(serving)

    def _own_updates(self) -> Updates:
        if self._updates is None:
            self._updates = Updates(self, self._loop)
        return self._updates

    def start_timer(self, label: str, timer: Timer) -> None:
        """Ask for a timer. The loop's `call_at` does this."""
        self._open_timer(self._loop.branch().name(label), label, timer)

    def drop(self, wait: Wait) -> None:
        """Note that the code no longer waits for this."""
        if wait.timer is None and wait.future.done() and not wait.future.cancelled():
            return  # its outcome came, and the task that waited for it was cancelled in the same turn
        if wait.n == 0:
            wait.issue = None
        elif self.waiting.pop(wait.n, None) is not None:
            if wait.kind is _CHILD:
                self._abandon(wait)
            elif not wait.known:
                self._give_up(wait)
            effect = self._saga_effects.get(wait.key)
            if (
                effect is not None and effect.state is None
            ):  # of a callback, more may be known: the request has failed
                effect.state = StepState.CANCELLED
        if wait.kind is _SIGNAL:
            self._mailbox.forget(wait)

    def _give_up(self, wait: Wait) -> None:
        self._dropped.append(wait.n)
        if wait.kind is _CHILD:
            self._cancelled.append(wait.n)

    def _abandon(self, wait: Wait) -> None:
        """Ask a child to cancel itself. Its step stays open until the child has ended, because what it did may need
        undoing."""
        self._abandoned[wait.n] = wait.key
        if not self._replaying:
            self._cancelled.append(wait.n)

    # Undoing.

    def _note_undoable(
        self,
        wait: Wait,
        undo: AuthoredStep[Any, Any] | None,
        raw: bytes,
        *,
        undo_failed: bool = False,
        by_hand: bool = False,
    ) -> None:
        """Note what the code asks for, if it can be undone. `undo` is None for a child."""
        self._undoable = True
        self._asked_undoable += 1
        scope = open_scope() if self._sagas else None
        if scope is not None:
            effect = Effect(wait, undo, raw, self, undo_failed=undo_failed, by_hand=by_hand)
            effect.index = self._asked_undoable
            scope.effects.append(effect)
            self._saga_effects[effect.key] = effect

    def register_undo(
        self, step: AuthoredStep[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Ask for a step to be called if the run has to be undone."""
        raw, arguments = step.shape.checked(args, kwargs, self.payload_max)
        if self.done:
            return
        loop = self._loop
        key = loop.branch().name(step.label)
        issue = Issue(0, key, _UNDO, step.name, raw, digest(raw), step, arguments, self.seq)
        wait = Wait(key, _UNDO, step.name, Future(loop=loop), None, issue)
        wait.future.set_result(None)
        self._by_hand.append(wait)
        self._note_undoable(wait, step, raw, by_hand=True)
        self._check_every_turn()
        self._ask(wait)
        self.waiting.pop(wait.n, None)

    def keep(self) -> None:
        """Pass a point of no return: nothing that was asked for so far is undone later."""
        if not self.done:
            self._undoable = False
            self._kept_undoable = self._asked_undoable
            if self._new or not self._replaying:  # only the replay of a retry asks for something new
                self._new.append(_KEEP)

    def is_kept(self, effect: Effect) -> bool:
        """True if a saga does not undo this effect: the code has passed a point of no return, or another run had the
        effect, from which this one was forked. What that run had undone itself counts as undone here."""
        if effect.index <= self._kept_undoable:
            return True
        return 0 < effect.wait.n <= self._heritage.kept_n and not (
            self._recorded is not None and undo_key(effect.key) in self._recorded.by_key
        )

    def enter_saga(self) -> None:
        self._sagas += 1

    def leave_saga(self) -> None:
        self._sagas -= 1

    def undo(self, effect: Effect, error: BaseException) -> Future[Any]:
        """Ask for the undo of an effect, and return the future of its end. It is a step like any other. `error` is why
        the effect is undone."""
        self._left_sagas += ((self.seq, error),)
        step = effect.undo
        if step is None:
            return self._undo_child(effect, error)
        raw = effect.undo_input()
        arguments = None
        try:
            arguments = step.shape.decode_whole(raw)
        except HoldfastError as wrong:
            what = f"what {step.name} gets to undo step {effect.key!r}"
            self.stop_for_drift(unreadable(effect.key, "input", what, raw, wrong))
        key = undo_key(effect.key)
        issue = Issue(0, key, _CALL, step.name, raw, digest(raw), step, arguments, self.seq)
        issue.after_stop = effect.after_stop
        return self._ask(Wait(key, _CALL, step.name, Future(loop=self._loop), None, issue)).future

    def _undo_child(self, effect: Effect, error: BaseException) -> Future[Any]:
        """Ask a child to undo itself. A child that the code gave up is cancelled, and undoes itself then; so wait for its
        end first. A run that may only have been joined is not waited for: it may have another owner."""
        wait: Wait = effect.wait
        undone: Future[Any] = Future(loop=self._loop)
        if effect.state is not _SUCCEEDED:
            if wait.n in self._abandoned and not wait.joins:
                effect.undone, effect.cause = undone, error
            else:
                undone.set_result(None)
            return undone
        key = undo_key(effect.key)
        issue = Issue(0, key, _CHILD, wait.name, after_seq=self.seq)
        issue.child_undo = ChildUndo(0, wait.n, codec.encode_error(error), wait.joins)
        return self._ask(Wait(key, _CHILD, wait.name, undone, None, issue)).future

    def _end_abandoned(self, n: int, state: StepState) -> bool:
        """Note the end of a child that the code gave up. True if a saga waited for it. If the child has succeeded after
        all, the saga undoes it now; otherwise it has undone itself."""
        effect = self._saga_effects.get(self._abandoned.pop(n, ""))
        if effect is None:
            return False
        effect.state, undone, cause = state, effect.undone, effect.cause
        if undone is None or cause is None:
            return False
        if state is _SUCCEEDED:
            self._undo_child(effect, cause).add_done_callback(lambda future: _pass_on(future, undone))
        else:
            undone.set_result(None)
        return True

    @property
    def ending(self) -> bool:
        """True if the run is about to end, whatever its code does."""
        return self.done or self._interruption is not None or self._saga_failure is not None

    def leave_undo_to_run(self) -> None:
        """Note that a saga does not undo its part, because the whole run is undone."""
        self._undo_left_to_run = True

    def stick(self, error: BaseException) -> None:
        """Note that a saga cannot undo its part. The code ends here, whatever it does, and the run goes on as an
        `Undoing`."""
        if self._saga_failure is None:
            self._saga_failure = failed(error)
            self._check_every_turn()

    def _check_every_turn(self) -> None:
        """From now on, check the code after every delivery, as if the run had been replayed."""
        if self._recorded is None:
            self._recorded = Recorded()

    @property
    def namespace(self) -> str:
        """The namespace of the run. All that its code names is in it."""
        return namespace_of(self.run_id)

    def send(self, run_id: str, name: str, payload: bytes, key: str | None) -> None:
        """Send a signal to another run of the same namespace, in the commit of this turn."""
        if BETWEEN in run_id:
            raise InvalidInput(
                f"{name}.send: {run_id!r} cannot be a run's id: no run of a namespace has // in its id"
            )
        path = self._loop.branch().name(f"{name}.send")
        if not self._replaying:
            receiver = stored(self.namespace, run_id)
            self._sends.append(
                NewSignal(receiver, name, f"{self._heritage.sender}/{path}" if key is None else key, payload)
            )

    def set_progress(self, fraction: float | None, note: str) -> None:
        if not self._replaying:
            self._progress = msgspec.json.encode({"fraction": fraction, "note": note}).decode()

    def publish(self, key: str, value: bytes) -> None:
        if self._published.get(key) != value:
            self._published[key] = value
            if not self._replaying:
                self._newly_published[key] = value

    def log(self, record: logging.LogRecord) -> None:
        """Keep what the code has logged. It is written with what the code did in this turn."""
        limits = self.log_limits
        if limits is not None and record.levelno >= limits.level and not self._replaying:
            if self._logs is None:
                self._logs = LogBuffer(self._fence, limits.max_bytes)
            self._logs.add(line_of(record, self._loop.now))

    def now(self) -> float:
        return self._loop.now

    def random(self) -> chance.Random:
        """Return the random generator of the current task. Each task has its own, so that what one task draws does not
        depend on how tasks take turns."""
        path = self._loop.branch().path
        dice = self._dice.get(path)
        if dice is None:
            seed = f"{self._heritage.identity}:{self.generation}:{path}"
            dice = self._dice[path] = chance.Random(seed)  # noqa: S311  reproducible on purpose
        return dice

    def is_main(self) -> bool:
        """True if the workflow function itself is running, not a task that it started."""
        return self._main is not None and asyncio.current_task(self._loop) is self._main

    # Asking for steps.

    def _open_timer(self, key: str, name: str, timer: Timer) -> Wait:
        at = timer.when()
        heritage = self._heritage
        if heritage and not key.endswith(DEADLINE):
            # The timer counts from now, not from when the run before ended.
            since = heritage.resumed_at if self._replaying else heritage.made_at
            at += max(0.0, since - self._loop.now)
        at = round(at, 6)  # as the store records it, so that a replay sees the same time
        issue = Issue(0, key, _TIMER, name, None, None, None, None, self.seq, at)
        wait = timer.wait = Wait(key, _TIMER, name, issue=issue, ready_at=at, timer=timer)
        return self._ask(wait)

    def _ask(self, wait: Wait) -> Wait:
        found = self._recorded.ask(wait.key) if self._recorded is not None else None
        if found is None:
            if self._heritage:
                self._heritage.take_over(wait)
            self._new.append(wait)
            return wait
        recorded, outcome = found
        issue, wait.issue = wait.issue, None
        assert issue is not None
        drifted = drift(recorded, issue)
        if drifted is not None:
            self.stop_for_drift(drifted)
            return wait
        wait.n = recorded.n
        wait.known = recorded.delivered_seq is not None
        if wait.key in self._heritage.set_keys and not self._replaying:
            self._placed.append((wait.n, self.seq))
        if wait.kind is _TIMER:
            wait.ready_at = recorded.ready_at
        if recorded.delivered_seq == 0:
            self._given_up_before.append(wait)
        if outcome is not None:
            self._resolve(wait, outcome, whole=True)
        elif wait.kind is _SIGNAL and recorded.delivered_seq:
            drifted = self._mailbox.wait_again(wait, recorded, self.seq)
            if drifted is not None:
                self.stop_for_drift(drifted)
        else:
            self.waiting[wait.n] = wait
        return wait

    def stop_for_drift(self, drifted: Drift) -> None:
        """Stop the code where it is, because it has changed. Nothing that it did in this turn is kept."""
        if self._drift is None:
            self._drift = drifted
        self._check_every_turn()
        self._loop.ready.clear()

    # Delivering outcomes.

    def _resolve(self, wait: Wait, outcome: Outcome, *, whole: bool) -> None:
        if wait.timer is not None:
            if wait.ready_at is not None and wait.ready_at > self._loop.now:
                self._loop.now = wait.ready_at
            timer, wait.timer.wait = wait.timer, None
            self._loop.ready.append(timer)
            timer._holdfast_step = wait.n
            timeout = getattr(timer._callback, "__self__", None)
            if type(timeout) is asyncio.Timeout:
                setattr(timeout, codec.STEP, wait.n)
            return
        future = wait.future
        if future.done():
            return
        state, error = outcome.state, outcome.error
        if state is _SUCCEEDED:
            raw = outcome.output if outcome.output is not None else b"null"
            result = wait.result
            if self._saga_effects and wait.key in self._saga_effects:
                self._saga_effects[wait.key].succeeded(None if result is None else raw)
            if result is None:  # what an undo or a request returns is recorded, but no code reads it
                future.set_result(None)
                return
            try:
                future.set_result(result.decode_whole(raw) if whole else result.decode(raw))
            except HoldfastError as wrong:
                self.stop_for_drift(
                    unreadable(wait.key, "result", f"the result of step {wait.key!r}", raw, wrong)
                )
            return
        if wait.key in self._saga_effects and not (
            wait.result is None and self._saga_effects[wait.key].state
        ):
            self._saga_effects[wait.key].failed(state, error)
        if type(wait) is CallbackWait and error is not None:
            wait.expired = codec.ending_of(error) == Ending.TIMED_OUT
        if state is _FAILED and error is not None:
            raised = codec.decode_error(error)
        else:
            reason = f": {codec.describe_error(error)}" if error else ""
            raised = StepFailed(f"step {wait.key!r} was {state}{reason}", step=wait.name)
        raised.__dict__[codec.STEP] = wait.n
        future.set_exception(raised)

    def _expire(self) -> None:
        self._cancel("deadline")

    def _cancel(self, interruption: Interruption) -> None:
        if self._interruption is None:
            self._interruption = interruption
        if self._main is not None and not self._main.cancel():
            # The code has returned, and only tasks that it left behind in a saga are still undoing. The run has not
            # ended yet, so the interruption decides how it ends.
            self._undo_left_to_run = True

    # Running and ending.

    def _run(self) -> None:
        if self.done:
            self._loop.ready.clear()
            return
        main = self._main
        assert main is not None
        try:
            self._loop.run()
        except Runaway as error:
            self._end(failed(error))
            return
        if self._replaying:
            if self._saga_failure is not None:
                self._end(self._saga_failure)
            elif main.done():
                self._conclude(main)
        elif self._recorded is not None or main.done() or not self._new or self._new[-1].issue is None:
            self._check_at_rest()  # usually, a fresh run asked for one more thing, and there is nothing to check

    def _check_at_rest(self) -> None:
        """Check whether the code, now at rest, has drifted, has ended, or waits for something that can never come."""
        if self._given_up_before and self._drift is None:
            self._drift = self._waits_for_given_up()
        if self._recorded is not None and self._drift is None:
            self._drift = self._mailbox.drift(self._recorded, self._new)
        if self._drift is not None:
            raise self._drift
        if self.done:
            return
        if self._saga_failure is not None:
            self._end(self._saga_failure)
            return
        main = self._main
        assert main is not None
        if main.done():
            self._conclude(main)
        elif len(self.waiting) <= 1 and not self._can_go_on():
            self._end(failed(stalled(main)))

    def _can_go_on(self) -> bool:
        """True if something other than the deadline can still wake the code."""
        for wait in self._new:
            if wait.issue is not None and wait.kind is not _UNDO and wait is not self._deadline:
                return True
        if any(self._is_awaited(key) for key in self._abandoned.values()):
            return True
        return any(wait is not self._deadline for wait in self.waiting.values())

    def _is_awaited(self, key: str) -> bool:
        """True if a saga waits for the end of this child, which the code gave up."""
        effect = self._saga_effects.get(key)
        return effect is not None and effect.undone is not None

    def _waits_for_given_up(self) -> Drift | None:
        """Return a drift if the code waits for a step that it once gave up. Such a step is never delivered, so the code
        would wait for ever."""
        waits, self._given_up_before = self._given_up_before, []
        for wait in waits:
            if wait.n in self.waiting and wait is not self._deadline:
                return Drift(wait.key, "a wait that was given up", described(wait.kind, wait.name, None))
        return None

    def _removed_marker(self, steps: Sequence[StepRow], signals: Sequence[SignalRow]) -> Drift | None:
        """Return a drift if the code has lost a marker that the run needs. If the code has drifted, that may be why."""
        assert self._markers is not None
        passed, drifted = self._passed_seq(steps, signals), self._drift
        if drifted is None:
            # A retry may ask later for what the run before asked for earlier.
            return self._markers.removed(passed, [] if self._heritage else self.unasked())
        if drifted.kind == "fails":
            return None  # the code may have failed before it got to the marker
        found = self._markers.removed(min(passed, self.seq), [])
        if found is None:
            return None
        message = f"{found}; {drifted}"
        return Drift(found.key, drifted.recorded, drifted.asked, message=message, kind=found.kind)

    def _passed_seq(self, steps: Sequence[StepRow], signals: Sequence[SignalRow]) -> float:
        """Return up to which delivery the recorded code surely did what this code did. A retry leaves deliveries out,
        and may get to later ones by another way."""
        if not self._heritage:
            return math.inf
        delivered = {row.delivered_seq for rows in (steps, signals) for row in rows}
        return next(seq for seq in itertools.count(1) if seq not in delivered) - 1

    def _is_open(self, step: StepRow) -> bool:
        """True if the run was waiting for this step when it was last recorded. A retry also takes over ended steps
        whose outcomes are still to be delivered; those do not count."""
        return step.delivered_seq is None and not (self._heritage and step.state in STEP_ENDED)

    def _fails_now(self) -> Drift | None:
        """Return a drift if the code fails where the recorded run waits for something. With the code that recorded it,
        the run would go on waiting, so the code has changed. (A retry does not wait for anything yet, and may fail
        again where the run before failed.)"""
        finish = self._finish
        if finish is None or finish.error is None or self._interruption is not None:
            return None
        if "failed" not in (finish.how, finish.ending):
            return None
        asked = codec.describe_error(finish.error)
        message = f"this code fails the run where it is now: {asked}"
        return Drift("", "a run that goes on", asked, message=message, kind="fails")

    def _conclude(self, main: asyncio.Task[Any]) -> None:
        finish = finish_of(
            self.workflow, main, self._interruption, self._mailbox, self.payload_max, self._left_sagas
        )
        if finish.how in ("succeeded", "continued"):
            if self._sagas and self._still_undoes_sagas(main):
                return
            if self._undo_left_to_run and self._interruption is not None:
                finish = interrupted(self._interruption)
        self._end(finish)

    def _still_undoes_sagas(self, main: asyncio.Task[Any]) -> bool:
        """Cancel the tasks that the code left behind in a saga, so that they undo its part before the run ends. True
        while they are still undoing."""
        if not self._left_tasks_cancelled:
            self._left_tasks_cancelled = True
            for task in self._loop.tasks:
                if not task.done() and task is not main:
                    task.cancel()
            try:
                self._loop.run()
            except Runaway:
                return False
        return self._sagas > 0 and self._can_go_on()

    def _end(self, finish: Finish) -> None:
        """End the code: cancel the tasks it left behind, and give up everything it still waits for. Raises `Bug` instead
        if the code failed by itself, and such runs are held: then nothing of this turn counts."""
        if (
            finish.is_bug
            and self._holds_bugs
            and self._interruption is None
            and finish is not self._saga_failure
        ):
            raise bug(finish.error or "")
        self.done = True
        undoing = finish.how in ("failed", "cancelled") and (self._undoable or finish is self._saga_failure)
        error = finish.error
        if error is not None:
            error = codec.ended_by(error, self.seq, finish.steps, finish.since)
        if undoing:
            ending: Any = finish.how
            finish = Finish("undoing", error=error, ending=ending)
        elif error is not None:
            finish = msgspec.structs.replace(finish, error=error)
        self._finish = finish
        self._loop.log_failed_tasks()
        open_tasks = [task for task in self._loop.tasks if not task.done()]
        if open_tasks:
            for task in open_tasks:
                task.cancel()
            try:
                self._loop.run()
            except Runaway:
                pass  # the run has ended already
        if self._updates is not None:
            self._end_updates(self._updates, finish)
        # What the code added by hand is recorded of a child that succeeds, too, because its parent may undo it.
        keeps_undos = undoing or (self._is_child and finish.how == "succeeded")
        for wait in self._new:
            if wait.issue is not None and (
                wait.timer is not None or not wait.future.done() or (wait.kind is _UNDO and not keeps_undos)
            ):
                wait.issue = None
        for wait in self.waiting.values():
            if wait.known:
                continue
            if not (undoing and _outlives(wait.kind, wait.key)):
                self._give_up(wait)
            elif wait.kind is _CHILD and not wait.key.startswith(UNDO_PREFIX):
                self._cancelled.append(wait.n)
        self.waiting.clear()
        if not undoing:
            self._dropped += sorted(self._abandoned)
            self._dropped += [wait.n for wait in self._by_hand if wait.n and not wait.known]
        self._abandoned.clear()
        if self._recorded is not None:
            self._dropped += [
                row.n
                for row in self._recorded.open_and_unasked()
                if not (undoing and _outlives(row.kind, row.key))
            ]

    def _end_updates(self, updates: Updates, finish: Finish) -> None:
        """Answer the updates that are open. The next generation of the run serves those that have not begun."""
        is_continued = finish.how == "continued"
        if is_continued:
            unread = tuple(sorted((*finish.unread, *updates.waiting())))
            self._finish = msgspec.structs.replace(finish, unread=unread, had_updates=True)
        updates.end(f"run {self.run_id!r} {_ENDS[finish.how]}", is_continued=is_continued)


_ENDS = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "was cancelled",
    "continued": "continued as new",
    "undoing": "did not succeed, and undoes itself,",
}
"""How the code of a run ended, for those who called it."""


def _pass_on(ended: Future[Any], to: Future[Any]) -> None:
    """Let one future end as another one did."""
    if to.done():
        return
    error = None if ended.cancelled() else ended.exception()
    if error is None:
        to.set_result(None)
    else:
        to.set_exception(error)


def _outlives(kind: StepKind, key: str) -> bool:
    """True if a step stays as it is when the code ends and the run undoes itself."""
    return kind in (_CHILD, _UNDO) or key.startswith(UNDO_PREFIX)

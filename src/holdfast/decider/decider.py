"""One run's code, driven by its history.

The decider runs the workflow on a loop of its own and turns what the code waits for into commands. Outcomes are delivered
one at a time, in an order that the owner of the run records; each is followed by running the code until nothing is
ready. Given the same input and the same deliveries it does the same, which is all that replay needs. It holds no lock,
writes nothing and knows no clock.
"""

from __future__ import annotations

import asyncio
import random as chance
from asyncio import Future
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import codec
from holdfast.codec import digest
from holdfast.config import DEFAULT
from holdfast.decider.commands import ChildRun, Finish, Issue, Turn, Wait
from holdfast.decider.effect import Effect, open_scope
from holdfast.decider.finish import Interruption, failed, finish_of, interrupted, stalled
from holdfast.decider.heritage import Heritage
from holdfast.decider.history import Recorded, described, drift, timeline, unreadable
from holdfast.decider.loop import Runaway, RunLoop, Timer
from holdfast.decider.mailbox import Mailbox
from holdfast.errors import Drift, HoldfastError, StepFailed
from holdfast.lifecycle import STEP_ENDED
from holdfast.model import (
    CANCEL,
    DEADLINE,
    UNDO_PREFIX,
    Inherited,
    NewSignal,
    Outcome,
    SignalRow,
    StepKind,
    StepRow,
    StepState,
    undo_key,
)

if TYPE_CHECKING:
    from holdfast.workflow.signal import Signal as AuthoredSignal
    from holdfast.workflow.step import Step as AuthoredStep
    from holdfast.workflow.workflow import Workflow

_CALL, _TIMER, _SIGNAL, _CHILD = StepKind.CALL, StepKind.TIMER, StepKind.SIGNAL, StepKind.CHILD
_UNDO = StepKind.UNDO
_SUCCEEDED, _FAILED = StepState.SUCCEEDED, StepState.FAILED
_KEEP = Wait("", _UNDO, "keep")
"""Stands among what was asked for where the code passed a point of no return."""


class Decider:
    """The code of one run, between two deliveries."""

    needs_reload = False
    """Never: what the code needs is delivered to it."""

    # Slots, because beyond 30 attributes an ordinary instance gets slow.
    __slots__ = (
        "_abandoned",
        "_asked_undoable",
        "_by_hand",
        "_cancelled",
        "_deadline",
        "_dice",
        "_drift",
        "_dropped",
        "_finish",
        "_given_up_before",
        "_heritage",
        "_input",
        "_interruption",
        "_kept_undoable",
        "_left_tasks_cancelled",
        "_loop",
        "_mailbox",
        "_main",
        "_new",
        "_newly_published",
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
        "deadline",
        "done",
        "generation",
        "last_n",
        "payload_max",
        "run_id",
        "seq",
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
        inherited: Sequence[Inherited] = (),
        resumed_at: float = 0.0,
        payload_max: int = DEFAULT.payload_max_bytes,
    ) -> None:
        """`inherited` is what the retry of a run takes over from it, and `resumed_at` is when it goes on."""
        self.workflow = workflow
        self.payload_max = payload_max
        self.run_id = run_id
        self.generation = generation
        self.seq, self.done = 0, False
        self.waiting: dict[int, Wait] = {}
        self._input = input
        self.deadline = deadline
        self._deadline: Wait | None = None
        self.last_n = base_n
        root = "" if generation == 1 else f"@{generation}"
        self._loop = RunLoop(self, begun_at, root)  # type: ignore[abstract]  # its other methods refuse, all alike
        self._main: asyncio.Task[Any] | None = None
        self._interruption: Interruption | None = None
        self._finish: Finish | None = None
        self._new: list[Wait] = []
        self._dropped: list[int] = []
        self._cancelled: list[int] = []
        self._sends: list[NewSignal] = []
        self._progress: str | None = None
        self._published: dict[str, bytes] = {}
        self._newly_published: dict[str, bytes] = {}
        self._mailbox = Mailbox(self.waiting)
        self._recorded: Recorded | None = None
        self._given_up_before: list[Wait] = []
        self._replaying = False
        self._drift: Drift | None = None
        self._dice: dict[str, chance.Random] = {}
        self._undoable = False
        """Something the code asked for may have to be undone if the run fails."""
        self._asked_undoable = 0
        self._kept_undoable = 0
        self._saga_effects: dict[str, Effect] = {}
        """What was asked for in sagas, by its key."""
        self._by_hand: list[Wait] = []
        self._abandoned: set[int] = set()
        """n of children that the code no longer waits for, and that have not ended: what they did may need undoing."""
        self._sagas = 0
        self._left_tasks_cancelled = False
        self._undo_left_to_run = False
        self._saga_failure: Finish | None = None
        self._heritage = Heritage(run_id, inherited, resumed_at)

    # What the owner of the run calls.

    def begin(self, *, whole: bool = False) -> None:
        """Run the code of a fresh run until nothing is ready. `whole`: other code may have recorded its input."""
        if self.deadline is not None:
            timer = Timer(self.deadline, self._expire, (), self._loop)
            timer.wait = None
            self._deadline = self._open_timer(self._loop.root.prefix + DEADLINE, "deadline", timer)
        shape = self.workflow.shape
        try:
            bound = shape.decode_whole(self._input) if whole else shape.decode(self._input)
        except HoldfastError as wrong:
            raise unreadable("", "input", "the run's input", self._input, wrong) from None
        main = shape.call(self.workflow.fn, bound)
        self._main = self._loop.create_main(main)
        self._run()

    def replay(self, steps: Sequence[StepRow], signals: Sequence[SignalRow]) -> None:
        """Begin, and deliver again what was delivered, in its order. A run without steps never committed its first turn."""
        if not steps and not signals and not self._heritage:
            self.begin(whole=True)
            return
        self._recorded = Recorded(steps)
        self._heritage.recall(steps)
        self._mailbox.recall(steps, is_retry=bool(self._heritage))
        self.last_n = max((step.n for step in steps), default=self.last_n)
        # What is recorded was not too large when it was written, whatever the limit is now.
        self.payload_max = max(self.payload_max, *(len(step.input or b"") for step in steps), 0)
        self._replaying = self._loop.quiet = True
        self.begin(whole=True)
        for seq, event in timeline(steps, signals):
            if self.done or self._drift is not None:
                break
            self.seq = seq - 1
            if isinstance(event, StepRow):
                self.deliver(event.outcome)
            else:
                self.deliver_signal(event.name, event.payload, event.sent_at, event.set_aside)
        self._replaying = self._loop.quiet = False
        if self._drift is None and any(self._is_open(step) for step in steps):
            self._drift = self._fails_now()
        self._check_at_rest()

    def deliver(self, outcome: Outcome, *, whole: bool = False) -> int:
        """Hand one outcome to the code and run it on; its place in the history. `whole`: other code than this process's may have
        written it."""
        self.seq += 1
        loop, n = self._loop, outcome.n
        loop.now = max(loop.now, outcome.at)
        wait = self.waiting.pop(n, None)
        if wait is None:
            self._abandoned.discard(n)
            if n in self._dropped:
                self._dropped.remove(
                    n
                )  # given up in this very turn: it has ended, there is nothing to cancel
            elif self._recorded is not None:
                self._recorded.keep(outcome)
            return self.seq
        self._resolve(wait, outcome, whole=whole or self._replaying)
        self._run()
        return self.seq

    def deliver_signal(self, name: str, payload: bytes, at: float, set_aside: str | None = None) -> int:
        """Hand one signal to the code and run it on. `at` is its recorded `sent_at`; with `set_aside`, the reason why no wait
        took it, none takes it now. `$cancel` cancels the run's main task."""
        self.seq += 1
        self._loop.now = max(self._loop.now, at)
        if name == CANCEL:
            self._cancel("cancel")
        elif (changed := self._mailbox.deliver(self.seq, name, payload, set_aside)) is not None:
            self._stop_for_drift(changed)
        self._run()
        return self.seq

    def expects(self, n: int) -> bool:
        """Is the outcome of this step still to be delivered?"""
        if n in self.waiting or n in self._abandoned:
            return True
        return self._recorded is not None and self._recorded.is_unasked(n)

    @property
    def inherited(self) -> list[Inherited]:
        """What a next generation takes over as well."""
        return list(self._heritage.by_key.values())

    def effect_key(self, key: str) -> str:
        """The `here.key` of the step with this key."""
        return self._heritage.effect_key(key)

    def unasked(self) -> list[StepRow]:
        """What is recorded and the code has not asked for: it came to a rest elsewhere, or passed it over."""
        return [] if self._recorded is None else list(self._recorded.by_key.values())

    def take(self) -> Turn:
        """Everything the code did since the last take. New steps get their number here, for ever."""
        issued: list[Issue] = []
        kept_n: int | None = None
        n, mailbox = self.last_n, self._mailbox
        for wait in self._new:
            issue = wait.issue
            if issue is None:
                if wait is _KEEP:
                    kept_n = n
                continue  # given up by the code before anybody heard of it
            n += 1
            wait.issue = None
            wait.n = issue.n = n
            issued.append(issue)
            if wait.timer is not None or not wait.future.done():
                self.waiting[n] = wait
        self.last_n = n
        turn = Turn(
            issued,
            self._dropped,
            self._cancelled,
            [(wait.n, seq, payload) for wait, seq, payload in mailbox.answered] if mailbox.answered else [],
            self._sends,
            self._progress,
            self._newly_published or None,
            self._finish,
            kept_n,
            mailbox.set_aside,
        )
        self._new.clear()
        mailbox.answered.clear()
        self._dropped, self._cancelled, self._sends, mailbox.set_aside = [], [], [], []
        self._progress, self._finish = None, None
        if self._newly_published:
            self._newly_published = {}
        return turn

    def close(self) -> None:
        """Leave memory. Suspended code is closed; what it does on its way out is not recorded."""
        self.done = True
        self._loop.close()
        self.waiting.clear()
        self._new.clear()
        self._main = None

    # What workflow code calls, through the words in `workflow/`.

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
            self._may_undo(wait, undo, raw, undo_failed=step.undo_failed)
        if self._recorded is None:  # a fresh run, as most are: `_ask` would find nothing
            self._new.append(wait)
            return wait
        return self._ask(wait)

    def child(self, workflow: Workflow[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Wait:
        """Ask for a run of another workflow."""
        shape = workflow.shape
        raw, arguments = shape.checked(args, kwargs, self.payload_max)
        loop = self._loop
        key = loop.branch().name(workflow.label)
        child = ChildRun(
            workflow,
            workflow.id if workflow.id is not None else f"{self.run_id}/{key}",
            workflow.priority,
            workflow.timeout_s,
            dict(workflow.tags),
            workflow.joins,
        )
        issue = Issue(0, key, _CHILD, workflow.name, raw, digest(raw), None, arguments, self.seq, None, child)
        self._undoable = True
        wait = Wait(key, _CHILD, workflow.name, Future(loop=loop), shape.result, issue)
        wait.joins = workflow.joins
        return self._ask(wait)

    def wait_signal(self, signal: AuthoredSignal[Any]) -> Wait:
        """Ask for the next signal of this name."""
        name, loop = signal.name, self._loop
        key = loop.branch().name(signal.label)
        wait = Wait(key, _SIGNAL, name, Future(loop=loop), signal.payload, Issue(0, key, _SIGNAL, name))
        self._ask(wait)
        if not wait.known:  # else it took its signal, or the code gave it up
            self._mailbox.wait(wait)
        return wait

    def start_timer(self, label: str, timer: Timer) -> None:
        """Ask for a timer: the loop's `call_at`."""
        self._open_timer(self._loop.branch().name(label), label, timer)

    def drop(self, wait: Wait) -> None:
        """The code gave up waiting."""
        if wait.timer is None and wait.future.done() and not wait.future.cancelled():
            return  # it was answered, and the task that waited for it was cancelled in the same turn
        if wait.n == 0:
            wait.issue = None
        elif self.waiting.pop(wait.n, None) is not None:
            if wait.kind is _CHILD:
                self._abandon(wait)
            elif not wait.known:
                self._give_up(wait)
            if wait.key in self._saga_effects:
                self._saga_effects[wait.key].state = StepState.CANCELLED
        if wait.kind is _SIGNAL:
            self._mailbox.forget(wait)

    def _give_up(self, wait: Wait) -> None:
        self._dropped.append(wait.n)
        if wait.kind is _CHILD:
            self._cancelled.append(wait.n)

    def _abandon(self, wait: Wait) -> None:
        """A child is asked to cancel itself. Its row waits until it has ended: what it did may need undoing."""
        self._abandoned.add(wait.n)
        if not self._replaying:
            self._cancelled.append(wait.n)

    # Taking back.

    def _may_undo(
        self,
        wait: Wait,
        undo: AuthoredStep[Any, Any],
        raw: bytes,
        *,
        undo_failed: bool = False,
        by_hand: bool = False,
    ) -> None:
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
        """Ask for a step to be called if the run has to be taken back."""
        raw, arguments = step.shape.checked(args, kwargs, self.payload_max)
        if self.done:
            return
        loop = self._loop
        key = loop.branch().name(step.label)
        issue = Issue(0, key, _UNDO, step.name, raw, digest(raw), step, arguments, self.seq)
        wait = Wait(key, _UNDO, step.name, Future(loop=loop), None, issue)
        wait.future.set_result(None)
        self._by_hand.append(wait)
        self._may_undo(wait, step, raw, by_hand=True)
        self._check_every_turn()
        self._ask(wait)
        self.waiting.pop(wait.n, None)

    def keep(self) -> None:
        """Nothing that was asked for so far is undone."""
        if not self.done:
            self._undoable = False
            self._kept_undoable = self._asked_undoable
            if self._new or not self._replaying:  # a replay that asks for something anew is that of a retry
                self._new.append(_KEEP)

    def is_kept(self, effect: Effect) -> bool:
        return effect.index <= self._kept_undoable

    def enter_saga(self) -> None:
        self._sagas += 1

    def leave_saga(self) -> None:
        self._sagas -= 1

    def undo(self, effect: Effect) -> Wait:
        """Ask for the undo of an effect: a step like any other."""
        step, raw = effect.undo, effect.undo_input()
        arguments = None
        try:
            arguments = step.shape.decode_whole(raw)
        except HoldfastError as wrong:
            what = f"what {step.name} gets to undo step {effect.key!r}"
            self._stop_for_drift(unreadable(effect.key, "input", what, raw, wrong))
        key = undo_key(effect.key)
        issue = Issue(0, key, _CALL, step.name, raw, digest(raw), step, arguments, self.seq)
        issue.after_stop = effect.after_stop
        return self._ask(Wait(key, _CALL, step.name, Future(loop=self._loop), None, issue))

    @property
    def ending(self) -> bool:
        """Is the run about to end, whatever its code does?"""
        return self.done or self._interruption is not None or self._saga_failure is not None

    def leave_undo_to_run(self) -> None:
        """A saga leaves its part to the run, which takes itself back."""
        self._undo_left_to_run = True

    def stick(self, error: BaseException) -> None:
        """A saga cannot take its part back: the run ends here, whatever its code does, and goes on as an `Undoing`."""
        if self._saga_failure is None:
            self._saga_failure = failed(error)
            self._check_every_turn()

    def _check_every_turn(self) -> None:
        """From here on the code is looked at after every delivery, as that of a replayed run is."""
        if self._recorded is None:
            self._recorded = Recorded()

    def send(self, run_id: str, name: str, payload: bytes, key: str | None) -> None:
        """Send a signal to another run, in the commit of this turn."""
        place = self._loop.branch().name(f"{name}.send")
        if not self._replaying:
            self._sends.append(
                NewSignal(run_id, name, f"{self._heritage.identity}/{place}" if key is None else key, payload)
            )

    def set_progress(self, fraction: float, note: str) -> None:
        if not self._replaying:
            self._progress = msgspec.json.encode({"fraction": fraction, "note": note}).decode()

    def publish(self, key: str, value: bytes) -> None:
        if self._published.get(key) != value:
            self._published[key] = value
            if not self._replaying:
                self._newly_published[key] = value

    def now(self) -> float:
        return self._loop.now

    def random(self) -> chance.Random:
        """Each task has dice of its own: what one draws does not depend on how tasks take turns."""
        path = self._loop.branch().path
        dice = self._dice.get(path)
        if dice is None:
            seed = f"{self._heritage.identity}:{self.generation}:{path}"
            dice = self._dice[path] = chance.Random(seed)  # noqa: S311  reproducible on purpose
        return dice

    def is_main(self) -> bool:
        """Is the workflow function itself running, not a task it started?"""
        return self._main is not None and asyncio.current_task(self._loop) is self._main

    # Asking.

    def _open_timer(self, key: str, name: str, timer: Timer) -> Wait:
        at = timer.when()
        if self._replaying and self._heritage and not key.endswith(DEADLINE):
            # Its time begins now, not when the run before ended.
            at += max(0.0, self._heritage.resumed_at - self._loop.now)
        at = round(at, 6)  # as it is recorded: a replay must not see another time
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
        changed = drift(recorded, issue)
        if changed is not None:
            self._stop_for_drift(changed)
            return wait
        wait.n = recorded.n
        wait.known = recorded.delivered_seq is not None
        if wait.kind is _TIMER:
            wait.ready_at = recorded.ready_at
        if recorded.delivered_seq == 0:
            self._given_up_before.append(wait)
        if outcome is not None:
            self._resolve(wait, outcome, whole=True)
        elif wait.kind is _SIGNAL and recorded.delivered_seq:
            changed = self._mailbox.wait_again(wait, recorded, self.seq)
            if changed is not None:
                self._stop_for_drift(changed)
        else:
            self.waiting[wait.n] = wait
        return wait

    def _stop_for_drift(self, changed: Drift) -> None:
        """The code has changed: stop it where it is. Nothing it did since is kept."""
        if self._drift is None:
            self._drift = changed
        self._check_every_turn()
        self._loop.ready.clear()

    # Answering.

    def _resolve(self, wait: Wait, outcome: Outcome, *, whole: bool) -> None:
        if wait.timer is not None:
            if wait.ready_at is not None and wait.ready_at > self._loop.now:
                self._loop.now = wait.ready_at
            timer, wait.timer.wait = wait.timer, None
            self._loop.ready.append(timer)
            timer._holdfast_step = wait.n
            around = getattr(timer._callback, "__self__", None)
            if type(around) is asyncio.Timeout:
                setattr(around, codec.STEP, wait.n)
            return
        future = wait.future
        if future.done():
            return
        state, error = outcome.state, outcome.error
        if state is _SUCCEEDED:
            raw = outcome.output if outcome.output is not None else b"null"
            if self._saga_effects and wait.key in self._saga_effects:
                self._saga_effects[wait.key].succeeded(raw)
            result = wait.result
            if result is None:  # what an undo returns is recorded; nobody waits for it
                future.set_result(None)
                return
            try:
                future.set_result(result.decode_whole(raw) if whole else result.decode(raw))
            except HoldfastError as wrong:
                self._stop_for_drift(
                    unreadable(wait.key, "result", f"the result of step {wait.key!r}", raw, wrong)
                )
            return
        if wait.key in self._saga_effects:
            self._saga_effects[wait.key].failed(state, error)
        if state is _FAILED and error is not None:
            raised = codec.decode_error(error)
        else:
            why = f": {codec.describe_error(error)}" if error else ""
            raised = StepFailed(f"step {wait.key!r} was {state}{why}", step=wait.name)
        raised.__dict__[codec.STEP] = wait.n
        future.set_exception(raised)

    def _expire(self) -> None:
        self._cancel("deadline")

    def _cancel(self, why: Interruption) -> None:
        if self._interruption is None:
            self._interruption = why
        if self._main is not None and not self._main.cancel():
            # The code has returned, and only tasks that it left behind in a saga are being undone. The run has not ended yet, so it
            # ends as it was told to.
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
            self._check_at_rest()  # else a fresh run asked for one more thing, as it usually does

    def _check_at_rest(self) -> None:
        """The code is at rest: has it drifted, ended, or is it waiting for something that can never come?"""
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
        for wait in self._new:
            if wait.issue is not None and wait.kind is not _UNDO and wait is not self._deadline:
                return True
        return any(wait is not self._deadline for wait in self.waiting.values())

    def _waits_for_given_up(self) -> Drift | None:
        """A step that the code once gave up is never delivered: waiting for it now would be for ever."""
        ghosts, self._given_up_before = self._given_up_before, []
        for wait in ghosts:
            if wait.n in self.waiting and wait is not self._deadline:
                return Drift(wait.key, "a wait that was given up", described(wait.kind, wait.name, None))
        return None

    def _is_open(self, step: StepRow) -> bool:
        """Does the run wait for it, or for hearing of it? What a retry takes over may still be to be delivered."""
        return step.delivered_seq is None and not (self._heritage and step.state in STEP_ENDED)

    def _fails_now(self) -> Drift | None:
        """With the code that recorded it, a run that waits for something goes on waiting: if it fails instead, the code has
        changed. (A retried run waits for nothing yet: it may fail again where it failed.)"""
        finish = self._finish
        if finish is None or finish.error is None or self._interruption is not None:
            return None
        if "failed" not in (finish.how, finish.ending):
            return None
        asked = codec.describe_error(finish.error)
        message = f"this code fails the run where it is now: {asked}"
        return Drift("", "a run that goes on", asked, message=message, kind="fails")

    def _conclude(self, main: asyncio.Task[Any]) -> None:
        finish = finish_of(self.workflow, main, self._interruption, self._mailbox.unread(), self.payload_max)
        if finish.how in ("succeeded", "continued"):
            if self._sagas and self._still_undoes_sagas(main):
                return
            if self._undo_left_to_run and self._interruption is not None:
                finish = interrupted(self._interruption)
        self._end(finish)

    def _still_undoes_sagas(self, main: asyncio.Task[Any]) -> bool:
        """Tasks that the code left behind in a saga are cancelled, and take its part back, before the run ends."""
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
        """Cancel what the code left behind, and give up everything it still waits for."""
        self.done = True
        undoing = finish.how in ("failed", "cancelled") and (self._undoable or finish is self._saga_failure)
        error = finish.error
        if error is not None:
            error = codec.ended_by(error, self.seq, finish.steps)
        if undoing:
            ending: Any = finish.how
            finish = Finish("undoing", error=error, ending=ending)
        elif error is not None:
            finish = msgspec.structs.replace(finish, error=error)
        self._finish = finish
        self._loop.log_failed_tasks()
        left = [task for task in self._loop.tasks if not task.done()]
        if left:
            for task in left:
                task.cancel()
            try:
                self._loop.run()
            except Runaway:
                pass  # it has ended already
        for wait in self._new:
            if wait.issue is not None and (
                wait.timer is not None or not wait.future.done() or (wait.kind is _UNDO and not undoing)
            ):
                wait.issue = None
        for wait in self.waiting.values():
            if wait.known:
                continue
            if not (undoing and _outlives(wait.kind, wait.key)):
                self._give_up(wait)
            elif wait.kind is _CHILD:
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


def _outlives(kind: StepKind, key: str) -> bool:
    """Does a row stay as it is when the code ends and the run takes itself back?"""
    return kind in (_CHILD, _UNDO) or key.startswith(UNDO_PREFIX)

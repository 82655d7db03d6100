"""A handle to one run: wait for its result, look at it, steer it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, overload

from holdfast import codec
from holdfast.access import Identity
from holdfast.decider.history import shown
from holdfast.desk import opened
from holdfast.desk.desk import LocalDesk
from holdfast.durations import Eta
from holdfast.errors import (
    HoldfastError,
    InvalidInput,
    RunCancelled,
    RunFailed,
    RunStuck,
    RunUndone,
    UnknownRun,
    UnknownStep,
    UnknownValue,
    Unreadable,
)
from holdfast.info import AttemptInfo, RunInfo, RunView, StepInfo
from holdfast.lifecycle import RUN_ENDED
from holdfast.log_buffer import level_number
from holdfast.logs import LogFilter, LogInfo, LogTake, in_time
from holdfast.model import Attempt, RunRow, RunState, StepRow
from holdfast.namespaces import shown as shown_name
from holdfast.namespaces import shown_row, shown_text, stored
from holdfast.store.forks import Forked
from holdfast.store.operations import Close
from holdfast.supervisor.outlook import Outlook
from holdfast.workflow import options
from holdfast.workflow.options import Seconds
from holdfast.workflow.workflow import Workflow

R = TypeVar("R")
T = TypeVar("T")


class RunRows(NamedTuple):
    """A run and its steps as the store has them, for the command line."""

    run: RunRow
    steps: list[StepRow]
    attempts: list[Attempt]
    outlook: Outlook = Outlook()
    """What earlier durations say about the run. Empty if nobody asked for it."""

    def shown(self, namespace: str | None) -> RunRows:
        """Return the rows as those in the namespace see them."""
        return RunRows(
            shown_row(namespace, self.run),
            [shown_row(namespace, step) for step in self.steps],
            [shown_row(namespace, attempt) for attempt in self.attempts],
            self.outlook.shown(namespace),
        )


class HandleSource(opened.Opened, Protocol):
    """The Holdfast that a handle came from."""

    is_remote: bool

    @property
    def desk(self) -> LocalDesk: ...

    @property
    def who(self) -> Identity: ...


class Run(Generic[R]):
    """A handle to one run. If the run does not exist, its methods raise UnknownRun."""

    def __init__(
        self,
        hf: HandleSource,
        run_id: str,
        workflow: Workflow[..., R] | None,
        *,
        known: bool = False,
        within: bool = False,
        stored_id: str | None = None,
    ) -> None:
        self._hf, self.id, self._workflow = hf, run_id, workflow
        self._stored = stored(hf.namespace, run_id) if stored_id is None else stored_id
        self._known, self._within = known, within
        """Whether the run was seen in the store; whether it was started in a transaction of the user."""

    def __repr__(self) -> str:
        return f"<Run {self.id}>"

    async def result(self, timeout: Seconds | None = None) -> R:
        """Wait until the run has ended, and return the workflow's result. Raise RunFailed or a subclass if it did not
        succeed, and TimeoutError if it has not ended within `timeout`."""
        patience_s = None if timeout is None else options.patience(timeout, "run.result(timeout=…)")
        if patience_s == 0:
            row = await self._row()
            if row.state not in RUN_ENDED and row.state is not RunState.STUCK:
                raise TimeoutError(f"run {self.id} is {row.state}")
        if patience_s is None:
            close = await self._ended()
        else:
            async with asyncio.timeout(patience_s or None):
                close = await self._ended()
        if close is None:
            raise unknown_run(self.id, self._within)
        return self._result(close)

    async def _ended(self) -> Close | None:
        if not self._known:
            await self._row()
        watcher = self._hf.caller.watch_end(self._stored)
        try:
            return await watcher
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise HoldfastError(
                f"this Holdfast was closed while this call waited for run {self.id} to end"
            ) from None

    def _result(self, close: Close) -> R:
        if close.state is RunState.SUCCEEDED:
            if self._workflow is not None:
                return self._read(self._workflow, close.output or b"null")
            plain: R = codec.decode_any(close.output or b"null")
            return plain
        reason = codec.describe_error(close.error) if close.error else "no reason was recorded"
        reason = shown_text(self._hf.namespace, reason)
        error_type = json.loads(close.error).get("type", "") if close.error else ""
        kind = {RunState.CANCELLED: RunCancelled, RunState.UNDONE: RunUndone, RunState.STUCK: RunStuck}
        raise kind.get(RunState(close.state), RunFailed)(
            f"run {self.id} {close.state}: {reason}", run_id=self.id, error_type=error_type
        ) from codec.original_error(close.error)

    def _read(self, workflow: Workflow[Any, R], raw: bytes) -> R:
        try:
            value: R = workflow.shape.result.decode_whole(raw)
        except InvalidInput as wrong:
            what = f"the result of run {self.id}, which succeeded,"
            plain = f"{wrong}; `hf.run({self.id!r}).result()` gives it as plain JSON"
            raise Unreadable("", "result", what, shown(raw), plain) from None
        return value

    async def _row(self) -> RunRow:
        try:
            row = await self._hf.desk.runs.get(self._hf.who, self.id)
        except UnknownRun:
            raise unknown_run(self.id, self._within) from None
        self._known = True
        return row

    async def _demand_known(self) -> None:
        if not self._known:
            await self._row()

    async def info(self) -> RunInfo:
        """Return the run as it is now."""
        return RunInfo(shown_row(self._hf.namespace, await self._row()))

    async def state(self) -> RunState:
        return (await self._row()).state

    @overload
    async def published(self) -> dict[str, Any]: ...
    @overload
    async def published(self, key: str, type: type[T]) -> T: ...
    async def published(self, key: str | None = None, type: Any = None) -> Any:
        """Return what the workflow has published with `publish`: all of it, or the value under `key` in its type. Raise
        UnknownValue if nothing is published under the key, and InvalidInput if the value has another type."""
        values = (await self.info()).published
        return values if key is None else published_value(self.id, values, key, type)

    async def steps(self) -> list[StepInfo]:
        """Return the steps of the run, in the order in which the workflow asked for them."""
        return [StepInfo(shown_row(self._hf.namespace, step)) for step in await self._steps()]

    async def _steps(self) -> list[StepRow]:
        await self._demand_known()
        found: list[StepRow] = []
        while True:
            after = found[-1].n if found else 0
            page = await self._hf.desk.runs.steps(self._hf.who, self.id, after, 1000)
            found += page
            if len(page) < 1000:
                return found

    async def step_keys(self) -> dict[int, str]:
        """Return the keys of the run's steps by their numbers."""
        return {row.n: row.key for row in await self._steps()}

    async def number_of(self, key: str) -> int:
        """Return the number of the step with this key."""
        for n, known in (await self.step_keys()).items():
            if known == key:
                return n
        raise UnknownStep.named(self.id, key)

    async def logs(
        self, step: str | None = None, *, attempt: int | None = None, level: str | None = None
    ) -> list[LogInfo]:
        """Return what the run and its steps have logged, in the order of time. With `step`, a step's key, return only
        what that step has logged; with `attempt`, only what that attempt has; with `level`, only lines of that level
        and above, such as `"WARNING"`."""
        where = LogFilter(None, attempt, log_level(level) if level is not None else 0)
        if self._hf.is_remote:
            n = None if step is None else await self.number_of(step)
            return await self._hf.desk.runs.logs(self._hf.who, self.id, where._replace(n=n))
        keys, reads, take = await self.step_keys(), self._hf.store.reads, LogTake()
        if step is not None:
            where = where._replace(n=await self.number_of(step))
            found = take.sorted(await reads.logs_of(self._stored, [where.n or 0]))
        else:
            found = [logged async for logged in in_time(reads, self._stored, take)]
        return [logged.info(keys) for logged in found if where.fits(logged)]

    async def view(self) -> RunView:
        """Return the run, its steps and their failed attempts."""
        return _view(await self.rows())

    async def rows(self) -> RunRows:
        return RunRows(
            await self._row(), await self._steps(), await self._hf.desk.runs.attempts(self._hf.who, self.id)
        )

    async def why(self) -> str:
        """Return one sentence: what the run waits for, and what would move it."""
        await self._demand_known()
        return await self._hf.desk.runs.why(self._hf.who, self.id)

    async def eta(self) -> Eta | None:
        """Return when the run will end if it goes on like those before it: `left_s` seconds for half of them, `most_s`
        for nine of ten. Return None if it is not running, or if too few runs came this far."""
        return (await self._hf.desk.runs.etas(self._hf.who, [await self._row()])).get(self.id)

    async def watch(self, every_s: float = 0.1) -> AsyncIterator[RunView]:
        """Yield the run's view now and after each change, until the run has ended."""
        pause_s = options.seconds(every_s, "run.watch(every_s=…)") or 0.0
        last: object = None
        while True:
            view = await self.rows()
            mark = (
                view.run.state,
                view.run.fence,
                view.run.progress,
                view.run.published,
                len(view.attempts),
                [(step.fence, step.delivered_seq, step.progress) for step in view.steps],
            )
            if mark != last:
                last = mark
                yield _view(view)
            if view.run.state in RUN_ENDED:
                return
            await self._hf.environment.sleep(pause_s)

    async def cancel(self, note: str = "", *, force: bool = False) -> RunState:
        """Ask the run to cancel itself: its running steps are cancelled, and what it did is undone. Return its state
        right after that. A run that is already undoing goes on with that, unless `force` makes it stop where it is. If
        the code of the run got such a request before and went on, only `force` asks it again."""
        await self._demand_known()
        return await self._hf.desk.runs.cancel(self._hf.who, self.id, note, force=force)

    async def hold(self, note: str = "") -> RunState:
        """Stop the run: it issues no further step until `release`. Steps that are already running end and are
        recorded."""
        await self._demand_known()
        return await self._hf.desk.runs.hold(self._hf.who, self.id, note)

    async def release(self, note: str = "") -> RunState:
        await self._demand_known()
        return await self._hf.desk.runs.release(self._hf.who, self.id, note)

    async def retry(self) -> Run[R]:
        """Try again, and return the run to watch.

        In an open run, the steps that wait for a retry and those in quarantine are tried at once. In a stuck run, the
        undos that gave up are tried again. For an ended run, this starts a new run, which keeps all that was recorded
        and executes again what ended the run and what was undone. Retrying the same run again gives the same new run.
        If the new run was retried, too, only the newest can be retried.
        """
        await self._demand_known()
        new_id = await self._hf.desk.runs.retry(self._hf.who, self.id)
        new_id = shown_name(self._hf.namespace, new_id)
        return self if new_id == self.id else Run(self._hf, new_id, self._workflow, known=True)

    async def fork(
        self,
        *,
        from_: str | None = None,
        input: Any = None,
        set: Mapping[str, Any] | None = None,
        id: str | None = None,
    ) -> Run[R]:
        """Start a new run with everything that this one recorded before a point, and return it. This one is not changed.

        `from_` is the key of a step: it and everything that the code asked for after it is executed again. `input` are
        other arguments, by name. `set` has other results of steps, by their keys. Without `from_`, the new run begins
        at the beginning if there is an `input`, after the first of the steps in `set`, or else where this run is now.
        It never undoes what it did not do itself. Its id is `ID-fork-1`, unless `id` says otherwise.
        """
        made = await self.forked(from_, input, set, id)
        return Run(self._hf, made.id, self._workflow, known=True)

    async def forked(
        self, start: str | None, input: Any, results: Mapping[str, Any] | None, new_id: str | None
    ) -> Forked:
        """Like `fork`. Return what was taken over, for the command line."""
        await self._demand_known()
        made = await self._hf.desk.runs.fork(self._hf.who, self.id, start, input, results, new_id)
        return made._replace(id=shown_name(self._hf.namespace, made.id))

    async def skip(self, step: str | None = None, note: str = "") -> RunState:
        """Count an undo that gave up as done by hand: the one with this key (of the step or of its undo), or all of
        them."""
        await self._demand_known()
        return await self._hf.desk.runs.skip(self._hf.who, self.id, step, note)


def log_level(name: str) -> int:
    try:
        return level_number(name)
    except ValueError as wrong:
        raise InvalidInput(f"run.logs(level=…): {wrong}") from None


def published_value(run_id: str, values: Mapping[str, Any], key: str, type: Any) -> Any:
    """Return a published value in its type."""
    if key not in values:
        known = ", ".join(sorted(values)) or "nothing"
        raise UnknownValue(f"run {run_id!r} has not published {key!r}; it has published {known}")
    return codec.Payload(type, f"{key!r}, which run {run_id!r} has published").decode_whole(
        json.dumps(values[key]).encode(), typed=False
    )


def _view(rows: RunRows) -> RunView:
    return RunView(
        RunInfo(rows.run), [StepInfo(one) for one in rows.steps], [AttemptInfo(one) for one in rows.attempts]
    )


def unknown_run(run_id: str, within: bool = False) -> UnknownRun:
    if within:
        return UnknownRun(
            f"no run has the id {run_id!r}: the transaction it was started in is not committed, or was rolled back"
        )
    return UnknownRun.of(run_id)

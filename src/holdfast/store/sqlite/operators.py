"""What callers and operators ask for, about one run each. Every action leaves a row in the journal."""

from __future__ import annotations

import json

import apsw

from holdfast.errors import UnknownRun, WrongState
from holdfast.model import CANCEL, UNDO, Run, RunState, StepState
from holdfast.store.answers import Answer
from holdfast.store.children import cancelled_error
from holdfast.store.operations import NewSignal
from holdfast.store.operators import cancel_key, demand_undoing
from holdfast.store.retries import demand_alone, demand_retryable
from holdfast.store.sqlite.dialect import Dialect
from holdfast.store.sqlite.retries import again, newest, retry, run_with
from holdfast.store.sqlite.rows import fetch, run_of
from holdfast.store.sqlite.verbs import VERBS


class Operating(Dialect):
    async def send_signal(self, signal: NewSignal) -> Answer:
        async with self._database.transaction() as connection:
            return self._send(connection, signal)

    def _send(self, connection: apsw.Connection, signal: NewSignal) -> Answer:
        sent = (signal.run_id, signal.name, signal.key)
        before = connection.total_changes()
        connection.execute(VERBS.send_signals, (*sent, signal.payload, self._clock.now()))
        if connection.total_changes() > before:
            return Answer.ACCEPTED
        _known(connection, signal.run_id)
        return Answer.DUPLICATE if connection.execute(VERBS.sent_before, sent).get else Answer.FENCED

    async def cancel_run(self, run_id: str, actor: str, note: str, again: bool = False) -> RunState:
        async with self._database.transaction() as connection:
            now = self._clock.now()
            cancelled = fetch(connection, VERBS.cancel_pending, (now, note, run_id))
            if cancelled:
                self._journal(connection, actor, "cancel", note, run_id)
                connection.execute(VERBS.sweep_closed_signals, (run_id,))
                parent = (StepState.FAILED, None, cancelled_error(run_id), now, *cancelled[0])
                connection.execute(VERBS.tell_parents, parent)
                return RunState.CANCELLED
            run = _known(connection, run_id)
            if run.state is RunState.HELD:
                self._release(connection, run_id, actor, "cancelled while held")
            payload = json.dumps({"actor": actor, "note": note}).encode()
            key = cancel_key(connection.execute(VERBS.heard_cancels, (run_id,)).get, again=again)
            if self._send(connection, NewSignal(run_id, CANCEL, key, payload)) is Answer.ACCEPTED:
                self._journal(connection, actor, "cancel", note, run_id)
            connection.execute(VERBS.unstick_quarantined, (run_id,))
            return _known(connection, run_id).state

    async def hold(self, run_id: str, actor: str, note: str) -> RunState:
        async with self._database.transaction() as connection:
            before = connection.total_changes()
            connection.execute(VERBS.hold, (note, run_id))
            if connection.total_changes() > before:
                self._journal(connection, actor, "hold", note, run_id)
            elif (state := _known(connection, run_id).state) is not RunState.HELD:
                raise WrongState(f"run {run_id!r} is {state}: only a run that has not ended can be held")
            return RunState.HELD

    async def release(self, run_id: str, actor: str, note: str) -> RunState:
        async with self._database.transaction() as connection:
            return self._release(connection, run_id, actor, note)

    def _release(self, connection: apsw.Connection, run_id: str, actor: str, note: str) -> RunState:
        released = fetch(connection, VERBS.release, (run_id,))
        if not released:
            state = _known(connection, run_id).state
            raise WrongState(f"run {run_id!r} is {state}: only a held run can be released")
        self._journal(connection, actor, "release", note, run_id)
        if released[0][0] == RunState.UNDOING:
            self._steer(connection, run_id, "resume", None, actor, note)
        return RunState(released[0][0])

    async def steer_undo(self, run_id: str, act: str, n: int | None, actor: str, note: str) -> RunState:
        async with self._database.transaction() as connection:
            run = _known(connection, run_id)
            demand_undoing(run, act)
            connection.execute(VERBS.unstick, (run_id,))
            connection.execute(VERBS.clear_stuck, (self._clock.now(), run_id))
            self._steer(connection, run_id, act, n, actor, note)
            return _known(connection, run_id).state

    def _steer(
        self, connection: apsw.Connection, run_id: str, act: str, n: int | None, actor: str, note: str
    ) -> None:
        payload = json.dumps({"act": act, "n": n, "actor": actor, "note": note}).encode()
        self._send(connection, NewSignal(run_id, UNDO, self._environment.new_id(), payload))
        self._journal(connection, actor, act, note, run_id, n)

    async def retry_now(self, run_id: str, actor: str) -> int:
        async with self._database.transaction() as connection:
            _known(connection, run_id)
            before = connection.total_changes()
            connection.execute(VERBS.retry_now, (self._clock.now(), run_id))
            count = connection.total_changes() - before
            if count:
                self._journal(connection, actor, "retry", f"{count} steps ready at once", run_id)
            return count

    async def retry_run(self, run_id: str, actor: str) -> str:
        async with self._database.transaction() as connection:
            run = _known(connection, run_id)
            later = again(connection, run)
            demand_retryable(run, later, newest(connection, later))
            if later is not None:
                return later.id
            parent = newest(connection, run_with(connection, run.parent_id))
            demand_alone(run, parent, connection.execute(VERBS.live_below, (run_id,)).get)
            new_id = retry(connection, run, self._clock.now())
            self._journal(connection, actor, "retry", f"as {new_id}", run_id)
            return new_id


def _known(connection: apsw.Connection, run_id: str) -> Run:
    row = connection.execute(VERBS.run, (run_id,)).get
    if row is None:
        raise UnknownRun(f"no run has the id {run_id!r}: `holdfast ps` lists the newest")
    return run_of(row)

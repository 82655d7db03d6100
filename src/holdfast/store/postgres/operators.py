"""What operators and callers do to a run, each act with its line in the journal."""

from __future__ import annotations

import json
from typing import Any

import asyncpg

from holdfast.errors import UnknownRun, WrongState
from holdfast.model import CANCEL, UNDO, Run, RunState
from holdfast.store.answers import Answer
from holdfast.store.children import cancelled_error
from holdfast.store.operations import NewSignal
from holdfast.store.operators import cancel_key, demand_undoing
from holdfast.store.postgres.reads import Reading
from holdfast.store.postgres.retries import again, newest, retry
from holdfast.store.postgres.rows import run_of
from holdfast.store.postgres.verbs import VERBS
from holdfast.store.retries import demand_alone, demand_retryable


class Operating(Reading):
    async def send_signal(self, signal: NewSignal) -> Answer:
        arguments = (signal.run_id, signal.name, signal.key)
        if await self._fetch(VERBS.send_signal, *arguments, signal.payload):
            return Answer.ACCEPTED
        await self._known(signal.run_id)
        return Answer.DUPLICATE if await self._fetch(VERBS.sent_before, *arguments) else Answer.FENCED

    async def _known(self, run_id: str) -> Run:
        run = await self.run(run_id)
        if run is None:
            raise UnknownRun(f"no run has the id {run_id!r}: `holdfast ps` lists the newest")
        return run

    async def cancel_run(self, run_id: str, actor: str, note: str, again: bool = False) -> RunState:
        async def run(connection: asyncpg.Connection[Any]) -> RunState | None:
            async with connection.transaction():
                row = await connection.fetchrow(VERBS.cancel_pending, run_id, note)
                if row is None:
                    return None
                await connection.execute(VERBS.journal_add, actor, "cancel", run_id, None, note)
                if row["parent_id"] is not None:
                    error = cancelled_error(run_id)
                    await connection.execute(
                        VERBS.tell_parents, [row[0]], [row[1]], ["failed"], [None], [error], [None]
                    )
                return RunState.CANCELLED

        done = await self._on_pool(run)
        if done is not None:
            return done
        seen = await self._known(run_id)
        if seen.state is RunState.HELD:
            await self.release(run_id, actor, "cancelled while held")
        if seen.finished_at is None:
            payload = json.dumps({"actor": actor, "note": note}).encode()
            key = cancel_key((await self._fetch(VERBS.heard_cancels, run_id))[0][0], again=again)
            if await self.send_signal(NewSignal(run_id, CANCEL, key, payload)) is Answer.ACCEPTED:
                await self._fetch(VERBS.journal_add, actor, "cancel", run_id, None, note)
            # After the signal, which keeps a run from getting stuck: so the signal is delivered, whoever came first.
            await self._fetch(VERBS.unstick_quarantined, [run_id])
        return (await self._known(run_id)).state

    async def hold(self, run_id: str, actor: str, note: str) -> RunState:
        if not await self._fetch(VERBS.hold, run_id, note):
            seen = await self._known(run_id)
            if seen.state is not RunState.HELD:
                raise WrongState(f"run {run_id!r} is {seen.state}: only a run that has not ended can be held")
        else:
            await self._fetch(VERBS.journal_add, actor, "hold", run_id, None, note)
        return RunState.HELD

    async def release(self, run_id: str, actor: str, note: str) -> RunState:
        async def run(connection: asyncpg.Connection[Any]) -> RunState | None:
            async with connection.transaction():
                state = await connection.fetchval(VERBS.release, run_id)
                if state is None:
                    return None
                await connection.execute(VERBS.journal_add, actor, "release", run_id, None, note)
                if state == RunState.UNDOING:  # in the same commit: nothing else would wake it
                    await self._steer(connection, run_id, "resume", None, actor, note)
                return RunState(state)

        state = await self._on_pool(run)
        if state is None:
            seen = await self._known(run_id)
            raise WrongState(f"run {run_id!r} is {seen.state}: only a held run can be released")
        return state

    async def retry_now(self, run_id: str, actor: str) -> int:
        await self._known(run_id)
        count = len(await self._fetch(VERBS.retry_now, run_id))
        if count:
            await self._fetch(VERBS.journal_add, actor, "retry", run_id, None, f"{count} steps ready at once")
        return count

    async def retry_run(self, run_id: str, actor: str) -> str:
        async def run(connection: asyncpg.Connection[Any]) -> str:
            async with connection.transaction():
                row = await connection.fetchrow(VERBS.lock_run, run_id)
                if row is None:
                    raise UnknownRun(f"no run has the id {run_id!r}: `holdfast ps` lists the newest")
                seen = run_of(row)
                later = await again(connection, seen)
                demand_retryable(seen, later, await newest(connection, run_id))
                if later is not None:
                    return later.id
                parent = await newest(connection, seen.parent_id)
                demand_alone(seen, parent, await connection.fetchval(VERBS.live_below, run_id))
                new_id = await retry(connection, seen)
                await connection.execute(VERBS.journal_add, actor, "retry", run_id, None, f"as {new_id}")
                return new_id

        return await self._on_pool(run)

    async def steer_undo(self, run_id: str, act: str, n: int | None, actor: str, note: str) -> RunState:
        seen = await self._known(run_id)
        demand_undoing(seen, act)

        async def run(connection: asyncpg.Connection[Any]) -> None:
            async with connection.transaction():
                await connection.execute(VERBS.unstick, run_id)
                await connection.execute(VERBS.clear_stuck, run_id)
                await self._steer(connection, run_id, act, n, actor, note)

        await self._on_pool(run)
        return (await self._known(run_id)).state

    async def _steer(
        self,
        connection: asyncpg.Connection[Any],
        run_id: str,
        act: str,
        n: int | None,
        actor: str,
        note: str,
    ) -> None:
        payload = json.dumps({"act": act, "n": n, "actor": actor, "note": note}).encode()
        await connection.execute(VERBS.send_signal, run_id, UNDO, self._environment.new_id(), payload)
        await connection.execute(VERBS.journal_add, actor, act, run_id, n, note)

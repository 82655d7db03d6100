"""The schedule desk of a server, over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw

from holdfast.access import Identity
from holdfast.desk.schedules import LIST_MAX, BackfillRequest, ScheduleRequest
from holdfast.errors import HoldfastError, UnknownSchedule, UnknownWorkflow
from holdfast.model import BackfillRow, FireRow, OpenFire, ScheduleRow
from holdfast.remote.rows import at, maybe
from holdfast.remote.transport import Transport
from holdfast.store.schedules import SeenSchedule
from holdfast.times.backfill import Planned
from holdfast.times.calendars import Days
from holdfast.times.plan import Preview
from holdfast.wire import answers, requests
from holdfast.wire.paths import path_of

PAGE = 200
"""How much a server puts on one page."""


class RemoteScheduleDesk:
    """A schedule desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    # --- reading ------------------------------------------------------------------------------------------------------

    async def get(self, who: Identity, name: str) -> SeenSchedule:
        return _seen(await self._transport.get(who, _path(name), answers.Schedule, None, _no(name)))

    async def fires(self, who: Identity, name: str, limit: int = 20) -> list[FireRow]:
        query = {"limit": min(limit, PAGE)}
        found: answers.Fires = await self._transport.get(
            who, f"{_path(name)}/fires", answers.Fires, query, _no(name)
        )
        return [_fire(name, one) for one in found.items]

    async def preview(self, who: Identity, name: str, count: int) -> list[Preview]:
        path, query = f"{_path(name)}/preview", {"count": count}
        found: answers.Preview = await self._transport.get(who, path, answers.Preview, query, _no(name))
        return [Preview(at(one.at), at(one.starts_at), one.note) for one in found.items]

    async def backfills(self, who: Identity, name: str) -> list[BackfillRow]:
        path = f"{_path(name)}/backfills"
        found: answers.Backfills = await self._transport.get(who, path, answers.Backfills, None, _no(name))
        return [_backfill(one) for one in found.items]

    # --- changing -----------------------------------------------------------------------------------------------------

    async def create(self, who: Identity, request: ScheduleRequest) -> bool:
        """Make a schedule. Return False if the same one exists."""
        before = None
        with suppress(UnknownSchedule):
            before = _written(await self.get(who, request.name))

        def unknown() -> HoldfastError:
            return UnknownWorkflow(
                f"no workflow is called {request.workflow!r} there: start a process that has it with `holdfast up FILE`"
            )

        made = _seen(
            await self._transport.post(who, "/v1/schedules", answers.Schedule, _body(request), unknown)
        )
        return _written(made) != before

    async def remove(self, who: Identity, name: str, note: str = "") -> None:
        await self._act(who, name, "remove", answers.Schedule, requests.Noted(note=note))

    async def pause(self, who: Identity, name: str, note: str = "") -> SeenSchedule:
        return _seen(await self._act(who, name, "pause", answers.Schedule, requests.Noted(note=note)))

    async def resume(self, who: Identity, name: str, note: str = "") -> SeenSchedule:
        return _seen(await self._act(who, name, "resume", answers.Schedule, requests.Noted(note=note)))

    async def run(self, who: Identity, name: str, note: str = "", *, anyway: bool = False) -> FireRow:
        body = requests.RunNow(anyway=anyway, note=note)
        # Each time is another run. So if the answer is lost, it is not sent again.
        return _fire(name, await self._act(who, name, "run", answers.Fire, body, is_repeatable=False))

    async def plan_backfill(self, who: Identity, name: str, request: BackfillRequest) -> list[Planned]:
        found: answers.BackfillAnswer = await self._fill(who, name, request, dry_run=True)
        return [Planned(at(one.at), one.exists, one.run) for one in found.times]

    async def backfill(self, who: Identity, name: str, request: BackfillRequest) -> BackfillRow:
        found: answers.BackfillAnswer = await self._fill(who, name, request, dry_run=False)
        assert found.backfill is not None
        return _backfill(found.backfill)

    async def _fill(self, who: Identity, name: str, request: BackfillRequest, *, dry_run: bool) -> Any:
        body = requests.NewBackfill(
            from_=_text(request.from_at),
            to=_text(request.to_at),
            newest_first=request.newest_first,
            most=request.most,
            again=request.again,  # type: ignore[arg-type]  # the server refuses what it does not know
            dry_run=dry_run,
            note=request.note,
        )
        return await self._act(who, name, "backfills", answers.BackfillAnswer, body, is_repeatable=dry_run)

    async def stop_backfill(self, who: Identity, name: str, backfill: str) -> BackfillRow:
        path = f"{_path(name)}/backfills/{path_of(backfill)}/stop"

        def unknown() -> HoldfastError:
            return UnknownSchedule(f"schedule {name!r} has no backfill {backfill!r}")

        return _backfill(await self._transport.post(who, path, answers.Backfill, None, unknown))

    async def _act(
        self, who: Identity, name: str, act: str, gives: type[Any], body: Any, *, is_repeatable: bool = True
    ) -> Any:
        path = f"{_path(name)}/{act}"
        return await self._transport.post(who, path, gives, body, _no(name), is_repeatable=is_repeatable)

    async def list(self, who: Identity, after: str = "", limit: int = LIST_MAX) -> list[SeenSchedule]:
        query = {"after": after, "limit": min(limit, PAGE)}
        found: answers.Schedules = await self._transport.get(who, "/v1/schedules", answers.Schedules, query)
        return [_seen(one) for one in found.items]


def _written(seen: SeenSchedule) -> tuple[Any, ...]:
    """Return what somebody has written about a schedule."""
    row = seen.row
    return row.workflow, row.version, row.input, row.plan, row.priority, row.tags


def _path(name: str) -> str:
    return f"/v1/schedules/{path_of(name)}"


def _no(name: str) -> Callable[[], HoldfastError]:
    return lambda: UnknownSchedule.of(name)


def _text(given: str | datetime) -> str:
    return given if isinstance(given, str) else given.isoformat()


def _instant(given: float | None) -> str | None:
    return None if given is None else datetime.fromtimestamp(given, UTC).isoformat()


def _days(given: Days | None) -> requests.CalendarDays | None:
    return (
        None
        if given is None
        else requests.CalendarDays(name=given.name, days=list(given.days), until=given.until)
    )


def _body(request: ScheduleRequest) -> requests.NewSchedule:
    plan = request.plan
    return requests.NewSchedule(
        name=request.name,
        workflow=request.workflow,
        times=plan.times,
        input=Raw(request.input),
        version=request.version,
        tz=plan.zone,
        skip=_days(plan.skip),
        only=_days(plan.only),
        shift=plan.shift,
        anchor=_instant(plan.anchor or None),
        start=_instant(plan.start),
        end=_instant(plan.end),
        count=plan.count,
        overlap=plan.overlap,
        missed=plan.missed_max if plan.missed == "all" else plan.missed,
        window_s=plan.window_s,
        jitter_s=plan.jitter_s,
        pause_after=plan.pause_after,
        due=plan.due,
        due_in_s=request.due_in_s,
        tags=dict(request.tags),
        priority=request.priority,
        fair=request.fair,
        timeout_s=request.timeout_s,
        replace=request.replace,
    )


# --- rows, as the store has them ----------------------------------------------------------------------------------------


def _seen(found: answers.Schedule) -> SeenSchedule:
    row = ScheduleRow(
        name=found.name,
        namespace=found.namespace,
        origin=found.origin or "",
        workflow=found.workflow,
        version=found.version,
        input=bytes(found.input),
        digest=b"",
        priority=found.priority,
        tags=msgspec.json.encode(found.tags).decode() if found.tags else None,
        timeout_s=None,
        plan=bytes(found.plan).decode(),
        state=found.state,
        note=found.note,
        actor=found.actor,
        cursor=at(found.decided_until),
        next_at=maybe(found.next_at),
        fence=0,
        failures=found.failures,
        started=found.started,
        last_run=found.last_run,
        last_at=None,
        tzdata="",
        created_at=at(found.created_at),
    )
    opened = [OpenFire(found.name, 0.0, 1, "started", run, None, False, "running") for run in found.open]
    waiting = [OpenFire(found.name, at(one), 1, "buffered", None, None, False, None) for one in found.waiting]
    return SeenSchedule(row, [*opened, *waiting])


def _fire(name: str, found: answers.Fire) -> FireRow:
    return FireRow(
        schedule=name,
        at=at(found.at),
        repeat=found.repeat,
        fate=found.fate,
        run_id=found.run,
        why=found.why,
        decided_at=at(found.decided_at),
        backfill=found.backfill,
        last_at=at(found.last_at),
        times=found.times,
        ended=False,
        counted=False,
    )


def _backfill(found: answers.Backfill) -> BackfillRow:
    return BackfillRow(
        id=found.id,
        schedule=found.schedule,
        from_at=at(found.from_at),
        to_at=at(found.to_at),
        newest_first=found.newest_first,
        most=found.most,
        again=found.again,
        state=found.state,
        cursor=None,
        started=found.started,
        passed=found.passed,
        actor=found.actor,
        note=found.note,
        fence=0,
        created_at=at(found.created_at),
        ended_at=maybe(found.ended_at),
    )

"""The start desk of a server, over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw

from holdfast.access import Identity
from holdfast.desk.starts import Started, StartRequest
from holdfast.errors import HoldfastError, UnknownWorkflow
from holdfast.remote.transport import Reply, Transport, error_of
from holdfast.wire import answers, requests


class RemoteStartDesk:
    """A start desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def start(self, who: Identity, request: StartRequest) -> Started:
        headers = {} if request.key is None or request.id is not None else {"Idempotency-Key": request.key}
        if request.id is None and request.key is None:
            request = msgspec.structs.replace(request, id=self._transport.environment.new_id())
        found = await self._transport.post(
            who,
            "/v1/runs",
            answers.Started,
            requests.Start(**_start_fields(request)),
            lambda: UnknownWorkflow(
                f"no workflow is called {request.workflow!r} there: start a process that has it with `holdfast up FILE`"
            ),
            headers=headers,
        )
        return Started(found.id, found.new)

    async def start_many(
        self, who: Identity, requested: Sequence[StartRequest]
    ) -> list[Started | HoldfastError]:
        made: list[Started | HoldfastError] = []
        for start in range(0, len(requested), requests.ITEMS_MAX):
            part = [
                request
                if request.id is not None or request.key is not None
                else msgspec.structs.replace(request, id=self._transport.environment.new_id())
                for request in requested[start : start + requests.ITEMS_MAX]
            ]
            items = [requests.StartItem(**_start_fields(one), key=one.key) for one in part]
            found = await self._transport.post(
                who, "/v1/runs/batch", answers.StartedItems, requests.Batch(items=items)
            )
            made += [self._started(item, one) for item, one in zip(found.items, part, strict=True)]
        return made

    def _started(self, item: answers.StartedItem, request: StartRequest) -> Started | HoldfastError:
        if item.run is not None:
            return Started(item.run.id, item.run.new)
        reply = Reply(item.status, msgspec.json.encode(item.problem), {})
        return error_of(
            reply,
            lambda: UnknownWorkflow(f"no workflow is called {request.workflow!r} there"),
            self._transport.shown,
        )


def _start_fields(request: StartRequest) -> dict[str, Any]:
    return {
        "workflow": request.workflow,
        "input": Raw(request.input),
        "version": request.version,
        "id": request.id,
        "tags": dict(request.tags),
        "priority": request.priority,
        "timeout_s": request.timeout_s,
        "begin_at": moment(request.begin_at),
        "begin_in_s": request.begin_in_s,
        "fair": request.fair,
        "due_at": moment(request.due_at),
        "due_in_s": request.due_in_s,
    }


def moment(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()

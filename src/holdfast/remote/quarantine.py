"""The quarantine desk of a server, over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.access import Identity
from holdfast.desk.quarantine import Resolve
from holdfast.errors import HoldfastError, UnknownRun
from holdfast.model import Poison
from holdfast.remote import rows
from holdfast.remote.runs import raw, run_path
from holdfast.remote.transport import Transport
from holdfast.wire import answers, requests
from holdfast.wire.paths import path_of

NO_NAME = "there is nothing of this name here"


class RemoteQuarantineDesk:
    """A quarantine desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def fingerprints(self, who: Identity, run: str) -> set[str]:
        found = await self._transport.get(
            who, "/v1/quarantine", answers.Quarantine, {"run": path_of(run)}, lambda: UnknownRun.of(run)
        )
        return {one.fingerprint for one in found.items}

    async def resolve(
        self,
        who: Identity,
        act: Resolve,
        fingerprint: str | None = None,
        *,
        run_id: str | None = None,
        note: str = "",
        result: Any = None,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        if run_id is not None:
            if fingerprint is not None:
                raise HoldfastError(
                    "say which steps: through a server, name either a fingerprint or a run, not both"
                )
            whole = requests.Resolve(act=act, note=note, result=raw(result, "result"))
            path, unknown = f"{run_path(run_id)}/quarantine", UnknownRun.of(run_id)
            return (await self._transport.post(who, path, answers.Resolved, whole, lambda: unknown)).steps
        if fingerprint is None:
            raise HoldfastError(
                "say which steps: a fingerprint, as `holdfast quarantine` lists them, or a run"
            )
        body: Any = requests.Noted(note=note)
        if act == "skip":
            body = requests.ResolveSkip(note=note, result=raw(result, "result"))
        try:
            path = f"/v1/quarantine/{path_of(fingerprint)}/{act}"
            done = (
                await self._transport.post(who, path, answers.Resolved, body, lambda: UnknownRun(NO_NAME))
            ).steps
        except UnknownRun:
            return 0
        if progress is not None:
            progress(done)
        return done

    async def list(self, who: Identity) -> list[Poison]:
        found = await self._transport.get(who, "/v1/quarantine", answers.Quarantine)
        return [rows.poison(one) for one in found.items]

"""The callback desk of a server, over HTTP."""

from __future__ import annotations

import msgspec

from holdfast.access import Identity
from holdfast.desk.callbacks import CallbacksAsked
from holdfast.errors import UnknownCallback
from holdfast.remote.runs import part_of
from holdfast.remote.transport import Transport
from holdfast.wire import answers, requests
from holdfast.wire.paths import path_of


class RemoteCallbackDesk:
    """A callback desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self, who: Identity, where: CallbacksAsked) -> answers.Callbacks:
        return await self._transport.get(
            who, "/v1/callbacks", answers.Callbacks, msgspec.structs.asdict(where)
        )

    async def answer(
        self, who: Identity, run: str, step: str | None, result: requests.CallbackResult, note: str = ""
    ) -> answers.CalledBack:
        """End a callback. This may be sent again: the same answer changes nothing."""
        body = requests.AnswerCallback(**msgspec.structs.asdict(result), step=step, note=note)
        path = f"/v1/runs/{path_of(run)}/callback"
        of = "" if step is None else f" of {step!r}"
        missing = UnknownCallback(f"run {run!r} has no callback{of}: `holdfast show {run}` lists its steps")
        try:
            return await self._transport.post(who, path, answers.CalledBack, body, lambda: missing)
        except UnknownCallback:
            await part_of(self._transport, who, run, "", answers.WholeRun)  # or there is no such run
            raise

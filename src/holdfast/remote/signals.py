"""The signal desk of a server, over HTTP."""

from __future__ import annotations

from msgspec import Raw

from holdfast.access import Identity
from holdfast.errors import Conflict, HoldfastError, InvalidInput, UnknownRun, UpdateTimeout, WrongState
from holdfast.model import SignalRow
from holdfast.remote import rows
from holdfast.remote.runs import part_of, run_path
from holdfast.remote.transport import Transport
from holdfast.wire import answers, requests


class RemoteSignalDesk:
    """A signal desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def send(self, who: Identity, run: str, name: str, payload: bytes, key: str | None) -> bool:
        body = requests.Signal(name=name, data=Raw(payload), key=key or self._transport.environment.new_id())
        found = await self._transport.post(
            who, f"{run_path(run)}/signals", answers.Sent, body, lambda: UnknownRun.of(run)
        )
        return found.new

    async def update(
        self, who: Identity, run: str, name: str, payload: bytes, key: str | None, wait_s: float | None
    ) -> bytes:
        """Call an update. The server waits for the answer for a while, and is then asked again."""
        monotonic = self._transport.environment.monotonic
        key, until = (
            key or self._transport.environment.new_id(),
            None if wait_s is None else monotonic() + wait_s,
        )
        while True:
            left_s = requests.WAIT_MAX_S if until is None else until - monotonic()
            wait = max(0.0, min(left_s, requests.WAIT_MAX_S))
            body = requests.Update(name=name, key=key, data=Raw(payload), wait_s=wait)
            found = await self._transport.post(
                who, f"{run_path(run)}/updates", answers.Reply, body, lambda: UnknownRun.of(run), wait_s=wait
            )
            if found.answered:
                return bytes(found.reply)
            if until is not None and monotonic() >= until:
                raise UpdateTimeout(
                    f"the update {name!r} of run {run!r} is recorded under the key {key!r} and has no answer yet: "
                    f"`holdfast why {run}` says what it waits for; call again with this key"
                )

    async def send_update(
        self, who: Identity, run: str, name: str, payload: bytes, key: str | None
    ) -> SignalRow:
        """Record a call of an update, and return its row."""
        key = key or self._transport.environment.new_id()
        try:
            await self.update(who, run, name, payload, key, 0.0)
        except UpdateTimeout:
            pass
        except (Conflict, WrongState, InvalidInput):
            raise
        except HoldfastError:
            pass  # it is answered, by an error, which the row has
        for row in await self.list(who, run):
            if row.update == name and row.key == key:
                return row
        raise UnknownRun.of(run)

    async def list(self, who: Identity, run: str) -> list[SignalRow]:
        found = await part_of(self._transport, who, run, "/signals", answers.Signals)
        return [rows.signal(run, one) for one in found.items]

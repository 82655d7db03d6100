"""The desk of a server: the same protocol as `LocalDesk`, over HTTP. Each method is one route of the server's table.

The identity only says which namespace is meant. Who asks, and what they may do, the server finds out from the token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.access import Identity
from holdfast.remote import rows
from holdfast.remote.runs import RemoteRunDesk
from holdfast.remote.signals import RemoteSignalDesk
from holdfast.remote.starts import RemoteStartDesk
from holdfast.remote.transport import Transport
from holdfast.remote.workflows import RemoteWorkflowDesk
from holdfast.wire import answers

if TYPE_CHECKING:
    from holdfast.remote.acts import RemoteActDesk
    from holdfast.remote.agents import RemoteAgentDesk
    from holdfast.remote.alerts import RemoteAlertDesk
    from holdfast.remote.asks import RemoteAskDesk
    from holdfast.remote.callbacks import RemoteCallbackDesk
    from holdfast.remote.events import RemoteEventDesk
    from holdfast.remote.gates import RemoteGateDesk
    from holdfast.remote.hooks import RemoteHookDesk
    from holdfast.remote.journal import RemoteJournalDesk
    from holdfast.remote.limits import RemoteLimitDesk
    from holdfast.remote.overview import RemoteOverview
    from holdfast.remote.quarantine import RemoteQuarantineDesk
    from holdfast.remote.schedules import RemoteScheduleDesk
    from holdfast.remote.tokens import RemoteTokenDesk
    from holdfast.remote.triggers import RemoteTriggerDesk
    from holdfast.remote.views import RemoteViewDesk


class RemoteDesk:
    """A desk that asks a server. Parts that few programs need are loaded when somebody asks for them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.starts = RemoteStartDesk(transport)
        self.runs = RemoteRunDesk(transport)
        self.signals = RemoteSignalDesk(transport)
        self.workflows = RemoteWorkflowDesk(transport, self.runs)

    async def now(self, who: Identity) -> float:
        found = await self._transport.get(who, "/v1/me", answers.Me)
        return self._transport.environment.now() if found.now is None else rows.at(found.now)

    @property
    def acts(self) -> RemoteActDesk:
        from holdfast.remote.acts import RemoteActDesk  # noqa: PLC0415  few programs need it

        return RemoteActDesk(self._transport)

    @property
    def agents(self) -> RemoteAgentDesk:
        from holdfast.remote.agents import RemoteAgentDesk  # noqa: PLC0415  few programs need it

        return RemoteAgentDesk(self._transport)

    @property
    def alerts(self) -> RemoteAlertDesk:
        from holdfast.remote.alerts import RemoteAlertDesk  # noqa: PLC0415  few programs need it

        return RemoteAlertDesk(self._transport)

    @property
    def asks(self) -> RemoteAskDesk:
        from holdfast.remote.asks import RemoteAskDesk  # noqa: PLC0415  few programs need it

        return RemoteAskDesk(self._transport)

    @property
    def callbacks(self) -> RemoteCallbackDesk:
        from holdfast.remote.callbacks import RemoteCallbackDesk  # noqa: PLC0415  few programs need it

        return RemoteCallbackDesk(self._transport)

    @property
    def events(self) -> RemoteEventDesk:
        from holdfast.remote.events import RemoteEventDesk  # noqa: PLC0415  few programs need it

        return RemoteEventDesk(self._transport)

    @property
    def gates(self) -> RemoteGateDesk:
        from holdfast.remote.gates import RemoteGateDesk  # noqa: PLC0415  few programs need it

        return RemoteGateDesk(self._transport)

    @property
    def hooks(self) -> RemoteHookDesk:
        from holdfast.remote.hooks import RemoteHookDesk  # noqa: PLC0415  few programs need it

        return RemoteHookDesk(self._transport)

    @property
    def journal(self) -> RemoteJournalDesk:
        from holdfast.remote.journal import RemoteJournalDesk  # noqa: PLC0415  few programs need it

        return RemoteJournalDesk(self._transport)

    @property
    def limits(self) -> RemoteLimitDesk:
        from holdfast.remote.limits import RemoteLimitDesk  # noqa: PLC0415  few programs need it

        return RemoteLimitDesk(self._transport)

    @property
    def overview(self) -> RemoteOverview:
        from holdfast.remote.overview import RemoteOverview  # noqa: PLC0415  few programs need it

        return RemoteOverview(self._transport)

    @property
    def quarantine(self) -> RemoteQuarantineDesk:
        from holdfast.remote.quarantine import RemoteQuarantineDesk  # noqa: PLC0415  few programs need it

        return RemoteQuarantineDesk(self._transport)

    @property
    def schedules(self) -> RemoteScheduleDesk:
        from holdfast.remote.schedules import RemoteScheduleDesk  # noqa: PLC0415  few programs need it

        return RemoteScheduleDesk(self._transport)

    @property
    def tokens(self) -> RemoteTokenDesk:
        from holdfast.remote.tokens import RemoteTokenDesk  # noqa: PLC0415  few programs need it

        return RemoteTokenDesk(self._transport)

    @property
    def triggers(self) -> RemoteTriggerDesk:
        from holdfast.remote.triggers import RemoteTriggerDesk  # noqa: PLC0415  few programs need it

        return RemoteTriggerDesk(self._transport)

    @property
    def views(self) -> RemoteViewDesk:
        from holdfast.remote.views import RemoteViewDesk  # noqa: PLC0415  few programs need it

        return RemoteViewDesk(self._transport)

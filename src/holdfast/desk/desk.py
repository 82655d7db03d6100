"""What callers and operators may ask: one protocol with one method for each act, which takes the identity of who asks.

Python (`run.cancel()`), the command line and the server all ask a desk, so an act means the same everywhere. A desk has a
part for each noun, in a module of its own: `desk.runs.cancel(who, run)`, `desk.tokens.create(who, …)`. `LocalDesk` does it
on the store. Every method first asks whether the role of the identity may do this, and then whether the run is in the
identity's namespace. What is in another namespace is unknown, like something that does not exist.

What the desk returns has the names that the identity sees (see namespaces.py).
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from holdfast.access import Identity
from holdfast.desk.known_runs import KnownRuns
from holdfast.desk.opened import Opened
from holdfast.desk.runs import LocalRunDesk, RunDesk
from holdfast.desk.signals import LocalSignalDesk, SignalDesk
from holdfast.desk.starts import LocalStartDesk, StartDesk
from holdfast.desk.workflows import LocalWorkflowDesk, WorkflowDesk

if TYPE_CHECKING:
    from holdfast.desk.acts import ActDesk, LocalActDesk
    from holdfast.desk.agents import AgentDesk, LocalAgentDesk
    from holdfast.desk.alerts import AlertDesk, LocalAlertDesk
    from holdfast.desk.asks import AskDesk, LocalAskDesk
    from holdfast.desk.callbacks import CallbackDesk, LocalCallbackDesk
    from holdfast.desk.events import EventDesk, LocalEventDesk
    from holdfast.desk.gates import GateDesk, LocalGateDesk
    from holdfast.desk.hooks import HookDesk, LocalHookDesk
    from holdfast.desk.journal import JournalDesk, LocalJournalDesk
    from holdfast.desk.limits import LimitDesk, LocalLimitDesk
    from holdfast.desk.overview import LocalOverview, Overview
    from holdfast.desk.quarantine import LocalQuarantineDesk, QuarantineDesk
    from holdfast.desk.schedules import LocalScheduleDesk, ScheduleDesk
    from holdfast.desk.tokens import LocalTokenDesk, TokenDesk
    from holdfast.desk.triggers import LocalTriggerDesk, TriggerDesk
    from holdfast.desk.views import LocalViewDesk, ViewDesk


class Desk(Protocol):
    """What callers and operators may ask, by noun."""

    async def now(self, who: Identity) -> float: ...

    # callers
    @property
    def starts(self) -> StartDesk: ...
    @property
    def runs(self) -> RunDesk: ...
    @property
    def signals(self) -> SignalDesk: ...
    @property
    def events(self) -> EventDesk: ...
    @property
    def workflows(self) -> WorkflowDesk: ...
    @property
    def asks(self) -> AskDesk: ...

    # operators
    @property
    def acts(self) -> ActDesk: ...
    @property
    def callbacks(self) -> CallbackDesk: ...
    @property
    def agents(self) -> AgentDesk: ...
    @property
    def alerts(self) -> AlertDesk: ...
    @property
    def gates(self) -> GateDesk: ...
    @property
    def hooks(self) -> HookDesk: ...
    @property
    def journal(self) -> JournalDesk: ...
    @property
    def limits(self) -> LimitDesk: ...
    @property
    def overview(self) -> Overview: ...
    @property
    def quarantine(self) -> QuarantineDesk: ...
    @property
    def schedules(self) -> ScheduleDesk: ...
    @property
    def tokens(self) -> TokenDesk: ...
    @property
    def triggers(self) -> TriggerDesk: ...
    @property
    def views(self) -> ViewDesk: ...


class LocalDesk:
    """A desk that works on the store. Parts that few programs need are loaded when somebody asks for them."""

    def __init__(self, hf: Opened) -> None:
        self._hf = hf
        self.leaving = asyncio.Event()
        """Set when the process is about to leave. Everybody who waits here gets an answer then."""
        self._known = KnownRuns(hf)
        self.workflows = LocalWorkflowDesk(hf)
        self.starts = LocalStartDesk(hf, self.workflows)
        self.runs = LocalRunDesk(hf, self._known, lambda: self.quarantine, self.leaving)
        self.signals = LocalSignalDesk(hf, self._known, self.leaving)

    async def now(self, who: Identity) -> float:
        """Return the store's time."""
        return await self._hf.store.now()

    @cached_property
    def acts(self) -> LocalActDesk:
        from holdfast.desk.acts import LocalActDesk  # noqa: PLC0415  few programs need it

        return LocalActDesk(self._hf)

    @cached_property
    def agents(self) -> LocalAgentDesk:
        from holdfast.desk.agents import LocalAgentDesk  # noqa: PLC0415  few programs need it

        return LocalAgentDesk(self._hf)

    @cached_property
    def alerts(self) -> LocalAlertDesk:
        from holdfast.desk.alerts import LocalAlertDesk  # noqa: PLC0415  few programs need it

        return LocalAlertDesk(self._hf)

    @cached_property
    def asks(self) -> LocalAskDesk:
        from holdfast.desk.asks import LocalAskDesk  # noqa: PLC0415  few programs need it

        return LocalAskDesk(self._hf)

    @cached_property
    def callbacks(self) -> LocalCallbackDesk:
        from holdfast.desk.callbacks import LocalCallbackDesk  # noqa: PLC0415  few programs need it

        return LocalCallbackDesk(self._hf, self._known)

    @cached_property
    def events(self) -> LocalEventDesk:
        from holdfast.desk.events import LocalEventDesk  # noqa: PLC0415  few programs need it

        return LocalEventDesk(self._hf, self.starts)

    @cached_property
    def gates(self) -> LocalGateDesk:
        from holdfast.desk.gates import LocalGateDesk  # noqa: PLC0415  few programs need it

        return LocalGateDesk(self._hf)

    @cached_property
    def hooks(self) -> LocalHookDesk:
        from holdfast.desk.hooks import LocalHookDesk  # noqa: PLC0415  few programs need it

        return LocalHookDesk(self._hf, self.events)

    @cached_property
    def journal(self) -> LocalJournalDesk:
        from holdfast.desk.journal import LocalJournalDesk  # noqa: PLC0415  few programs need it

        return LocalJournalDesk(self._hf)

    @cached_property
    def limits(self) -> LocalLimitDesk:
        from holdfast.desk.limits import LocalLimitDesk  # noqa: PLC0415  few programs need it

        return LocalLimitDesk(self._hf)

    @cached_property
    def overview(self) -> LocalOverview:
        from holdfast.desk.overview import LocalOverview  # noqa: PLC0415  few programs need it

        return LocalOverview(self._hf, self._known, self.runs)

    @cached_property
    def quarantine(self) -> LocalQuarantineDesk:
        from holdfast.desk.quarantine import LocalQuarantineDesk  # noqa: PLC0415  few programs need it

        return LocalQuarantineDesk(self._hf, self._known)

    @cached_property
    def schedules(self) -> LocalScheduleDesk:
        from holdfast.desk.schedules import LocalScheduleDesk  # noqa: PLC0415  few programs need it

        return LocalScheduleDesk(self._hf, self.starts)

    @cached_property
    def tokens(self) -> LocalTokenDesk:
        from holdfast.desk.tokens import LocalTokenDesk  # noqa: PLC0415  few programs need it

        return LocalTokenDesk(self._hf)

    @cached_property
    def triggers(self) -> LocalTriggerDesk:
        from holdfast.desk.triggers import LocalTriggerDesk  # noqa: PLC0415  few programs need it

        return LocalTriggerDesk(self._hf)

    @cached_property
    def views(self) -> LocalViewDesk:
        from holdfast.desk.views import LocalViewDesk  # noqa: PLC0415  few programs need it

        return LocalViewDesk(self._hf)

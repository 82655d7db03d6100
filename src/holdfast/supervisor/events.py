"""What the leader does about events: it puts in force what the newest code declares, and looks again for what came before
somebody waited."""

from __future__ import annotations

from holdfast.config import Config
from holdfast.store.events import EventWait, triggers_in
from holdfast.store.roles import SupervisorStore
from holdfast.supervisor.schedules import in_force

BEGINNING = ("", "", 0)


class EventKeeper:
    def __init__(self, store: SupervisorStore, config: Config) -> None:
        self._store, self._config = store, config
        self._after = BEGINNING

    async def reconcile(self, epoch: int) -> None:
        """Make the triggers of each application those that its newest code declares."""
        store = self._store.events
        for declared in in_force(await store.declared_triggers()):
            if sorted(await store.triggers_of(declared.origin), key=str) != sorted(
                triggers_in(declared), key=str
            ):
                await store.reconcile_triggers(epoch, declared)

    async def look_again(self) -> int:
        """Send some of the runs that wait what they have not got: a scheduler that dies between a wait and its look at what
        came before leaves that to us. Return how many events were sent."""
        store = self._store.events
        found = await store.open_waits(self._after, self._config.claim_max)
        last = found[-1] if len(found) == self._config.claim_max else BEGINNING
        self._after = (last[0], last[1], last[2])
        if not found:
            return 0
        return await store.catch_up([EventWait(run_id, name) for name, run_id, _ in found])

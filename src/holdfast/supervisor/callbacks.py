"""What the leader does about callbacks: it ends those that nobody has answered in time."""

from __future__ import annotations

from holdfast.store.roles import SupervisorStore

BATCH_MAX = 200
"""How many callbacks one pass of the leader ends."""


class CallbackKeeper:
    def __init__(self, store: SupervisorStore) -> None:
        self._store = store
        self.next_at: float | None = None
        """When the time of a callback is over next, by the store's clock. None if there is none."""

    async def expire(self, epoch: int) -> int:
        """End the callbacks whose time is over. Return how many."""
        callbacks = self._store.callbacks
        ended = await callbacks.expire_callbacks(epoch, BATCH_MAX)
        self.next_at = await callbacks.next_callback()
        return ended

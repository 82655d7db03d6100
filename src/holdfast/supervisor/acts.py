"""Carries out acts on many runs, batch after batch. Whoever has the act's lease carries it out: the process that
began it, or the leader if that process is gone.

The store decides about each run, in the transaction that acts on it. This module only asks for the next batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from holdfast.config import Config
from holdfast.errors import (
    SchemaMismatch,
    StoreError,
    StoreFull,
    StoreGone,
    StoreUnreachable,
    StoreUnsupported,
)
from holdfast.model import ActRow, ActState
from holdfast.store.acts import CarriedActs
from holdfast.store.bell import Bell

log = logging.getLogger("holdfast.acts")

TROUBLE = (StoreUnreachable, StoreFull, StoreGone, StoreUnsupported, SchemaMismatch)
"""Errors that have nothing to do with the run that an act is at."""
BELLS = (Bell.RUNS, Bell.STEPS, Bell.OUTCOMES, Bell.ENDED)
"""Who may have something to do after a batch."""


class Carrier:
    """Carries out one act that this process has."""

    def __init__(
        self, store: CarriedActs, act_id: str, fence: int, config: Config, ring: Callable[[Bell], None]
    ) -> None:
        self._store, self._config, self._ring = store, config, ring
        self._act_id, self._fence = act_id, fence

    async def batch(self) -> ActRow | None:
        """Carry out the next batch. Return the act as it is then, or None if this process no longer has it."""
        act = await self._batch()
        for bell in BELLS:
            self._ring(bell)
        return act

    async def _batch(self) -> ActRow | None:
        try:
            return await self._carry_out(self._config.act_batch_max)
        except TROUBLE:
            raise
        except Exception:
            log.exception("act %s: a batch failed, so its runs are tried one at a time", self._act_id)
        try:
            return await self._carry_out(1)
        except TROUBLE:
            raise
        except Exception as error:  # noqa: BLE001  one bad run must not keep the act from ending
            why = f"{type(error).__name__}: {error}"
            lease_s = self._config.act_lease_s
            return await self._store.refuse_next(self._act_id, self._fence, why, lease_s=lease_s)

    async def _carry_out(self, limit: int) -> ActRow | None:
        config = self._config
        return await self._store.carry_out(
            self._act_id, self._fence, lease_s=config.act_lease_s, limit=limit, share_s=config.act_share_s
        )


class ActKeeper:
    """What the leader does about acts: it takes over those that nobody carries out any more. It carries out one at a
    time, beside its other duties, so that recovery never waits for an act."""

    def __init__(self, store: CarriedActs, node: str, config: Config, ring: Callable[[Bell], None]) -> None:
        self._store, self._node, self._config, self._ring = store, node, config, ring
        self._carrying: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Take over an act that nobody carries out, unless this node carries out one already."""
        if self._carrying is not None and not self._carrying.done():
            return
        for act_id in await self._store.idle_acts(1):
            fence = await self._store.take_act(act_id, self._node, self._config.act_lease_s)
            if fence is not None:
                log.warning("act %s: nobody carried it out any more, so this node goes on with it", act_id)
                carrier = Carrier(self._store, act_id, fence, self._config, self._ring)
                self._carrying = asyncio.create_task(self._carry_out(carrier), name="holdfast-act")

    async def _carry_out(self, carrier: Carrier) -> None:
        try:
            act = await carrier.batch()
            while act is not None and act.state is ActState.RUNNING:
                act = await carrier.batch()
        except StoreError as error:
            log.warning(
                "an act is left for later: %s", error
            )  # its lease runs out, and somebody takes it over
        except Exception:
            log.exception("an act is left for later")

    async def close(self) -> None:
        """Stop. Whoever leads next goes on when the act's lease has run out."""
        if self._carrying is not None:
            self._carrying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._carrying

"""The quarantine, for operators: which steps wait there for a person, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from holdfast import codec
from holdfast.access import Act, Identity
from holdfast.desk.known_runs import KnownRuns
from holdfast.desk.opened import Opened, ring
from holdfast.errors import HoldfastError
from holdfast.model import Poison
from holdfast.namespaces import shown_row
from holdfast.store.bell import Bell
from holdfast.store.store import Store

Resolve = Literal["release", "skip", "fail"]


class QuarantineDesk(Protocol):
    """What operators may ask about steps in quarantine."""

    async def fingerprints(self, who: Identity, run: str) -> set[str]: ...
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
    ) -> int: ...
    async def list(self, who: Identity) -> list[Poison]: ...


class LocalQuarantineDesk:
    """A quarantine desk that works on the store."""

    def __init__(self, hf: Opened, known: KnownRuns) -> None:
        self._hf, self._known = hf, known

    @property
    def _store(self) -> Store:
        return self._hf.store

    async def fingerprints(self, who: Identity, run: str) -> set[str]:
        """Return the fingerprints of the run's steps that are in quarantine."""
        who.demand(Act.READ)
        return {
            one.fingerprint
            for one in await self._store.quarantine.quarantined(await self._known.named(who, run))
        }

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
        """Decide about all steps in quarantine with this fingerprint, or of this run: `release` them with fresh
        budgets, `skip` them, as if each had returned `result`, or `fail` them. Return how many there were.

        This is done in batches, each in a transaction of its own. After each batch, `progress` is called with the
        number of steps that are done. Steps that come into quarantine meanwhile are left alone.
        """
        if fingerprint is None and run_id is None:
            raise HoldfastError(
                "say which steps: a fingerprint, as `holdfast quarantine` lists them, or a run"
            )
        who.demand(Act.STEER)
        codec.stored_text(note, "note")
        if run_id is not None:
            run_id = await self._known.id(who, run_id)
        before, done = await self._store.now(), 0
        raw = codec.encode_open(result, "result", self._hf.config.payload_max_bytes)
        while True:
            count = await self._store.quarantine.resolve_quarantine(
                act,
                fingerprint=fingerprint,
                run_id=run_id,
                before=before,
                result=raw,
                actor=who.actor,
                note=note,
                limit=self._hf.config.claim_max,
                namespace=who.namespace,
            )
            done += count
            if progress is not None and count:
                progress(done)
            ring(self._hf, Bell.STEPS, Bell.OUTCOMES, Bell.RUNS)
            if count < self._hf.config.claim_max:
                return done

    async def list(self, who: Identity) -> list[Poison]:
        """Return what waits in quarantine, by fingerprint, the oldest first."""
        who.demand(Act.READ)
        found = await self._store.quarantine.quarantine(self._hf.config.claim_max, who.namespace)
        return [shown_row(who.namespace, one) for one in found]

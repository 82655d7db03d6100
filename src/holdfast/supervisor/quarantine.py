"""Poison steps: runs that only wait for one are stuck, and the alert about a fingerprint is open as long as there are any.

Whoever puts a step into quarantine (an agent whose step's process died, the leader that buried its agent) changes that step
alone. The rest of its run goes on; when nothing else is left to go on, this makes the run stuck.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.config import Config
from holdfast.model import Alert, AlertKind, Poison
from holdfast.store.roles import SupervisorStore
from holdfast.supervisor.alerts import opened, quarantine_key


async def stick_quarantined(store: SupervisorStore, epoch: int, config: Config) -> int:
    """Make runs stuck that cannot go on without a person. Bounded: what is left waits for the next pass."""
    return await store.quarantine.stick_quarantined(epoch, config.claim_max)


async def clear_released(store: SupervisorStore, epoch: int, config: Config) -> int:
    """Close the alerts about what is in quarantine no more."""
    known = await opened(store, config, AlertKind.STEP_QUARANTINED)
    if not known:
        return 0
    poison = await store.quarantine.quarantine(config.claim_max)
    over = released(known, poison) if len(poison) < config.claim_max else []
    return await store.alerts.clear_alerts(epoch, over) if over else 0


def released(known: Sequence[Alert], poison: Iterable[Poison]) -> list[int]:
    """Ids of open alerts about fingerprints of which there are none any more."""
    there = {quarantine_key(one.fingerprint) for one in poison}
    return [alert.id for alert in known if alert.key not in there]

"""Steps in quarantine: the leader makes runs stuck that wait for nothing else, and clears the alert about a fingerprint
when no step with it is left in quarantine.

A step gets into quarantine by an agent whose step's process died, or by the leader that reclaimed it from an agent that
is gone. Either changes that step alone, and the rest of its run goes on. When nothing else of the run can go on,
`stick_quarantined` makes the run stuck.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from holdfast.config import Config
from holdfast.model import Alert, AlertKind, Poison
from holdfast.store.roles import SupervisorStore
from holdfast.supervisor.alerts import opened, quarantine_key


async def stick_quarantined(store: SupervisorStore, epoch: int, config: Config) -> int:
    """Make runs stuck that cannot go on without a person, at most `claim_max` in one pass. Return how many."""
    return await store.quarantine.stick_quarantined(epoch, config.claim_max)


async def clear_released(store: SupervisorStore, epoch: int, config: Config, kinds: Collection[str]) -> int:
    """Clear the alerts about fingerprints that are no longer in quarantine. `kinds` are those of open alerts. Return how
    many."""
    if AlertKind.STEP_QUARANTINED not in kinds:
        return 0
    known = await opened(store, config, AlertKind.STEP_QUARANTINED)
    poison = await store.quarantine.quarantine(config.claim_max)
    over = released(known, poison) if len(poison) < config.claim_max else []
    return await store.alerts.clear_alerts(epoch, over) if over else 0


def released(known: Sequence[Alert], poison: Iterable[Poison]) -> list[int]:
    """Return the ids of open alerts about fingerprints that are no longer in quarantine."""
    keys = {quarantine_key(one.fingerprint) for one in poison}
    return [alert.id for alert in known if alert.key not in keys]

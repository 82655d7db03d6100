"""Breakers: the leader opens, probes and closes them, and raises alerts about them.

`holdfast.breaker` decides, as pure functions. Every change names the round it was decided in. If an operator has
changed the breaker since, the round is another one, and the operator's change stands.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.breaker import GiveBack, decide
from holdfast.config import Config
from holdfast.model import AlertKind, Breaker, BreakerState, Level, NewAlert
from holdfast.store.roles import SupervisorStore
from holdfast.supervisor.alerts import reconcile, trimmed


async def update_breakers(store: SupervisorStore, epoch: int, config: Config) -> int:
    """Decide about each breaker that may need a change, and make it. Return how many changed: if any did, agents should
    look, and people may want to know."""
    looks = await store.gates.breaker_looks(config.breaker_window_s)
    if not looks:
        return 0
    now, changed = await store.now(), 0
    for look in looks:
        row = look.breaker
        change = decide(look, now, config)
        if isinstance(change, GiveBack):
            changed += await store.gates.give_back_probes(epoch, row.name, row.round, change.probes)
        elif change is not None:
            changed += await store.gates.change_breaker(epoch, row.name, row.round, change)
    return changed


async def alert_on_breakers(store: SupervisorStore, epoch: int, config: Config) -> int:
    """Raise an alert for every breaker that opened by itself, and clear the alerts of breakers that have closed. Return
    how many are new."""
    gates = await store.gates.gates(config.breaker_window_s)
    return await reconcile(
        store,
        epoch,
        config,
        AlertKind.BREAKER_OPEN,
        judge_breakers(gates.breakers),
        (AlertKind.BREAKER_OPEN,),
    )


def judge_breakers(rows: Iterable[Breaker]) -> list[NewAlert]:
    """Return one alert for each breaker that is not closed, except those that an operator opened by hand."""
    return [
        NewAlert(
            AlertKind.BREAKER_OPEN,
            Level.ERROR,
            f"{AlertKind.BREAKER_OPEN}:{row.name}",
            trimmed(
                f"{row.name} is in trouble: {row.note or 'its breaker is not closed'}"
                f"{f' ({row.error})' if row.error else ''}; its steps wait, which costs them no attempt, until it is well again: "
                "`holdfast breakers` shows more"
            ),
            about=row.name,
        )
        for row in rows
        if row.state is not BreakerState.CLOSED and not row.forced
    ]

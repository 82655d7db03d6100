"""The outbox: sends alerts through channels, and tries each delivery until the channel takes it or the outbox gives it
up.

A Supervisor that has channels has the lease named alerts while it sends. It need not be the leader, which may be a
process without channels. Every write checks the epoch of that lease, so two Supervisors do not send the same. If a
process dies after it sent a delivery and before it recorded that, the delivery is sent once more, under the same id:
receivers drop the second.

Each channel works by itself: one that hangs or refuses delays only its own deliveries.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

import msgspec

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import StoreError
from holdfast.model import Alert, AlertKind, Level
from holdfast.questions import notified
from holdfast.store.alerts import ALERTS, OutboxAlerts
from holdfast.store.answers import AlertRoute, DueDelivery
from holdfast.supervisor.alerts import COUNTED, in_words
from holdfast.supervisor.asks import Letters
from holdfast.supervisor.channels import Channel, Notice, NotSent

log = logging.getLogger("holdfast.alerts")

AT_ONCE = 10
"""How many deliveries one channel gets at a time."""
GRACE_S = 30.0
"""A delivery whose end nobody recorded is tried again after the channel's time limit and this."""
RAISED, CLEARED = "raised", "cleared"


def route(
    routed: int,
    alert: Alert,
    channels: Sequence[Channel],
    now: float,
    stale_s: float,
    new_id: Callable[[], str],
) -> AlertRoute:
    """Return through which channels to send an alert: that it was raised (if `routed` is 0), or that it was cleared."""
    if routed == 0:
        passed = alert.cleared_at is not None and alert.kind not in COUNTED
        if passed or alert.last_at < now - stale_s:
            return AlertRoute(alert.id, RAISED, 2)
        event = RAISED
    else:
        # People want to know that a state is over, or how often an event happened. That a single event is over is no
        # news.
        if alert.kind in COUNTED and alert.times == 1:
            return AlertRoute(alert.id, CLEARED, 2)
        event = CLEARED
    deliveries = [(new_id(), channel.name) for channel in channels if _wants(channel, alert)]
    return AlertRoute(alert.id, event, 1 if event == RAISED else 2, deliveries)


def _wants(channel: Channel, alert: Alert) -> bool:
    """True if the alert goes through this channel. What people are asked goes to them."""
    if alert.kind == AlertKind.ASK:
        return channel.wants_ask(notified(alert.key))
    return channel.wants(alert.kind, alert.level)


class Outbox:
    def __init__(
        self,
        store: OutboxAlerts,
        node: str,
        channels: Sequence[Channel],
        environment: Environment,
        config: Config,
        letters: Letters | None = None,
    ) -> None:
        """`letters` writes what people get who are asked something."""
        self._letters = letters
        self._store, self._node, self._channels = store, node, channels
        self._environment, self._config = environment, config
        self.epoch: int | None = None
        self._leads_until = 0.0
        """By this node's monotonic clock, when the lease runs out that it asked for last."""
        self._had_lease = False
        """Whether this node had the lease when the store last answered."""
        self._expired_at = 0.0
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._away_since: float | None = None
        self._sent_trouble = False
        """Whether people were notified that the store is in trouble, and not yet that it is back."""

    async def tick(self) -> int:
        """Do one pass: take or renew the lease, route new alerts, and let each channel that is free send what is due.
        Return how many alerts were routed."""
        try:
            routed = await self._pass()
        except StoreError as error:
            await self._store_away(error)
            raise
        await self._store_back()
        return routed

    async def _pass(self) -> int:
        config = self._config
        asked_at = self._environment.monotonic()
        self.epoch = await self._store.lead(self._node, config.leader_lease_s, ALERTS)
        self._leads_until = asked_at + config.leader_lease_s
        self._had_lease = self.epoch is not None
        if self.epoch is None:
            return 0
        routed = await self._route(self.epoch)
        at = self._environment.monotonic()
        if at - self._expired_at > 60 * config.watch_s:
            self._expired_at = at
            await self._store.expire_deliveries(self.epoch, config.alert_stale_s)
        for channel in self._channels:
            sending = self._sending.get(channel.name)
            if sending is None or sending.done():
                task = asyncio.create_task(self._send_due(channel), name=f"holdfast-alerts-{channel.name}")
                self._sending[channel.name] = task
        return routed

    async def _route(self, epoch: int) -> int:
        new = await self._store.unrouted_alerts(self._config.claim_max)
        if not new:
            return 0
        now = await self._store.now()
        routes = [
            route(routed, alert, self._channels, now, self._config.alert_stale_s, self._environment.new_id)
            for routed, alert in new
        ]
        return await self._store.route_alerts(epoch, routes)

    async def _send_due(self, channel: Channel) -> None:
        if self.epoch is None:
            return
        epoch = self.epoch
        try:
            due = await self._store.claim_deliveries(
                epoch, channel.name, AT_ONCE, channel.timeout_s + GRACE_S
            )
            await asyncio.gather(*(self._send(epoch, channel, one) for one in due))
        except StoreError as error:
            log.warning("channel %s: %s", channel.name, error)

    async def _send(self, epoch: int, channel: Channel, one: DueDelivery) -> None:
        notice = notice_of(one.id, one.event, one.alert)
        if one.alert.kind == AlertKind.ASK and channel.people and self._letters is not None:
            words = await self._letters.of(one.alert, channel.public_url)
            if words is not None:
                notice = msgspec.structs.replace(notice, message=words)
        if epoch != self.epoch or self._environment.monotonic() >= self._leads_until:
            return  # this process stood still meanwhile, and another may have sent it
        error = await attempt(channel, notice)
        again_s: float | None = None
        if error is not None and one.attempt < self._config.alert_tries_max:
            again_s = back_off_s(one.attempt, self._config, self._environment.random.random())
        if error is not None:
            what_next = (
                "is sent again later" if again_s is not None else f"is given up after {one.attempt} tries"
            )
            log.warning("channel %s: %s: alert %s %s", channel.name, error, one.alert.id, what_next)
        await self._store.end_delivery(epoch, one.id, one.attempt, error, again_s)

    # --- when the store itself is the trouble -----------------------------------------------------------------------

    async def _store_away(self, error: StoreError) -> None:
        """Notify people once that the store is in trouble. An alert cannot be recorded then, so the node that had the
        lease sends this one directly."""
        at = self._environment.monotonic()
        if self._away_since is None:
            self._away_since = at
        away_s = at - self._away_since
        if self._had_lease and not self._sent_trouble and away_s > self._config.store_trouble_s:
            self._sent_trouble = True
            await self._send_directly(RAISED, f"the store has been in trouble for {away_s:.0f} s: {error}")

    async def _store_back(self) -> None:
        if self._away_since is not None:
            away_s, self._away_since = self._environment.monotonic() - self._away_since, None
            if self._sent_trouble:
                self._sent_trouble = False
                await self._send_directly(CLEARED, f"the store is back after {away_s:.0f} s")

    async def _send_directly(self, event: str, message: str) -> None:
        """Send an alert that is not recorded, once, through every channel that wants it."""
        log.error("%s: %s", AlertKind.STORE_TROUBLE, message)
        now = self._environment.now()
        kind, level = AlertKind.STORE_TROUBLE, Level.ERROR
        alert = Alert(0, now, kind, None, message, None, level, kind, 1, now, None)
        wanted = [channel for channel in self._channels if channel.wants(kind, level)]
        notices = [notice_of(self._environment.new_id(), event, alert) for _ in wanted]
        answers = await asyncio.gather(
            *(attempt(channel, notice) for channel, notice in zip(wanted, notices, strict=True))
        )
        for channel, error in zip(wanted, answers, strict=True):
            if error is not None:
                log.warning("channel %s: %s", channel.name, error)

    async def close(self) -> None:
        """Stop sending. The next node with the lease sends what was not recorded as sent."""
        for sending in self._sending.values():
            sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._sending.values(), return_exceptions=True)


def notice_of(delivery: str, event: str, alert: Alert) -> Notice:
    return Notice(
        delivery=delivery,
        event=event,
        kind=alert.kind,
        level=alert.level,
        message=in_words(alert),
        alert=alert.id,
        key=alert.key,
        run=alert.run_id,
        times=alert.times,
        at=alert.at,
        cleared_at=alert.cleared_at,
    )


def back_off_s(attempt: int, config: Config, chance: float) -> float:
    """Return how long to wait after try number `attempt` failed. It doubles with each try up to a limit, and `chance`
    spreads it by a quarter either way."""
    delay_s: float = min(config.alert_back_off_s * 2 ** (attempt - 1), config.alert_back_off_max_s)
    return delay_s * (0.75 + chance / 2)


async def attempt(channel: Channel, notice: Notice) -> str | None:
    """Send a notice once, within the channel's time limit. Return what went wrong; None if nothing did."""
    try:
        async with asyncio.timeout(channel.timeout_s):
            await channel.send(notice)
    except TimeoutError:
        return f"no answer within {channel.timeout_s:g} s"
    except NotSent as error:
        return channel.without_secrets(str(error))
    except Exception as error:  # noqa: BLE001  one bad channel must not stop the others
        return channel.without_secrets(f"{type(error).__name__}: {error}")
    return None

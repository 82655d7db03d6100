"""Alerts, their outbox, and what the leader removes."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.model import AlertKind, Level, NewAlert
from holdfast.store.answers import AlertRoute
from tests.differential.questions import ALL, Asking, nodes
from tests.differential.spec.alerts import OUTBOX
from tests.differential.subjects import HOUR, Subject

channels = st.sampled_from(("mail", "hook"))


class Alerts(Asking):
    async def _number(self, subject: Subject, number: int) -> int:
        """Return the store's id of an alert. All stores raised the alerts in the same order."""
        place = list(self.spec.alerts).index(number)
        return sorted(alert.id for alert in await subject.store.alerts.alerts(ALL))[place]

    @rule(
        data=st.data(),
        keys=st.lists(st.sampled_from(("x", "y", "z")), unique=True),
        times=st.integers(1, 3),
        kind=st.sampled_from((AlertKind.RUN_FAILED, AlertKind.BACKLOG)),
    )
    def raise_alerts(self, data: st.DataObject, keys: list[str], times: int, kind: AlertKind) -> None:
        epoch = data.draw(st.sampled_from(self.epochs))
        notes = sorted(set(self.spec.failures))
        looked_at = data.draw(st.lists(st.sampled_from(notes), unique=True)) if notes else []
        run_id = data.draw(st.sampled_from([None, *self._runs()]))
        new = [NewAlert(kind, Level.ERROR, key, "why", run_id, times) for key in keys]
        self._tick()
        wanted = self.spec.raise_alerts(epoch, new, looked_at)

        async def ask(subject: Subject) -> bool:
            found = await subject.store.alerts.failures(ALL)
            ids = [note.id for note in found if (note.run_id, note.n) in looked_at]
            return await subject.store.alerts.raise_alerts(epoch, new, ids)

        self._same(wanted, ask)

    @precondition(lambda self: self.spec.alerts)
    @rule(data=st.data(), leader=st.booleans())
    def clear(self, data: st.DataObject, leader: bool) -> None:
        number = data.draw(st.sampled_from(list(self.spec.alerts)))
        epoch = data.draw(st.sampled_from(self.epochs))
        self._tick()
        wanted: object = self.spec.clear_alerts(epoch, [number]) if leader else self.spec.clear_alert(number)

        async def ask(subject: Subject) -> object:
            found = await self._number(subject, number)
            if leader:
                return await subject.store.alerts.clear_alerts(epoch, [found])
            return await subject.store.alerts.clear_alert(found, "me")

        self._same(wanted, ask)

    @precondition(lambda self: self.spec.alerts)
    @rule(data=st.data(), limit=st.sampled_from((1, ALL)))
    def log_alerts(self, data: st.DataObject, limit: int) -> None:
        epoch = data.draw(st.sampled_from(self.epochs))
        self._tick()
        wanted = self.spec.log_alerts(epoch, limit)

        async def ask(subject: Subject) -> list[str]:
            return [alert.key for alert in await subject.store.alerts.log_alerts(epoch, limit)]

        self._same(wanted, ask)

    @rule(data=st.data(), node=nodes, channel=channels)
    def raise_and_send(self, data: st.DataObject, node: str, channel: str) -> None:
        """Raise an alert, route it and claim its delivery, as it usually happens."""
        self.raise_alerts(data, ["x"], 1, AlertKind.RUN_FAILED)
        self.lead_the_outbox(node, 4.5)
        if self.spec.alerts:
            self.route_alerts(data, "raised")
        self.claim_deliveries(data, channel, ALL)

    # --- the outbox -------------------------------------------------------------------------------------------------

    @rule(node=nodes, lease_h=st.sampled_from((1.5, 4.5)))
    def lead_the_outbox(self, node: str, lease_h: float) -> None:
        self._tick()
        wanted = self.spec.lead(node, lease_h, OUTBOX)
        if wanted is not None:
            self.outbox_epochs.append(wanted)
        self._same(wanted, lambda s: s.store.leader.lead(node, lease_h * HOUR, OUTBOX))

    @precondition(lambda self: self.spec.alerts)
    @rule(data=st.data(), event=st.sampled_from(("raised", "cleared")))
    def route_alerts(self, data: st.DataObject, event: str) -> None:
        epoch = data.draw(st.sampled_from(self.outbox_epochs))
        number = data.draw(st.sampled_from(list(self.spec.alerts)))
        self.made += 1
        to = data.draw(st.lists(channels, unique=True))
        letters = [(f"d{self.made}-{channel}", channel) for channel in to]
        routed = 1 if event == "raised" else 2
        self._tick()
        wanted = self.spec.route_alert(epoch, number, event, routed, letters)

        async def ask(subject: Subject) -> int:
            found = await self._number(subject, number)
            return await subject.store.alerts.route_alerts(epoch, [AlertRoute(found, event, routed, letters)])

        self._same(wanted, ask)

    @precondition(lambda self: self.spec.deliveries)
    @rule(data=st.data(), channel=channels, limit=st.sampled_from((1, ALL)))
    def claim_deliveries(self, data: st.DataObject, channel: str, limit: int) -> None:
        epoch = data.draw(st.sampled_from(self.outbox_epochs))
        self._tick()
        wanted = sorted(self.spec.claim_deliveries(epoch, channel, limit, 1.5))

        async def ask(subject: Subject) -> list[tuple[str, int]]:
            found = await subject.store.alerts.claim_deliveries(epoch, channel, limit, 1.5 * HOUR)
            return sorted((one.id, one.attempt) for one in found)

        self._same(wanted, ask)

    @precondition(lambda self: self.spec.deliveries)
    @rule(
        data=st.data(),
        late=st.sampled_from((0, 0, 0, 1)),
        how=st.sampled_from(((None, None), ("boom", 1.5), ("boom", None))),
    )
    def end_delivery(self, data: st.DataObject, late: int, how: tuple[str | None, float | None]) -> None:
        epoch = data.draw(st.sampled_from(self.outbox_epochs))
        name = data.draw(st.sampled_from(list(self.spec.deliveries)))
        attempt, (error, again_h) = self.spec.deliveries[name].attempts - late, how
        again_s = None if again_h is None else again_h * HOUR
        self._tick()
        wanted = self.spec.end_delivery(epoch, name, attempt, error, again_h)
        self._same(wanted, lambda s: s.store.alerts.end_delivery(epoch, name, attempt, error, again_s))

    @precondition(lambda self: self.spec.deliveries)
    @rule(data=st.data())
    def expire_deliveries(self, data: st.DataObject) -> None:
        epoch = data.draw(st.sampled_from(self.outbox_epochs))
        self._tick()
        wanted = self.spec.expire_deliveries(epoch, 0.5)
        self._same(wanted, lambda s: s.store.alerts.expire_deliveries(epoch, 0.5 * HOUR))

    # --- retention --------------------------------------------------------------------------------------------------

    @rule(data=st.data(), what=st.sampled_from(("alerts", "nodes", "journal", "signals")))
    def forget(self, data: st.DataObject, what: str) -> None:
        epoch, before = data.draw(st.sampled_from(self.epochs)), self.spec.now - 0.5
        self._tick()
        if what == "alerts":
            wanted = self.spec.prune_alerts(epoch, before)
            self._same(wanted, lambda s: s.store.retention.prune_alerts(epoch, s.at(self.spec, before), ALL))
        elif what == "nodes":
            wanted = self.spec.forget_nodes(epoch, before)
            self._same(wanted, lambda s: s.store.retention.forget_nodes(epoch, s.at(self.spec, before), ALL))
        elif what == "journal":
            wanted = self.spec.forget_journal(epoch, before)
            self._same(
                wanted, lambda s: s.store.retention.forget_journal(epoch, s.at(self.spec, before), ALL)
            )
        else:  # signals of ended runs may be marked by then, so the numbers differ, and only the rows are compared
            for subject in self.subjects:
                self._do(subject.store.leader.close_signals(epoch, ALL))

"""Verbs that only read: from the same rows both stores read the same."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.lifecycle import RUN_ENDED
from holdfast.model import AlertKind, RunState
from holdfast.store.reads import RunFilter
from tests.differential.questions import ALL, LANES, STEPS, Asking, nodes
from tests.differential.subjects import HOUR, Subject, half_hours

WINDOW_H = 1.5


class Reads(Asking):
    @precondition(lambda self: self.spec.runs)
    @rule(data=st.data(), limit=st.sampled_from((1, 2, ALL)))
    def read_a_run(self, data: st.DataObject, limit: int) -> None:
        run_id = data.draw(st.sampled_from(self._runs()))
        self._alike("run", lambda s: s.store.reads.run(run_id))
        self._alike("steps", lambda s: s.store.reads.steps(run_id, after=limit - 1, limit=limit))
        self._alike("attempts", lambda s: s.store.reads.attempts(run_id))
        self._alike("logs", lambda s: s.store.reads.logs(run_id, None, limit))
        self._alike("logs_of", lambda s: s.store.reads.logs_of(run_id, [0, 1, 2]))
        self._alike("log_counts", lambda s: s.store.reads.log_counts(run_id))
        self._alike("children", lambda s: s.store.reads.children(run_id))
        self._alike("child_steps", lambda s: s.store.schedulers.child_steps(run_id))
        self._alike("inherited", lambda s: s.store.reads.inherited(run_id))
        self._alike("joins", lambda s: s.store.reads.joins(run_id))
        self._alike("twins", lambda s: s.store.twins.twins(run_id))
        self._alike("quarantined", lambda s: s.store.quarantine.quarantined(run_id))
        self._alike("journal", lambda s: s.store.reads.journal(run_id, limit))

    @precondition(lambda self: self.spec.runs)
    @rule(data=st.data(), limit=st.sampled_from((1, 2, ALL)))
    def list_runs(self, data: st.DataObject, limit: int) -> None:
        some = data.draw(st.lists(st.sampled_from([*self._runs(), "unknown"]), unique=True, max_size=3))
        states = tuple(data.draw(st.lists(st.sampled_from(sorted(RunState)), unique=True, max_size=3)))
        workflow = data.draw(st.sampled_from((None, "shop.order", "order", "hop.order", "%")))
        where = RunFilter(states=states, workflow=workflow, limit=limit)
        self._alike("runs", lambda s: s.store.reads.runs(where))
        where.namespace = data.draw(st.sampled_from((None, "default", "other")))
        where.error = data.draw(st.sampled_from((None, "E", "shop.E", "x")))
        where.prefix = data.draw(st.sampled_from((None, "r", "run", "zz", *self._runs())))
        where.is_oldest_first = data.draw(st.booleans())
        self._alike("runs", lambda s: s.store.reads.runs(where))
        self._alike("ended_runs", lambda s: s.store.reads.ended_runs(some), ordered=False)
        self._alike("unknown_runs", lambda s: s.store.reads.unknown_runs(some), ordered=False)
        self._alike("landmarks", lambda s: s.store.durations.landmarks(some), ordered=False)
        self._alike("runs_by_state", lambda s: s.store.reads.runs_by_state(where.namespace))
        self._alike("namespaces", lambda s: s.store.reads.namespaces())
        before, state = self.spec.now - 0.5, data.draw(st.sampled_from(sorted(RUN_ENDED)))
        self._alike(
            "count_old_runs", lambda s: s.store.retention.count_old_runs(state, s.at(self.spec, before))
        )

    @rule(node=nodes, limit=st.sampled_from((1, ALL)))
    def read_nodes(self, node: str, limit: int) -> None:
        self._alike("nodes", lambda s: s.store.nodes.nodes(), ordered=False)
        self._alike("living", lambda s: s.store.nodes.living(ALL), ordered=False)
        self._alike("loads", lambda s: s.store.nodes.loads())
        self._alike("leader", lambda s: s.store.leader.leader())
        self._alike("lanes", lambda s: s.store.agents.lanes())
        self._alike("journal", lambda s: s.store.reads.journal(None, ALL), ordered=False)
        self._alike("undelivered", lambda s: self._undelivered(s, node))

    async def _undelivered(self, subject: Subject, node: str) -> object:
        found = await subject.store.schedulers.undelivered(node, ALL)
        return [
            sorted((one.run_id, one.n, one.state, one.output, one.error, one.at) for one in found.steps),
            found.signals,
        ]

    @rule(limit=st.sampled_from((1, 2, ALL)), lanes=st.sampled_from(((1,), (2,), LANES)))
    def read_what_waits(self, limit: int, lanes: tuple[int, ...]) -> None:
        self._alike("backlog", lambda s: s.store.agents.backlog(lanes, limit))
        self._alike("next_ready", lambda s: half_hours(s.store.agents.next_ready(lanes)))
        self._alike("next_timer", lambda s: half_hours(s.store.schedulers.next_timer()))
        self._alike("late_steps", lambda s: s.store.alerts.late_steps(0.5 * HOUR, limit))
        self._alike("late_runs", lambda s: s.store.alerts.late_runs(0.5 * HOUR, limit))
        self._alike("late_wakes", lambda s: s.store.alerts.late_wakes(0.5 * HOUR, ALL, limit))
        bounds = [(name, 0.5 * HOUR) for name, _ in STEPS.values()]
        self._alike("overlong_steps", lambda s: s.store.durations.overlong_steps(bounds, limit))

    @rule(limit=st.sampled_from((1, ALL)), kind=st.sampled_from(sorted(AlertKind)))
    def read_what_is_wrong(self, limit: int, kind: AlertKind) -> None:
        self._alike("gates", self._gates)
        self._alike("breakers", lambda s: s.store.gates.breakers())
        self._alike("holds", lambda s: s.store.gates.holds())
        self._alike("breaker_looks", lambda s: s.store.gates.breaker_looks(WINDOW_H * HOUR))
        for namespace in (None, "default", "other"):
            self._read_in(namespace, limit)
        self._alike("durations", lambda s: s.store.durations.durations(), ordered=False)
        self._alike("durations", lambda s: s.store.durations.durations(["step:ship", "none"]), ordered=False)
        self._same(self.spec.open_alerts_of(kind, limit), lambda s: self._of_a_kind(s, kind, limit))
        self._same(self.spec.open_kinds(), lambda s: s.store.alerts.open_kinds())
        self._alike("unrouted_alerts", lambda s: s.store.alerts.unrouted_alerts(limit))
        self._alike("deliveries", self._deliveries)
        self._alike("failures", lambda s: s.store.alerts.failures(ALL), ordered=False)

    def _read_in(self, at: str | None, limit: int) -> None:
        """Read what is listed in one namespace, or in all."""
        self._alike("quarantine", lambda s: s.store.quarantine.quarantine(limit, at))
        self._alike("alerts", lambda s: s.store.alerts.alerts(limit, at))
        self._alike("open_alerts", lambda s: s.store.alerts.open_alerts(limit, at))
        self._alike("journal", lambda s: s.store.reads.journal(None, ALL, at), ordered=False)

    @staticmethod
    async def _of_a_kind(subject: Subject, kind: AlertKind, limit: int) -> list[str]:
        """Return the keys of the first `limit` alerts, and then of those after the first one."""
        found = await subject.store.alerts.open_alerts_of(kind, 0, limit)
        after = found[0].id if found else 0
        return [one.key for one in [*found, *await subject.store.alerts.open_alerts_of(kind, after, ALL)]]

    @staticmethod
    async def _gates(subject: Subject) -> object:
        found = await subject.store.gates.gates(WINDOW_H * HOUR)
        return sorted(found.breakers, key=lambda one: one.name), found.holds

    @staticmethod
    async def _deliveries(subject: Subject) -> object:
        return await subject.store.alerts.deliveries(
            [alert.id for alert in await subject.store.alerts.alerts(ALL)]
        )

    @precondition(lambda self: self.spec.runs)
    @rule()
    def look_around(self) -> None:
        """Both stores list the same runs, and `doctor` says the same about both. These rules play bad schedulers and
        agents, which wait for nothing, exceed budgets, record what is not JSON or give a run another namespace than its
        code. Only the invariants about that may be broken."""
        listed = sorted(self.spec.runs)

        async def ask(subject: Subject) -> tuple[list[str], list[str]]:
            broken = [name for name, _, rows in await subject.store.reads.doctor() if rows]
            return sorted(run.id for run in await subject.store.reads.runs(RunFilter(limit=ALL))), broken

        (runs, broken), others = (self._do(ask(subject)) for subject in self.subjects)
        assert (runs, broken) == others, f"{broken} are broken in SQLite, {others[1]} in PostgreSQL"
        assert runs == listed
        assert set(broken) <= {"I4", "I8", "I10", "I10b", "I18", "I26", "I44"}, broken

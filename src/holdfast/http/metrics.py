"""Figures for Prometheus, as text. Counters are those of this server; gauges about the store are read at most every
10 seconds, and are the same from every server. Labels come from the table of routes and from the first namespaces by
name, so their number is bounded."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.access import local
from holdfast.desk.desk import Desk
from holdfast.desk.opened import Opened
from holdfast.errors import StoreError
from holdfast.model import DEFAULT_NAMESPACE, RunState
from holdfast.namespaces import namespace_of

STORE_EVERY_S = 10.0
NAMESPACES_MAX, OTHERS = 50, "*"
"""How many namespaces have figures of their own, and the label of all others together."""
BREAKERS = ("closed", "open", "probing")
AGENTS = ("idle", "busy", "draining", "stalled")

Sample = tuple[str, float]


class Figures:
    def __init__(self) -> None:
        self._requests: dict[tuple[str, int], int] = {}
        self._seconds: dict[str, float] = {}
        self._refused: dict[str, int] = {}
        self._store: dict[str, list[Sample]] = {}
        self._read_at = float("-inf")
        self._up = 0

    def served(self, route: str, status: int, seconds: float) -> None:
        self._requests[route, status] = self._requests.get((route, status), 0) + 1
        self._seconds[route] = self._seconds.get(route, 0.0) + seconds

    def refused(self, why: str) -> None:
        self._refused[why] = self._refused.get(why, 0) + 1

    async def text(self, hf: Opened, desk: Desk, polls: int, streams: int) -> str:
        await self._look(hf, desk)
        writer = hf.caller.writer
        counts: dict[str, int] = {}
        for (route, _), count in self._requests.items():
            counts[route] = counts.get(route, 0) + count
        parts = [
            _metric(
                "holdfast_http_requests_total",
                "counter",
                "Requests by route and status",
                (
                    (f'route="{route}",code="{code}"', count)
                    for (route, code), count in self._requests.items()
                ),
            ),
            "# HELP holdfast_http_seconds How long requests took\n# TYPE holdfast_http_seconds summary",
            *(
                f'holdfast_http_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}\n'
                f'holdfast_http_seconds_count{{route="{route}"}} {count}'
                for route, count in counts.items()
            ),
            _metric(
                "holdfast_refused_total",
                "counter",
                "Refused requests by problem",
                ((f'why="{why}"', count) for why, count in self._refused.items()),
            ),
            _metric("holdfast_polls_open", "gauge", "Requests that wait now", [("", polls)]),
            _metric("holdfast_streams_open", "gauge", "Streams that are open", [("", streams)]),
            _metric(
                "holdfast_commits_total",
                "counter",
                "Commits of this process with what it wrote in batches",
                [("", writer.commits)],
            ),
            _metric("holdfast_operations_total", "counter", "What was in them", [("", writer.operations)]),
            _metric("holdfast_store_up", "gauge", "1 if the store answered the last look", [("", self._up)]),
            *(_metric(name, "gauge", _HELP[name], samples) for name, samples in self._store.items()),
        ]
        return "\n".join(parts) + "\n"

    async def _look(self, hf: Opened, desk: Desk) -> None:
        """Read what is in the store, unless it was read a moment ago."""
        now = hf.environment.monotonic()
        if now < self._read_at + STORE_EVERY_S:
            return
        self._read_at = now
        store = hf.store
        try:
            runs = await store.reads.runs_by_namespace()
            alerts = await store.alerts.open_alerts(1000)
            breakers = await store.gates.breakers()
            lanes = await store.agents.lanes()
            names = _named({DEFAULT_NAMESPACE, *runs, *(namespace_of(lane.name) for lane in lanes)})
            waiting = {
                name: await store.agents.backlog(
                    [lane.id for lane in lanes if _label(namespace_of(lane.name), names) == name], 1000
                )
                for name in names
            }
            leader, at = await store.leader.leader(), await store.now()
            nodes = (await desk.agents.list(local("figures"))).nodes
        except StoreError:
            self._up, self._store = 0, {}
            return
        self._up = 1
        counted: dict[tuple[str, str], int] = {(name, state): 0 for name in names for state in RunState}
        for namespace, states in runs.items():
            for state, count in states.items():
                counted[_label(namespace, names), state] += count
        closed: dict[tuple[str, str], int] = {(name, state): 0 for name in names for state in BREAKERS}
        for one in breakers:
            closed[_label(namespace_of(one.name), names), one.state] += 1
        agents = dict.fromkeys(AGENTS, 0)
        for node in nodes:
            if "agent" in node.node.roles.split(",") and node.state in agents:
                agents[node.state] += 1
        self._store = {
            "holdfast_runs": [
                (f'namespace="{name}",state="{state}"', count) for (name, state), count in counted.items()
            ],
            "holdfast_backlog_steps": [
                (f'namespace="{name}"', backlog.ready) for name, backlog in waiting.items()
            ],
            "holdfast_backlog_age_seconds": [
                (f'namespace="{name}"', max(0.0, at - one.since) if one.since is not None else 0)
                for name, one in waiting.items()
            ],
            "holdfast_agents": [(f'state="{state}"', count) for state, count in agents.items()],
            "holdfast_alerts_open": [("", len(alerts))],
            "holdfast_breakers": [
                (f'namespace="{name}",state="{state}"', count) for (name, state), count in closed.items()
            ],
            "holdfast_leader": [("", int(leader is not None and leader.expires_at > at))],
        }


def _named(found: set[str]) -> list[str]:
    """Return the namespaces that get figures of their own, and what stands for the others."""
    names = sorted(found)
    return names if len(names) <= NAMESPACES_MAX else [*names[:NAMESPACES_MAX], OTHERS]


def _label(namespace: str, names: list[str]) -> str:
    return namespace if namespace in names else names[-1] if names[-1] == OTHERS else DEFAULT_NAMESPACE


_HELP = {
    "holdfast_runs": "Runs by state",
    "holdfast_backlog_steps": "Steps that wait for an agent",
    "holdfast_backlog_age_seconds": "How long the oldest of them has waited",
    "holdfast_agents": "Nodes that execute steps, by how they are doing",
    "holdfast_alerts_open": "Alerts that are open",
    "holdfast_breakers": "Breakers by state",
    "holdfast_leader": "1 if a supervisor leads",
}


def _metric(name: str, kind: str, help: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{{{labels}}} {value:g}" if labels else f"{name} {value:g}" for labels, value in samples]
    return "\n".join(lines)

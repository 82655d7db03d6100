"""Figures for Prometheus, as text. Counters are those of this server; gauges about the store are read at most every
10 seconds, and are the same from every server. Labels come from the table of routes, so their number is bounded."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.desk import Opened
from holdfast.errors import StoreError
from holdfast.model import RunState

STORE_EVERY_S = 10.0

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

    async def text(self, hf: Opened, polls: int, streams: int) -> str:
        await self._look(hf)
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
            _metric("holdfast_store_up", "gauge", "1 if the store answered the last look", [("", self._up)]),
            *(_metric(name, "gauge", _HELP[name], samples) for name, samples in self._store.items()),
        ]
        return "\n".join(parts) + "\n"

    async def _look(self, hf: Opened) -> None:
        """Read what is in the store, unless it was read a moment ago."""
        now = hf.environment.monotonic()
        if now < self._read_at + STORE_EVERY_S:
            return
        self._read_at = now
        store = hf.store
        try:
            runs = await store.reads.runs_by_state()
            alerts = await store.alerts.open_alerts(1000)
            breakers = await store.gates.breakers()
            lanes = await store.agents.lanes()
            backlog = await store.agents.backlog([lane.id for lane in lanes], 1000)
            leader, at = await store.leader.leader(), await store.now()
        except StoreError:
            self._up, self._store = 0, {}
            return
        self._up = 1
        self._store = {
            "holdfast_runs": [(f'state="{state}"', runs.get(state, 0)) for state in RunState],
            "holdfast_backlog_steps": [("", backlog.ready)],
            "holdfast_backlog_age_seconds": [
                ("", max(0.0, at - backlog.since) if backlog.since is not None else 0)
            ],
            "holdfast_alerts_open": [("", len(alerts))],
            "holdfast_breakers": [
                (f'state="{state}"', sum(one.state == state for one in breakers))
                for state in ("closed", "open", "probing")
            ],
            "holdfast_leader": [("", int(leader is not None and leader.expires_at > at))],
        }


_HELP = {
    "holdfast_runs": "Runs by state",
    "holdfast_backlog_steps": "Steps that wait for an agent",
    "holdfast_backlog_age_seconds": "How long the oldest of them has waited",
    "holdfast_alerts_open": "Alerts that are open",
    "holdfast_breakers": "Breakers by state",
    "holdfast_leader": "1 if a supervisor leads",
}


def _metric(name: str, kind: str, help: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{{{labels}}} {value:g}" if labels else f"{name} {value:g}" for labels, value in samples]
    return "\n".join(lines)

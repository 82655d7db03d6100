"""The authorisation matrix: every route, asked by everybody, about what is theirs, another's, and nobody's.

.venv/bin/python -m tests.http.matrix            # prints the cells
.venv/bin/python -m tests.http.matrix --write    # writes them to matrix.txt, to be read in review
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from holdfast.access import Role, local
from holdfast.desk import StartRequest
from holdfast.http.call import Route
from holdfast.http.routes import ROUTES
from holdfast.model import BreakerState, HoldScope
from holdfast.store.reads import RunFilter
from holdfast.times import Plan
from holdfast.timetable import BackfillRequest, ScheduleRequest
from holdfast.wire.paths import path_of
from tests.http.conftest import Asked, asking, bearer, made_token

FILE = Path(__file__).with_name("matrix.txt")
OWN, OTHER, UNKNOWN = "acme", "umbrella", "nowhere"
TARGETS = (OWN, OTHER, UNKNOWN)
CANARY = "canary-7f3a"
"""A secret in what belongs to the other namespace. No answer may have it, apart from those to whoever has all."""
RUN_ROUTE = "/v1/runs/{run}"
SCHEDULE_ROUTE = "/v1/schedules/{schedule}"
BODIES: Mapping[str, Any] = {
    "/v1/runs": {"workflow": "shop.count", "input": {"a": 1}},
    "/v1/runs/batch": {"items": [{"workflow": "shop.count", "input": {"a": 1}, "id": "the-same"}]},
    "/v1/runs/ended": {"runs": ["{id}"]},
    f"{RUN_ROUTE}/signals": {"name": "paid", "data": 1, "key": "k"},
    f"{RUN_ROUTE}/updates": {"name": "change", "data": {"street": "Quay"}, "key": "k", "wait_s": 0},
    f"{RUN_ROUTE}/quarantine": {"act": "release"},
    "/v1/acts": {"verb": "cancel", "prefix": "nothing-begins-so"},
    "/v1/tokens": {"role": "viewer"},
    "/v1/agents": {"groups": [{"name": "g", "steps": ["shop.add"]}]},
    "/v1/agents/{agent}/claim": {"turn": 1, "free": {"g": 1}},
    "/v1/agents/{agent}/report": {"reports": []},
    "/v1/agents/{agent}/twin": {"verb": "bar", "run": "ours", "n": 1, "fence": 1, "secret": "none"},
    "/v1/schedules": {
        "name": "nightly",
        "workflow": "shop.count",
        "times": "@daily",
        "input": {"a": 1},
        "replace": True,
    },
    f"{SCHEDULE_ROUTE}/backfills": {"from": "2026-01-01", "to": "2026-01-03", "dry_run": True},
    "/v1/holds": {"scope": "namespace", "value": "{namespace}"},
    "/v1/holds/release": {"scope": "namespace", "value": "{namespace}"},
}
PARTS = {
    "agent": "an-agent-of-nobody",
    "act": "0123456789",
    "token": "0123456789ab0123456789ab",
    "n": "1",
    "name": "shop.count",
    "fingerprint": "0123456789ab",
    "alert": "1",
}


class Asker(NamedTuple):
    name: str
    headers: dict[str, str]
    has_all: bool = False


class Cell(NamedTuple):
    route: str
    asker: str
    target: str
    status: int
    body: bytes

    @property
    def shown(self) -> str:
        """The body without the request's own id, which no two answers share."""
        return re.sub(rb'"instance":"[^"]*",?', b"", self.body).decode()


async def askers(asked: Asked) -> list[Asker]:
    hf, good = asked.hf, {}
    for role in Role:
        good[str(role)] = await made_token(hf, role, OWN)
    for role in (Role.VIEWER, Role.OPERATOR, Role.AGENT, Role.ADMIN):
        good[f"{role} of all"] = await made_token(hf, role, "*")
    expired = await made_token(hf, Role.ADMIN, "*", expires_s=-1.0)
    revoked = await made_token(hf, Role.ADMIN, "*")
    await hf.store.tokens.revoke_token(revoked.split("_")[2], "test")
    found = [
        Asker("no token", {}),
        Asker("no such token", bearer(good["admin"][:-7] + "AAAAAAA")),
        Asker("expired", bearer(expired)),
        Asker("revoked", bearer(revoked)),
    ]
    return found + [Asker(name, bearer(token), "all" in name) for name, token in good.items()]


class Matrix:
    """Asks every cell. Each that may change something has a run of its own."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._count = 0
        self._backfill = "nobody"

    async def prepare(self) -> list[Asker]:
        who = local("test").within(OTHER)
        desk = self._asked.hf.desk
        for run_id in ("theirs", "the-same"):
            request = StartRequest(
                "shop.count", json.dumps({"a": 1, "secret": CANARY}).encode(), id=run_id, tags={"c": CANARY}
            )
            await desk.start(who, request)
        await desk.force_breaker(who, f"bank-{CANARY}", BreakerState.OPEN, CANARY)
        await desk.add_hold(who, HoldScope.DEPENDENCY, f"bank-{CANARY}", CANARY)
        await self._schedule(OTHER, "theirs", CANARY)
        return await askers(self._asked)

    async def _schedule(self, namespace: str, name: str, secret: str = "") -> None:
        given = json.dumps({"a": 1, "secret": secret} if secret else {"a": 1}).encode()
        request = ScheduleRequest(
            name, "shop.count", Plan("@daily"), given, tags={"c": secret} if secret else {}
        )
        await self._asked.hf.desk.schedules.create(local("test").within(namespace), request)

    async def _schedule_of(self, target: str, route: Route) -> str:
        """Return the name of a schedule that is ours, theirs, or nobody's. What is resumed was paused."""
        if target != OWN:
            return "theirs" if target == OTHER else "nobody"
        self._count += 1
        name, who = f"ours-{self._count}", local("test").within(OWN)
        await self._schedule(OWN, name)
        if route.path.endswith("/resume"):
            await self._asked.hf.desk.schedules.pause(who, name)
        if "{backfill}" in route.path:
            request = BackfillRequest("2026-01-01", "2026-01-03")
            row = await self._asked.hf.desk.schedules.backfill(who, name, request)
            self._backfill = row.id
        return name

    async def _target(self, target: str) -> str:
        """Return the id of a run that is ours, theirs, or nobody's."""
        if target == OTHER:
            return "theirs"
        if target == UNKNOWN:
            return "nobody"
        self._count += 1
        who, run_id = local("test").within(OWN), f"ours-{self._count}"
        await self._asked.hf.desk.start(who, StartRequest("shop.pay", b'{"cents": 1}', id=run_id))
        return run_id

    async def cell(self, route: Route, asker: Asker, target: str) -> Cell:
        headers = dict(asker.headers)
        gates = self._asked.hf.store.gates
        if route.path == "/v1/holds/release" and target == OWN:
            await gates.add_hold(HoldScope.NAMESPACE, target, "test", "")
        run_id = await self._target(target) if "{run}" in route.path or "ended" in route.path else ""
        if asker.has_all or (
            "{run}" not in route.path
            and "{schedule}" not in route.path
            and route.path != "/v1/runs/ended"
            and target != OWN
        ):  # they name the namespace of what they mean
            headers["Holdfast-Namespace"] = target
        path = route.path.replace("{run}", path_of(run_id))
        if "{schedule}" in path:
            name = await self._schedule_of(target, route)
            path = path.replace("{schedule}", path_of(name)).replace("{backfill}", path_of(self._backfill))
        for name, value in PARTS.items():
            path = path.replace(f"{{{name}}}", value)
        body = json.dumps(BODIES.get(route.path, {})).replace("{id}", run_id).replace("{namespace}", target)
        answer = await self._ask(route, path, headers, body)
        if route.path.startswith("/v1/holds"):
            await gates.remove_hold(HoldScope.NAMESPACE, target, "test", "")
        return Cell(f"{route.verb} {route.path}", asker.name, target, answer.status_code, answer.content)

    async def _ask(self, route: Route, path: str, headers: dict[str, str], body: str) -> httpx2.Response:
        if route.takes is None:
            return await self._asked.client.request(route.verb, path, headers=headers)
        headers["Content-Type"] = "application/json"
        return await self._asked.client.request(route.verb, path, headers=headers, content=body)

    async def theirs(self) -> Any:
        """Return everything that belongs to the other namespace."""
        reads = self._asked.hf.store.reads
        found = [
            (row, await reads.signals(row.id), await reads.journal(row.id))
            for row in await reads.runs(RunFilter(namespace=OTHER, limit=100))
        ]
        gates = self._asked.hf.store.gates
        holds = [one for one in await gates.holds() if one.value == OTHER or CANARY in one.value]
        schedules = await self._asked.hf.store.schedules.schedules(OTHER)
        return found, holds, [one for one in await gates.breakers() if CANARY in one.name], schedules


def as_text(cells: list[Cell]) -> str:
    lines = [
        "# The authorisation matrix: what is answered to whom, about what is in their namespace (acme), in another",
        "# (umbrella), and in one that does not exist (nowhere). `python -m tests.http.matrix --write` makes this file.",
    ]
    rows: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        rows.setdefault((cell.route, cell.asker), []).append(cell)
    route = ""
    for (name, asker), found in rows.items():
        if name != route:
            route = name
            lines += ["", name]
        lines.append(f"  {asker:16}" + "".join(f" {cell.target} {cell.status}" for cell in found))
    return "\n".join(lines) + "\n"


async def _main() -> None:
    async with asking("sqlite://:memory:", namespace="*") as asked:
        matrix = Matrix(asked)
        who = await matrix.prepare()
        cells = [
            await matrix.cell(route, one, target) for route in ROUTES for one in who for target in TARGETS
        ]
    text = as_text(cells)
    if "--write" in sys.argv:
        FILE.write_text(text)
    else:
        print(text)
    print(f"{len(cells):,} cells", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(_main())

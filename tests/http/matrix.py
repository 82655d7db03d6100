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
from holdfast.desk.schedules import BackfillRequest, ScheduleRequest
from holdfast.desk.starts import StartRequest
from holdfast.http.call import Route
from holdfast.http.table import TABLE
from holdfast.model import HoldScope
from holdfast.namespaces import stored
from holdfast.queues import LimitKey, QueueKey
from holdfast.store.reads import RunFilter
from holdfast.times import Plan
from holdfast.wire.cloudevents import CloudEvent
from holdfast.wire.paths import path_of
from tests.http.conftest import Asked, asking, bearer, made_ask, made_callback, made_occasion, made_token

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
    f"{RUN_ROUTE}/callback": {"output": 1},
    "/v1/acts": {"verb": "cancel", "prefix": "nothing-begins-so"},
    "/v1/tokens": {"role": "viewer"},
    "/v1/asks/{ask}/answer": {"value": True},
    "/v1/asks/{ask}/delegate": {"to": "person:bob"},
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
    "/v1/events": {"specversion": "1.0", "type": "x", "source": "matrix", "id": "{namespace}"},
    "/v1/hooks": {"name": "made", "scheme": "github"},
    "/v1/fair": {"key": "acme", "weight": 2},
    "/v1/limits/{limit}": {"most": 2},
    "/v1/views": {"name": "bad", "query": "state=failed"},
    "/views": {"name": "bad", "query": "state=failed"},
    "/v1/holds": {"scope": "namespace", "value": "{namespace}"},
    "/v1/holds/release": {"scope": "namespace", "value": "{namespace}"},
}
PARTS = {
    "hook": "nobody",
    "view": "nobody",
    "source": "shop",
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
    cookie: str = ""
    """What their browser sends, after they have signed in."""
    seal: str = ""


class Cell(NamedTuple):
    route: str
    asker: str
    target: str
    status: int
    body: bytes

    @property
    def shown(self) -> str:
        """The body without the request's own id, which no two answers share."""
        own = rb'"instance":"[^"]*",?|request <code>[^<]*</code>|data-now="[^"]*"|as of [0-9:]*|name="seal" value="[^"]*"'
        return re.sub(own, b"", self.body).decode(errors="replace")


async def askers(asked: Asked) -> list[Asker]:
    hf, good = asked.hf, {}
    for role in Role:
        good[str(role)] = await made_token(hf, role, OWN, who=["team:finance"])
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
    for name, token in good.items():
        cookie = (await asked.server.visitors.sign_in(token, "", {}, "http")).partition(";")[0]
        visitor = await asked.server.visitors.visitor({"cookie": cookie})
        assert visitor is not None
        found.append(Asker(name, bearer(token), "all" in name, cookie, visitor.seal))
    return found


class Matrix:
    """Asks every cell. Each that may change something has a run of its own."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._count = 0
        self._backfill = "nobody"
        self._their_ask = ""

    async def prepare(self) -> list[Asker]:
        who = local("test").within(OTHER)
        desk = self._asked.hf.desk
        for run_id in ("theirs", "the-same"):
            request = StartRequest(
                "shop.count", json.dumps({"a": 1, "secret": CANARY}).encode(), id=run_id, tags={"c": CANARY}
            )
            await desk.starts.start(who, request)
        await desk.gates.open(who, f"bank-{CANARY}", CANARY)
        await desk.gates.hold(who, HoldScope.DEPENDENCY, f"bank-{CANARY}", CANARY)
        await self._schedule(OTHER, "theirs", CANARY)
        for namespace, name, secret in ((OTHER, "theirs", CANARY), (OWN, "ours", "")):
            event = CloudEvent("x", "shop", name, json.dumps(secret).encode())
            await desk.events.emit(local("test").within(namespace), [event])
        for namespace, name, secret in ((OTHER, "theirs", CANARY), (OWN, "ours", "")):
            await made_occasion(self._asked.hf, namespace, name, secret)
        self._their_ask = await self._ask_in(OTHER, CANARY)
        await made_callback(self._asked.hf, OTHER, "calling-theirs")
        store = self._asked.hf.store
        for namespace, name in ((OTHER, "theirs"), (OWN, "ours")):
            limit = LimitKey(stored(namespace, name), 5)
            await store.queues.number_queues(
                [QueueKey(stored(namespace, f"key-{CANARY}" if namespace == OTHER else "key"), (limit,))]
            )
        await store.limits.set_limit(stored(OTHER, "theirs"), 4, "test", CANARY)
        return await askers(self._asked)

    async def _ask_in(self, namespace: str, question: str = "ours") -> str:
        """Let a run ask its team something. Return the id of the ask."""
        self._count += 1
        return await made_ask(self._asked.hf, namespace, f"asking-{self._count}", question, "team:finance")

    async def _ask_of(self, target: str) -> str:
        """Return the id of an ask that is ours, theirs, or nobody's."""
        if target == OWN:
            return await self._ask_in(OWN)
        return self._their_ask if target == OTHER else "nobody"

    async def _occasion_of(self, target: str, *, anew: bool) -> str:
        """Return the id of an open occasion that is ours, theirs, or nobody's. Those who may end theirs get one of their own."""
        if target == UNKNOWN:
            return "report@when:nobody"
        if target == OTHER and not anew:
            return "report@when:theirs"
        self._count += 1
        secret = CANARY if target == OTHER else ""
        return await made_occasion(self._asked.hf, target, f"one-{self._count}", secret)

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

    async def _calling(self, target: str, *, anew: bool) -> str:
        """Return the id of a run that waits for a callback, and is ours, theirs, or nobody's. Those who may answer theirs get
        one of their own."""
        if target == UNKNOWN:
            return "nobody"
        if target == OTHER and not anew:
            return "calling-theirs"
        self._count += 1
        run_id = f"calling-{self._count}"
        await made_callback(self._asked.hf, target, run_id)
        return run_id

    async def _target(self, target: str) -> str:
        """Return the id of a run that is ours, theirs, or nobody's."""
        if target == OTHER:
            return "theirs"
        if target == UNKNOWN:
            return "nobody"
        self._count += 1
        who, run_id = local("test").within(OWN), f"ours-{self._count}"
        await self._asked.hf.desk.starts.start(who, StartRequest("shop.pay", b'{"cents": 1}', id=run_id))
        return run_id

    async def cell(self, route: Route, asker: Asker, target: str) -> Cell:
        headers = dict(asker.headers)
        gates = self._asked.hf.store.gates
        api = route.path.removeprefix("/do")
        if api == "/v1/holds/release" and target == OWN:
            await gates.add_hold(HoldScope.NAMESPACE, target, "test", "")
        run_id = await self._target(target) if "{run}" in route.path or "ended" in route.path else ""
        if api == f"{RUN_ROUTE}/callback":
            run_id = await self._calling(target, anew=asker.has_all)
        if asker.has_all or (
            "{run}" not in route.path
            and "{schedule}" not in route.path
            and "{event}" not in route.path
            and "{occasion}" not in route.path
            and "{ask}" not in route.path
            and "{limit}" not in route.path
            and route.path != "/v1/runs/ended"
            and target != OWN
        ):  # they name the namespace of what they mean
            headers["Holdfast-Namespace"] = target
        path = route.path.replace("{run}", path_of(run_id))
        path = path.replace("{file}", "nothing.css")
        if "{schedule}" in path:
            name = await self._schedule_of(target, route)
            path = path.replace("{schedule}", path_of(name)).replace("{backfill}", path_of(self._backfill))
        ours = {OWN: "ours", OTHER: "theirs", UNKNOWN: "nobody"}
        path = path.replace("{event}", ours[target])
        if "{occasion}" in path:
            path = path.replace("{occasion}", await self._occasion_of(target, anew=asker.has_all))
        if "{ask}" in path:
            path = path.replace("{ask}", await self._ask_of(target))
        limit = {OWN: "ours", OTHER: "theirs"}.get(target, "nobody")
        path = path.replace("{limit}", limit)
        for name, value in PARTS.items():
            path = path.replace(f"{{{name}}}", value)
        body = json.dumps(BODIES.get(api, {})).replace("{id}", run_id).replace("{namespace}", target)
        if route.is_page:
            answer = await self._browse(
                route, path, headers.get("Holdfast-Namespace"), asker, json.loads(body)
            )
        else:
            answer = await self._ask(route, path, headers, body)
        if api.startswith("/v1/holds"):
            await gates.remove_hold(HoldScope.NAMESPACE, target, "test", "")
        return Cell(f"{route.verb} {route.path}", asker.name, target, answer.status_code, answer.content)

    async def _ask(self, route: Route, path: str, headers: dict[str, str], body: str) -> httpx2.Response:
        if route.takes is None and not route.raw:
            return await self._asked.client.request(route.verb, path, headers=headers)
        headers["Content-Type"] = route.raw[0] if route.raw else "application/json"
        return await self._asked.client.request(route.verb, path, headers=headers, content=body)

    async def _browse(
        self, route: Route, path: str, namespace: str | None, asker: Asker, body: Mapping[str, Any]
    ) -> httpx2.Response:
        """Ask as a browser does: with a cookie, and with a form that comes from a page of this server."""
        headers = {"Cookie": asker.cookie} if asker.cookie else {}
        query = {} if namespace is None else {"namespace": namespace}
        if route.verb == "GET":
            return await self._asked.client.get(path, params=query, headers=headers)
        fields = {
            name: value if isinstance(value, str) else json.dumps(value) for name, value in body.items()
        }
        typed = {"typed": path.split("/")[-2]}
        return await self._asked.client.post(
            path,
            params=query,
            data={**fields, **typed, "seal": asker.seal},
            headers=headers | {"Origin": "http://localhost"},
        )

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
        events = await self._asked.hf.store.events.events(OTHER)
        occasions = await self._asked.hf.store.occasions.occasions(OTHER)
        store = self._asked.hf.store
        limits = (
            [(one.name, one.most, one.actor, one.note) for one in await store.limits.limits(OTHER)],
            await store.queues.fairs(OTHER),
        )
        asks = await store.asks.open_asks(OTHER)
        breakers = [one for one in await gates.breakers() if CANARY in one.name]
        return found, holds, breakers, schedules, limits, asks, events, occasions


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
            await matrix.cell(route, one, target) for route in TABLE for one in who for target in TARGETS
        ]
    text = as_text(cells)
    if "--write" in sys.argv:
        FILE.write_text(text)
    else:
        print(text)
    print(f"{len(cells):,} cells")


if __name__ == "__main__":
    asyncio.run(_main())

"""Writes what is made from the table of routes: the reference page, and the snapshot that the tests compare.

.venv/bin/python -m holdfast.http.reference
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.http.call import Route
from holdfast.http.openapi import document, who_may
from holdfast.http.routes import ROUTES
from holdfast.wire.problems import KINDS

ROOT = Path(__file__).parents[3]
HEAD = """# HTTP

This page is made from the table of routes (`python -m holdfast.http.reference`). [The server](../server.md) says how to
use it; `GET /v1/openapi.json` is the same as OpenAPI 3.1, with all members of requests and answers.

A request names its token by `Authorization: Bearer hf_…`, and, if the token is for several namespaces, one of them by
`Holdfast-Namespace`. Bodies are JSON with `Content-Type: application/json`. A member or parameter that a route does not
have is refused. Every answer has the header `Holdfast-Request`: the id under which the log names the request.

## Routes

| | does | who may | parameters | body | answers |
|---|---|---|---|---|---|
"""
PROBLEMS = """
## Problems

Whatever goes wrong is `application/problem+json` (RFC 9457) with `type` `urn:holdfast:problem:NAME`, `title`, `status`,
and where it helps `detail`, `place` (a JSON pointer into the body, `?name` for the query, or a header), `next` (what to
do) and `instance` (the request's id).

| name | status | means |
|---|---|---|
"""


def page(routes: Sequence[Route]) -> str:
    made = document(routes)
    rows = [_row(route, made["paths"][route.path][route.verb.lower()]) for route in routes]
    problems = [f"| `{name}` | {kind.status} | {kind.title.lower()} |" for name, kind in KINDS.items()]
    return HEAD + "\n".join(rows) + "\n" + PROBLEMS + "\n".join(problems) + "\n"


def _row(route: Route, operation: dict[str, Any]) -> str:
    names = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
    names += ["tag.NAME"] if route.has_tags else []
    names += list(route.headers)
    cells = (
        f"`{route.verb} {route.path}`",
        route.does,
        who_may(route).removeprefix("Roles: ").rstrip(".").replace(". Needs", "; needs"),
        ", ".join(f"`{name}`" for name in names),
        _body(route),
        ", ".join(f"{status} {words}" for status, words in route.statuses.items()),
    )
    return f"| {' | '.join(cells)} |"


def _body(route: Route) -> str:
    if route.raw:
        return ", ".join(f"`{kind}`" for kind in route.raw)
    return "" if route.takes is None else ", ".join(f"`{name}`" for name in _members(route.takes))


def _members(kind: Any) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def main() -> None:
    (ROOT / "docs/reference/http.md").write_text(page(ROUTES), encoding="utf-8")
    snapshot = msgspec.json.format(msgspec.json.encode(document(ROUTES)), indent=1)
    (ROOT / "tests/http/openapi.json").write_bytes(snapshot + b"\n")


if __name__ == "__main__":
    main()

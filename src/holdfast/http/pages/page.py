"""One page: asks the API in this process, as whoever looks at it, and fills a template."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import jinja2
import msgspec

from holdfast.access import Act, Identity, Kind
from holdfast.http.call import Call, Given, Route
from holdfast.http.pages import words
from holdfast.http.pages.assets import ASSETS
from holdfast.http.pages.badges import badges
from holdfast.http.routes import ROUTES
from holdfast.model import DEFAULT_NAMESPACE
from holdfast.wire.paths import path_of
from holdfast.wire.problems import Problem

HTML = "text/html; charset=utf-8"
API: Mapping[str, Route] = {f"{route.verb} {route.path}": route for route in ROUTES}
_SAFE = re.compile(r"/(?![/\\])[\x21-\x7e]*")


@cache
def templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals |= {
        "asset": lambda path: ASSETS[path],
        "states": words.STATES,
        "rail": words.RAIL,
        "symbols": words.SYMBOLS,
        "path_of": path_of,
    }
    made.filters |= {
        "span": words.span,
        "ago": words.ago,
        "sentence": words.sentence,
        "clock": words.clock,
        "iso": words.iso,
        "value": words.value,
        "json_parts": words.json_parts,
        "count": words.count,
        "plural": words.plural,
        "short": words.short,
        "shell": words.shell,
        "share": words.share,
        "tail": lambda name: name.rpartition(".")[2],
        "merged": lambda one, other: {**one, **other},
    }
    return made


def safe_path(text: str) -> str:
    """Return a path on this server, to go back to. Anything else is the first page."""
    return text if _SAFE.fullmatch(text) else "/"


class Page:
    def __init__(self, call: Call) -> None:
        self.call, self.who = call, call.who
        self.known: Identity | None = call.who
        """Who looks. None on a page that needs nobody."""
        self.now: datetime | None = None

    # --- asking

    def may(self, name: str) -> bool:
        """True if whoever looks may ask this of the API."""
        act = API[name].act
        return act is None or self.who.may(act)

    async def ask(
        self,
        name: str,
        /,
        *,
        query: msgspec.Struct | None = None,
        body: Any = None,
        tags: Mapping[str, str] | None = None,
        **path: str,
    ) -> Any:
        """Return what the API answers, by the function that answers it. Roles are checked as for any request."""
        return (await self.given(name, query=query, body=body, tags=tags, **path)).body

    async def given(
        self,
        name: str,
        /,
        *,
        query: msgspec.Struct | None = None,
        body: Any = None,
        tags: Mapping[str, str] | None = None,
        **path: str,
    ) -> Given:
        route = API[name]
        if route.act is not None:
            self.who.demand(route.act)
        if query is None and route.query is not None:
            query = route.query()
        headers = {name: value for name, value in self.call.headers.items() if name != "if-none-match"}
        made = self.call._replace(
            query=query,
            body=body,
            tags=dict(tags or {}),
            path={**self.call.path, **path},
            headers=headers,
        )
        return await route.call(made)

    # --- showing

    def url(self, path: str, /, **query: Any) -> str:
        """Return the address of a page in the same namespace. What is None is left out."""
        given = {name: value for name, value in query.items() if value not in (None, "", [])}
        if self.known is not None and self.known.namespace not in (None, DEFAULT_NAMESPACE):
            given["namespace"] = self.known.namespace
        return f"{path}?{urlencode(given, doseq=True)}" if given else path

    def listed(self, query: str) -> str:
        """Return the address of a list of runs."""
        return self.url("/runs", **parse_qs(query))

    def deed(self, move: Any) -> str:
        """Return the address of the form that makes a move. A question has a page of its own."""
        if move.verb == "answer":
            return self.url(move.path.removeprefix("/v1").removesuffix("/answer"))
        given = {name: one if isinstance(one, str) else json.dumps(one) for name, one in move.body.items()}
        return self.url(f"/do{move.path}", **given)

    async def shown(self, template: str, here: str, title: str, *, status: int = 200, **values: Any) -> Given:
        self.now = self.now or (await self.ask("GET /v1/me")).now
        numbers = await badges(self, self.now)
        return self._rendered(
            template, status, here=here, title=title, now=self.now, badges=numbers, **values
        )

    def wrong(self, found: Problem, label: str = "") -> Given:
        """Return the page that says what is wrong, and with which field of a form."""
        name = found.type.rpartition(":")[2]
        is_part = self.call.headers.get("hx-request") == "true"
        template = "wrong-part.html" if is_part else "wrong.html"
        return self._rendered(
            template,
            found.status,
            here="",
            title=found.title,
            problem=found,
            name=name,
            label=label,
            now=None,
        )

    def plain(self, template: str, *, status: int = 200, **values: Any) -> Given:
        """Return a page outside of the frame, or a part of one."""
        return self._rendered(template, status, **{"now": self.now, "here": "", "title": ""} | values)

    def _rendered(self, template: str, status: int, **values: Any) -> Given:
        who = self.known
        text = (
            templates()
            .get_template(template)
            .render(
                url=self.url,
                who=who,
                seal=self.call.seal,
                may=_powers(who),
                is_open=who is not None and who.kind is Kind.LOCAL,
                page=self,
                deed=self.deed,
                **values,
            )
        )
        return Given(text.encode(), status, media_type=HTML)

    def to(self, path: str) -> Given:
        """Return the answer that leads to another page."""
        if self.call.headers.get("hx-request"):
            return Given(b"", 200, {"HX-Redirect": path}, HTML)
        return Given(b"", 303, {"Location": path}, HTML)


def _powers(who: Identity | None) -> dict[str, bool]:
    """Return what whoever looks may do: buttons for the rest are absent."""
    return {act.name.lower(): who is not None and who.may(act) for act in Act}

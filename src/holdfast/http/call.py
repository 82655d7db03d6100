"""One request on its way to the desk, and what is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import msgspec

from holdfast.access import Act, Identity
from holdfast.config import Config
from holdfast.desk.desk import Desk
from holdfast.desk.hooks import LocalHookDesk
from holdfast.desk.opened import Opened
from holdfast.http.doorway import Doorway
from holdfast.http.reader import header
from holdfast.http.refusals import Refusal
from holdfast.http.visitors import Visitors
from holdfast.http.watch import Open, Watch
from holdfast.wire.paths import id_of

ASKER = "holdfast.asker"
"""The key under which the scope of a request has who asks, as soon as that is known."""


class Looking(Protocol):
    """Reads the mark of a topic once for everybody who watches that topic."""

    async def mark(self, who: Identity, topic: str, read: Callable[[], Awaitable[str]]) -> str: ...


class Served(Protocol):
    """The server, as the functions behind routes see it."""

    hf: Opened
    config: Config

    @property
    def desk(self) -> Desk: ...

    @property
    def is_leaving(self) -> bool: ...

    @property
    def looks(self) -> Looking: ...

    async def metrics(self) -> str: ...

    @property
    def watch(self) -> Watch: ...

    async def demand_streams(self, who: Identity) -> None:
        """Refuse if this token has as many streams as it may have."""

    def counted_stream(self, who: Identity) -> AbstractContextManager[None]:
        """Count a stream while it is open."""

    @property
    def webhooks(self) -> LocalHookDesk:
        """Where webhooks come in."""

    def openapi(self) -> bytes: ...

    @property
    def doorway(self) -> Doorway: ...

    @property
    def visitors(self) -> Visitors: ...


class Call(NamedTuple):
    server: Served
    who: Identity
    query: Any
    """The query as the struct that the route names."""
    tags: dict[str, str]
    body: Any
    """The body as the struct that the route takes."""
    path: Mapping[str, str]
    headers: Mapping[str, str]
    receive: Callable[[], Awaitable[Any]] | None = None
    """Returns when the other end closes the connection. The body has been read by then."""
    seal: str = ""
    """On a page: what a form must send along, so that no page of somebody else can send it."""
    request: str = ""
    """The id of the request, where nobody has signed in. Otherwise the identity has it."""

    @asynccontextmanager
    async def while_open(self, act: Act) -> AsyncIterator[asyncio.Future[None]]:
        """Yield a future that is done when the other end has closed the connection, the server leaves, or the token is no longer
        good. Raise a refusal at the end if that was it."""
        with self.server.watch.over(self.who, act, self.headers) as opened:
            left: asyncio.Future[None] = asyncio.ensure_future(self._closed(opened))
            try:
                yield left
            finally:
                left.cancel()
            opened.demand_good()

    async def _closed(self, opened: Open) -> None:
        over = asyncio.ensure_future(opened.over.wait())
        try:
            if self.receive is None:
                await over
                return
            while not over.done():
                message = asyncio.ensure_future(self.receive())
                await asyncio.wait([message, over], return_when=asyncio.FIRST_COMPLETED)
                if not message.done():
                    message.cancel()
                elif message.result()["type"] == "http.disconnect":
                    return
        finally:
            over.cancel()

    @property
    def desk(self) -> Desk:
        return self.server.desk

    def id(self, name: str) -> str:
        """Return the id in the path. A text that stands for no id is refused like an id that nothing has."""
        found = id_of(self.path[name])
        if found is None:
            raise Refusal("unknown")
        return found

    @property
    def run(self) -> str:
        return self.id("run")

    def number(self, name: str) -> int:
        text = self.path[name]
        if not (text.isascii() and text.isdigit() and len(text) <= 9):
            raise Refusal("unknown")
        return int(text)

    @property
    def known_marks(self) -> list[str]:
        """Return the marks of what the other end has, as If-None-Match names them. `*` is whatever there is."""
        given = [one.strip().removeprefix("W/") for one in self.headers.get("if-none-match", "").split(",")]
        return [one.strip('"') for one in given if one]

    def knows(self, mark: str) -> bool:
        known = self.known_marks
        return mark in known or "*" in known

    def header(self, name: str) -> str | None:
        return header(self.headers, name)


class Given(NamedTuple):
    """What is answered."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}
    media_type: str = "application/json"


class Size(StrEnum):
    """How large the body of a request may be."""

    SMALL = "small"
    PAYLOAD = "payload"
    BATCH = "batch"


class Route(NamedTuple):
    """A row of the table: what may be asked, by whom, and what is answered."""

    verb: str
    path: str
    act: Act | None
    """What the identity must be allowed to do. None: anybody may ask this, without a token."""
    does: str
    call: Callable[[Call], Awaitable[Given]]
    gives: type | None = None
    takes: type | None = None
    query: type[msgspec.Struct] | None = None
    has_tags: bool = False
    statuses: Mapping[int, str] = {200: "done"}
    size: Size = Size.SMALL
    polls: bool = False
    """True if the answer may wait."""
    headers: tuple[str, ...] = ()
    needs_namespace: bool = True
    """False if a token for several namespaces need not name one."""
    media_type: str = "text/plain"
    """The media type of an answer that is not JSON."""
    previews: type | None = None
    """What is answered, with 200, to a body with `preview: true`."""
    raw: tuple[str, ...] = ()
    """The media types of a body that the function reads itself, as bytes."""
    is_page: bool = False
    """True if it answers people, in HTML. They sign in by a cookie, and what they send are forms."""
    has_cookie: bool = False
    """True if the cookie of somebody who has signed in opens it as well as a token does."""

    @property
    def name(self) -> str:
        """What metrics and OpenAPI call it."""
        words = [part.strip("{}") for part in self.path.split("/") if part and part != "v1"]
        return "_".join([self.verb.lower(), *words]).replace(".", "_")

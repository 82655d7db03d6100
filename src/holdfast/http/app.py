"""The ASGI application. It takes each request through the same stages: who asks, may they do this, what exactly do they
ask, the desk does it, the answer. Whatever goes wrong becomes a problem."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.access import Act, Identity, Kind
from holdfast.actor import Via
from holdfast.config import Config
from holdfast.desk.desk import Desk, LocalDesk
from holdfast.desk.hooks import LocalHookDesk
from holdfast.desk.opened import Opened
from holdfast.errors import HoldfastError, StoreError
from holdfast.http.call import ASKER, Call, Given, Route, Size
from holdfast.http.doorway import AgentStream, Doorway
from holdfast.http.guard import Guard, SigningIssuer, authorised
from holdfast.http.metrics import Figures
from holdfast.http.openapi import document
from holdfast.http.pages.request import answered_page
from holdfast.http.path_tree import PathTree
from holdfast.http.reader import demand_media_type, read_body, read_headers, read_query, receive_body
from holdfast.http.refusals import Refusal, headers_of, problem_of
from holdfast.http.refused import RefusedRequests
from holdfast.http.routes import ROUTES
from holdfast.http.streams import Looks
from holdfast.http.table import TABLE
from holdfast.http.visitors import Visitors
from holdfast.http.watch import Watch
from holdfast.wire.paths import id_of
from holdfast.wire.problems import MEDIA_TYPE, Problem, problem

log = logging.getLogger("holdfast.http")

ALWAYS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
BESIDE_PAYLOAD = 64 * 1024
"""How many bytes a body may have beside its payload."""
REQUEST_HEADER = "Holdfast-Request"


class Server:
    """What is common to all requests of one server."""

    def __init__(
        self, hf: Opened, desk: LocalDesk, *, is_loopback: bool, issuer: SigningIssuer | None = None
    ) -> None:
        self.hf, self.config = hf, hf.config
        self._desk = desk
        self.guard = Guard(hf.store.tokens, hf.environment, hf.config, is_loopback=is_loopback, issuer=issuer)
        self.visitors = Visitors(hf.store, self.guard, hf.environment)
        self.watch = Watch(self.guard, self.is_still_good, hf.environment)
        self.refused = RefusedRequests(hf.store.tokens, hf.environment)
        self.figures = Figures()
        self.spans = hf.caller.spans
        self.polls: dict[str, int] = {}
        """How many requests of each token wait now."""
        self.streams: dict[str, int] = {}
        """How many streams of each token are open."""
        self._looks = Looks(hf)
        self.doorway = Doorway(hf)
        self._document: bytes | None = None

    @property
    def desk(self) -> Desk:
        return self._desk

    @property
    def webhooks(self) -> LocalHookDesk:
        return self._desk.hooks

    @property
    def is_leaving(self) -> bool:
        return self._desk.leaving.is_set()

    @property
    def looks(self) -> Looks:
        return self._looks

    async def is_still_good(self, who: Identity, act: Act, headers: Mapping[str, str]) -> bool:
        """True if the token of a request that has been open for a while is still good."""
        if who.kind is Kind.LOCAL:
            return not await self.guard.has_tokens()
        try:
            if "authorization" not in headers and (found := await self.visitors.visitor(headers)) is not None:
                return found.who.may(act)
            return (await self.guard.verified(headers.get("authorization", ""), "")).may(act)
        except Refusal:
            return False
        except StoreError:
            return True  # the store cannot be asked now, and the next look may succeed

    async def demand_streams(self, who: Identity) -> None:
        """Refuse if this token has as many streams as it may have."""
        if self.streams.get(who.id, 0) >= self.config.streams_max:
            raise Refusal("throttled", f"{self.config.streams_max} streams of this token are open already")

    @contextlib.contextmanager
    def counted_stream(self, who: Identity) -> Iterator[None]:
        """Count a stream while it is open."""
        self.streams[who.id] = self.streams.get(who.id, 0) + 1
        try:
            yield
        finally:
            self.streams[who.id] -= 1
            if not self.streams[who.id]:
                del self.streams[who.id]

    def leave(self) -> None:
        """Answer everybody who waits. From now on, the server is not ready."""
        self._desk.leaving.set()
        self.watch.leave()

    def openapi(self) -> bytes:
        if self._document is None:
            self._document = msgspec.json.encode(document(ROUTES))
        return self._document

    async def metrics(self) -> str:
        return await self.figures.text(
            self.hf, self._desk, sum(self.polls.values()), sum(self.streams.values())
        )


class PathRoutes:
    """All routes of one path."""

    def __init__(self, server: Server, routes: Mapping[str, Route]) -> None:
        self._server, self._routes = server, routes
        self._names = {verb: route.name for verb, route in routes.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server, method = self._server, scope["method"]
        route = self._routes.get("GET" if method == "HEAD" else method)
        request_id = server.hf.environment.new_id()
        begun = server.hf.environment.monotonic()
        response: Response | AgentStream
        if route is None:
            found = problem("method", instance=request_id)
            response = _problem(found, request_id, allow=", ".join(sorted(self._routes)))
        elif route.is_page:
            response = await answered_page(server, route, scope, receive, request_id)
        else:
            response = await self._answered(route, scope, receive, request_id)
        name = "unknown" if route is None else self._names[route.verb]
        server.figures.served(name, response.status_code, server.hf.environment.monotonic() - begun)
        if route is not None and response.status_code >= 400 and "HX-Redirect" not in response.headers:
            via = Via.PAGE if route.is_page else Via.HTTP
            asked = f"{route.verb} {route.path}"  # not the path itself: anybody may have written it, or it is a secret
            server.refused.note(scope.get(ASKER), response.status_code, asked, via, request_id)
        await response(scope, receive, send)

    async def _answered(
        self, route: Route, scope: Scope, receive: Receive, request_id: str
    ) -> Response | AgentStream:
        who: Identity | None = None
        try:
            headers = read_headers(scope["headers"])
            if route.act is None:
                raw = await self._raw(route, receive, headers) if route.raw else None
                path = scope.get("path_params", {})
                given = await route.call(
                    Call(self._server, _NOBODY, None, {}, raw, path, headers, request=request_id)
                )
                return _response(given, request_id)
            address = scope["client"][0] if scope.get("client") else ""
            agent = self._server.doorway.agents.get(id_of(scope["path_params"].get("agent", "")) or "")
            if route.has_cookie and "authorization" not in headers:
                who = await self._server.visitors.reader(headers)
            if who is None:
                who = await self._server.guard.identify(headers, address, scope["scheme"], agent)
            scope[ASKER] = who
            who = authorised(who, route.act, headers, needs_namespace=route.needs_namespace)
            who = who.came(Via.HTTP, request_id)
            query, tags = read_query(scope["query_string"], route.query, has_tags=route.has_tags)
            body: Any = None
            if route.raw:
                body = await self._raw(route, receive, headers)
            elif route.takes is not None:
                demand_media_type(headers.get("content-type"))
                raw = await receive_body(
                    receive, headers, _most(route.size, self._server.config), self._server.config
                )
                body = read_body(raw, route.takes, self._server.config)
            call = Call(self._server, who, query, tags, body, scope.get("path_params", {}), headers, receive)
            return _response(await self._called(route, call), request_id)
        except Refusal as refusal:
            scope.setdefault(ASKER, refusal.who)
            found = refusal.problem(request_id)
        except HoldfastError as error:
            hide = "" if who is None or who.namespace is None else f"{who.namespace}//"
            found = problem_of(error, request=request_id, hide=hide)
            if found.status == 500:
                log.error("request %s: %s", request_id, error)
        except Exception:
            log.exception("request %s: %s %s", request_id, route.verb, route.path)
            found = problem("internal", instance=request_id)
        self._server.figures.refused(found.type.rpartition(":")[2])
        return _problem(found, request_id)

    async def _called(self, route: Route, call: Call) -> Given:
        """Serve a request that was let in. If it carries a trace, that is a span."""
        called = self._polled(route, call) if route.polls else route.call(call)
        spans, parent = self._server.spans, call.headers.get("traceparent")
        if spans is None or parent is None:
            return await called
        attributes = {"http.request.method": route.verb, "http.route": route.path}
        with spans.serving(parent, f"{route.verb} {route.path}", attributes) as span:
            given = await called
            span.set_attribute("http.response.status_code", given.status)
            return given

    async def _raw(self, route: Route, receive: Receive, headers: Mapping[str, str]) -> bytes:
        config = self._server.config
        return await receive_body(receive, headers, _most(route.size, config), config)

    async def _polled(self, route: Route, call: Call) -> Given:
        """Serve a request that may wait. Each token may have only a limited number of them at once."""
        polls, who = self._server.polls, call.who.id
        if polls.get(who, 0) >= self._server.config.polls_max:
            raise Refusal(
                "throttled", f"{self._server.config.polls_max} requests of this token wait here already"
            )
        assert route.act is not None
        polls[who] = polls.get(who, 0) + 1
        try:
            with self._server.watch.over(call.who, route.act, call.headers) as opened:
                return await opened.limited(route.call(call))
        finally:
            polls[who] -= 1
            if not polls[who]:
                del polls[who]


_NOBODY: Any = None
"""Routes that need no token ask for no identity."""


def make_app(server: Server) -> ASGIApp:
    paths: dict[str, dict[str, Route]] = {}
    for route in TABLE:
        paths.setdefault(route.path, {})[route.verb] = route
    tree: PathTree[PathRoutes] = PathTree()
    for path, routes in paths.items():
        tree.add(path, PathRoutes(server, routes))
    nothing = problem("unknown", "there is nothing of this name here")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found = tree.find(scope["path"])
        if found is None:  # it stands in no row of the table
            await _problem(nothing, "")(scope, receive, send)
        else:
            answer, scope["path_params"] = found
            await answer(scope, receive, send)

    return app


def _most(size: Size, config: Config) -> int:
    if size is Size.BATCH:
        return config.batch_max_bytes
    return config.payload_max_bytes + BESIDE_PAYLOAD if size is Size.PAYLOAD else config.body_max_bytes


def _response(given: Given, request_id: str) -> Response | AgentStream:
    headers = {**ALWAYS, REQUEST_HEADER: request_id, **given.headers}
    if given.status == 304:
        return Response(status_code=304, headers=headers)
    if isinstance(given.body, AgentStream):
        return given.body
    if isinstance(given.body, AsyncIterator):
        return StreamingResponse(given.body, given.status, headers, given.media_type)
    content = given.body if isinstance(given.body, bytes) else msgspec.json.encode(given.body)
    return Response(content, given.status, headers, given.media_type)


def _problem(found: Problem, request_id: str, allow: str = "") -> Response:
    headers = {**ALWAYS, **headers_of(found, allow)}
    if request_id:
        headers[REQUEST_HEADER] = request_id
    return Response(msgspec.json.encode(found), found.status, headers, MEDIA_TYPE)

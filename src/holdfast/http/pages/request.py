"""Takes the request of a browser through the same stages as any other: who asks, may they, what do they ask, the answer.
Whatever goes wrong is a page that says so."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.responses import Response
from starlette.types import Receive, Scope

from holdfast.access import Identity
from holdfast.actor import Via
from holdfast.config import Config
from holdfast.errors import Forbidden, HoldfastError
from holdfast.http.call import ASKER, Call, Given, Route, Served
from holdfast.http.pages.deeds import label
from holdfast.http.pages.page import Page, safe_path
from holdfast.http.reader import read_headers, read_query, receive_body
from holdfast.http.refusals import Refusal, headers_of, problem_of
from holdfast.http.visitors import demand_same_origin, demand_seal
from holdfast.model import DEFAULT_NAMESPACE
from holdfast.namespaces import is_namespace
from holdfast.wire.problems import problem

log = logging.getLogger("holdfast.http")

FORM = "application/x-www-form-urlencoded"
FIELDS_MAX = 1_000
AGAIN_S = 5
LIVE, PROBLEM_HEADER = "live", "Holdfast-Problem"
ALWAYS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types htmx",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""What every page is sent with. Nothing from elsewhere is loaded, nothing is framed, and text never becomes a script."""


async def answered_page(
    server: Served, route: Route, scope: Scope, receive: Receive, request_id: str
) -> Response:
    headers: Mapping[str, str] = {}
    call = Call(server, _NOBODY, None, {}, None, scope.get("path_params", {}), headers, request=request_id)
    try:
        headers = read_headers(scope["headers"])
        call = call._replace(headers=headers)
        if route.act is None:
            return _response(await route.call(await _open(route, scope, receive, call)), request_id)
        address = (scope.get("client") or ("",))[0]
        visitor = await server.visitors.identify(headers, scope["scheme"], address)
        if visitor is None:
            return _to_sign_in(route, scope, headers, call)
        scope[ASKER] = visitor.who
        call = call._replace(who=visitor.who, seal=visitor.seal)  # a refusal is said to them, too
        raw, within = _without_namespace(scope["query_string"])
        call = call._replace(who=_within(visitor.who, within).came(Via.PAGE, call.request))
        call = await _call(route, raw, receive, call)
        return _response(await route.call(call), request_id)
    except Refusal as refusal:
        scope.setdefault(ASKER, refusal.who)
        found = refusal.problem(request_id)
    except HoldfastError as error:
        who: Identity | None = call.who
        hide = "" if who is None or who.namespace is None else f"{who.namespace}//"
        found = problem_of(error, request=request_id, hide=hide)
        if found.status == 500:
            log.error("request %s: %s", request_id, error)
    except Exception:
        log.exception("request %s: %s %s", request_id, route.verb, route.path)
        found = problem("internal", instance=request_id)
    given, more = Page(call).wrong(found, label(route.path, found.place)), headers_of(found)
    if headers.get("hx-request") == LIVE and found.status < 500:
        # The page asked whether it is still true. A browser would log another status as an error of the page.
        given, more = given._replace(status=200), {**more, PROBLEM_HEADER: found.type.rpartition(":")[2]}
    elif found.status == 503 and route.verb == "GET" and "hx-request" not in headers:
        more = {
            **more,
            "Refresh": str(AGAIN_S),
        }  # there is nothing to keep, so the browser just loads it again
    return _response(given, request_id, more)


async def _call(route: Route, raw: bytes, receive: Receive, call: Call) -> Call:
    """Return the request as the functions behind pages see it."""
    assert route.act is not None
    call.who.demand(route.act)
    if route.verb == "POST":
        demand_same_origin(call.headers)
        fields = await _fields(receive, call.headers, call.server.config)
        demand_seal(fields.pop("seal", ()), call.seal)
        call = call._replace(body=fields)
    query, tags = read_query(raw, route.query, has_tags=route.has_tags)
    return call._replace(query=query, tags=tags, receive=receive)


async def _open(route: Route, scope: Scope, receive: Receive, call: Call) -> Call:
    """Return a request to what everybody may ask."""
    path = {**call.path, "scheme": scope["scheme"], "address": (scope.get("client") or ("",))[0]}
    if route.verb == "POST":
        demand_same_origin(call.headers)
        call = call._replace(body=await _fields(receive, call.headers, call.server.config))
    query, _ = read_query(scope["query_string"], route.query, has_tags=False)
    return call._replace(query=query, path=path)


def _without_namespace(raw: bytes) -> tuple[bytes, str | None]:
    parts, given = [], None
    for part in raw.split(b"&"):
        name, _, value = part.partition(b"=")
        if name == b"namespace":
            given = value.decode("latin-1")
        else:
            parts.append(part)
    return b"&".join(parts), given


def _within(who: Identity, given: str | None) -> Identity:
    """Return the identity with the namespace that the address names. Without one it is `default`, or the first of theirs."""
    if given is not None:
        if not is_namespace(given):
            raise Forbidden("this token is not for that namespace")
        return who.within(given)
    has_default = who.has_all or DEFAULT_NAMESPACE in who.namespaces
    return who.within(DEFAULT_NAMESPACE if has_default else min(who.namespaces, default=DEFAULT_NAMESPACE))


async def _fields(receive: Receive, headers: Mapping[str, str], config: Config) -> dict[str, list[str]]:
    """Return the fields of a form."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != FORM:
        raise Refusal("media-type", f"a form is sent as {FORM}", place="Content-Type")
    raw = await receive_body(receive, headers, config.payload_max_bytes * 3 + 64 * 1024, config)
    found: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=FIELDS_MAX,
        )
    except ValueError:  # no UTF-8, or too many
        raise Refusal("malformed", "the form cannot be read") from None
    for name, value in pairs:
        if "\0" in name or "\0" in value:
            raise Refusal(
                "malformed", "a text contains a NUL character, which cannot be stored", place=name[:100]
            )
        found.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return found


def _to_sign_in(route: Route, scope: Scope, headers: Mapping[str, str], call: Call) -> Response:
    """Send somebody who has not signed in to the page where they can, and back afterwards."""
    query = scope["query_string"].decode("latin-1")
    wanted = safe_path(scope["path"] + (f"?{query}" if query else ""))
    if headers.get("hx-request") == "true" and route.verb == "POST":
        found = problem("unauthenticated", "You are signed out.")
        return _response(Page(call).wrong(found), call.request)
    if headers.get("hx-request"):
        wanted = safe_path(_path_of(headers.get("hx-current-url", "")))
        target = f"/signin?next={quote(wanted, safe='')}"
        return Response(status_code=401, headers={**ALWAYS, "HX-Redirect": target})
    target = "/signin" if route.verb == "POST" else f"/signin?next={quote(wanted, safe='')}"
    return Response(status_code=303, headers={**ALWAYS, "Location": target})


def _path_of(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "/"
    return parts.path + (f"?{parts.query}" if parts.query else "")


def _response(given: Given, request_id: str, more: Mapping[str, str] = {}) -> Response:
    headers = {**ALWAYS, "Holdfast-Request": request_id, **more, **given.headers}
    headers.pop("WWW-Authenticate", None)  # a browser would ask for a password
    return Response(given.body or b"", given.status, headers, given.media_type)


_NOBODY: Any = None

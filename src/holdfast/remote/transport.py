"""One request to a server, and what its answer means. A reply that is lost, doubled or late does no harm: whatever is
sent again is known by its id, its key or its fence.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from holdfast import errors
from holdfast.access import Identity
from holdfast.access.tokens import read
from holdfast.environment import Environment
from holdfast.errors import HoldfastError, InvalidSettings, StoreUnreachable
from holdfast.wire import requests
from holdfast.wire.problems import FROM, TYPE, Problem

if TYPE_CHECKING:
    import httpx2

    from holdfast.spans import Spans

log = logging.getLogger("holdfast.remote")

T = TypeVar("T")

CONNECT_S = 5.0
ANSWER_S = 15.0
"""How long an answer may take, beyond the time for which the request itself asks the server to wait."""
TRIES, TRY_FOR_S = 4, 10.0
"""How often a request is sent again, and for how long, before its caller hears that the server is away."""
PAUSE_MIN_S, PAUSE_MAX_S = 0.1, 2.0
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
AGAIN = frozenset({429, 502, 503, 504})
"""Answers that may be different in a moment."""
NAMESPACE_HEADER, TOKEN_VARIABLE = "Holdfast-Namespace", "HOLDFAST_TOKEN"

_SIGNED = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
"""A token that an issuer has signed: three parts in base64."""

OF_PROBLEM: Mapping[str, type[HoldfastError]] = {
    name: kind for kind, name in reversed(list(FROM.items())) if kind is not HoldfastError
} | {
    "malformed": errors.InvalidInput,
    "too-large": errors.InvalidInput,
    "unknown": errors.UnknownRun,
    "unavailable": StoreUnreachable,
}
"""Which error a problem stands for: the first of those that become this problem."""


class MaybeDone(errors.WrongState):
    """The act cannot be done in this state. It was sent before without an answer, and that first request may have done
    it."""


class Reply(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str]


class Transport:
    """A connection to one server, or to a balancer before several."""

    def __init__(
        self,
        url: str,
        token: str | None,
        environment: Environment,
        *,
        client: Callable[[], httpx2.AsyncClient] | None = None,
        spans: Spans | None = None,
    ) -> None:
        """`client` makes another client than the usual one, for tests."""
        self._spans = spans
        parts = _parts(url)
        if parts is None or not parts.hostname or parts.query or parts.fragment:
            raise InvalidSettings(
                f"{url.partition('://')[0]}://{'' if parts is None else parts.hostname or ''}…: give the address of a server: "
                "https://holdfast.example"
            )
        if parts.username or parts.password:
            raise InvalidSettings(
                f"a token does not belong in an address, which others can read: set {TOKEN_VARIABLE}"
            )
        self.url, self.environment = url.rstrip("/"), environment
        self.namespace: str | None = None
        """The namespace that requests are about, if they name none. Without one, it is the namespace of the token."""
        self.shown = self.url
        token = token or os.environ.get(TOKEN_VARIABLE) or None
        if token is not None and read(token.strip()) is None and _SIGNED.fullmatch(token.strip()) is None:
            raise InvalidSettings(
                "this is no token, or a part of it is missing: it looks like hf_ROLE_ID_SECRET. `holdfast tokens create` "
                "makes one at the store"
            )
        self._token = None if token is None else token.strip()
        if self._token and parts.scheme == "http" and parts.hostname not in LOOPBACK:
            log.warning("the token goes to %s without TLS: whoever is on the way can read it", self.shown)
        self.is_usual = client is None
        """True if other processes can reach the server by its address."""
        self._make = client or self._usual
        self._client: httpx2.AsyncClient | None = None

    def _usual(self) -> httpx2.AsyncClient:
        try:
            import httpx2  # noqa: PLC0415  only who speaks to a server needs it
        except ImportError:
            raise InvalidSettings(
                "to speak to a server, this needs the extra `remote`: pip install 'holdfast[remote]'"
            ) from None
        for name in ("httpx2", "httpcore2"):
            logging.getLogger(name).setLevel(logging.WARNING)  # otherwise it logs a line for every poll
        timeout = httpx2.Timeout(ANSWER_S, connect=CONNECT_S)
        limits = httpx2.Limits(max_connections=50, keepalive_expiry=60.0)
        return httpx2.AsyncClient(timeout=timeout, limits=limits, trust_env=True)

    @property
    def client(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = self._make()
        return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def forget(self) -> None:
        """Forget the connections without closing them: they belong to the process that this one was forked from."""
        self._client = None

    def headers(self, namespace: str | None = None, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return what goes with a request: the token, and the namespace."""
        headers = dict(more or {})
        if self._token is not None:
            headers.setdefault("Authorization", f"Bearer {self._token}")
        if (meant := namespace or self.namespace) is not None:
            headers[NAMESPACE_HEADER] = meant
        return headers

    async def once(
        self,
        verb: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        namespace: str | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
    ) -> Reply:
        """Send a request once. Raise StoreUnreachable if there is no answer."""
        sent = self.headers(namespace, headers)
        content = None
        if verb == "POST":
            sent.setdefault("Content-Type", "application/json")
            content = msgspec.json.encode({} if body is None else body)
        try:
            answer = await self.client.request(
                verb,
                self.url + path,
                params=dict(query) if query else None,
                content=content,
                headers=sent,
                timeout=_timeout(wait_s),
            )
        except Exception as error:
            if not _is_transport_error(error):
                raise
            away = StoreUnreachable(
                f"the server at {self.shown} does not answer: {_why(error)}: check the address, and that the server runs"
            )
            away.maybe_done = not _is_refused(error)
            raise away from error
        return Reply(answer.status_code, answer.content, answer.headers)

    async def get(
        self,
        who: Identity,
        path: str,
        gives: type[T],
        query: Mapping[str, Any] | None = None,
        unknown: Callable[[], HoldfastError] | None = None,
        **more: Any,
    ) -> T:
        """Read something in the namespace of the identity."""
        given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        return await self.ask(
            "GET", path, gives, query=given, namespace=who.namespace, unknown=unknown, **more
        )

    async def post(
        self,
        who: Identity,
        path: str,
        gives: type[T],
        body: Any = None,
        unknown: Callable[[], HoldfastError] | None = None,
        *,
        is_traced: bool = True,
        **more: Any,
    ) -> T:
        """Change something in the namespace of the identity. The server goes on with the trace of whoever asks."""
        if self._spans is not None and is_traced:
            more["headers"] = {**(more.get("headers") or {}), **self._spans.headers()}
        return await self.ask(
            "POST",
            path,
            gives,
            body=requests.Nothing() if body is None else body,
            namespace=who.namespace,
            unknown=unknown,
            **more,
        )

    async def ask(
        self,
        verb: str,
        path: str,
        gives: type[T],
        *,
        unknown: Callable[[], HoldfastError] | None = None,
        is_repeatable: bool = True,
        **request: Any,
    ) -> T:
        """Ask, and return the answer as a struct. What can be repeated is sent again while the server is away. Raise the
        error that a problem stands for; `unknown` makes the one for what does not exist."""
        reply, tries = await self.patiently(verb, path, is_repeatable, request)
        if 200 <= reply.status < 300:
            return read_answer(reply, gives, self.shown)
        error = error_of(reply, unknown, self.shown)
        if tries > 1 and isinstance(error, errors.WrongState):
            raise MaybeDone(str(error)) from error
        raise error

    async def patiently(
        self, verb: str, path: str, is_repeatable: bool, request: dict[str, Any]
    ) -> tuple[Reply, int]:
        """Return the answer, and how often the request was sent."""
        until, pause_s = self.environment.monotonic() + TRY_FOR_S, PAUSE_MIN_S
        for number in range(1, TRIES + 1):
            is_last = not is_repeatable or number == TRIES or self.environment.monotonic() > until
            wait_s = pause_s * (0.5 + self.environment.random.random())
            try:
                reply = await self.once(verb, path, **request)
            except StoreUnreachable:
                if is_last:
                    raise
            else:
                if is_last or reply.status not in AGAIN:
                    return reply, number
                wait_s = max(wait_s, retry_after_s(reply))
            await self.environment.sleep(wait_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)
        raise AssertionError("the last try returns or raises")

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str], silence_s: float
    ) -> AsyncIterator[AsyncIterator[str]]:
        """Open a stream of server-sent events. Yields its lines. Raise StoreUnreachable if it cannot be opened, or breaks."""
        import httpx2  # noqa: PLC0415  the client has loaded it

        timeout = httpx2.Timeout(silence_s, connect=CONNECT_S)
        try:
            async with self.client.stream(
                "GET", self.url + path, headers=self.headers(None, headers), timeout=timeout
            ) as answer:
                if answer.status_code != 200:
                    body = await answer.aread()
                    raise error_of(Reply(answer.status_code, body, answer.headers), None, self.shown)
                yield answer.aiter_lines()
        except Exception as error:
            if not _is_transport_error(error):
                raise
            raise StoreUnreachable(f"the stream from {self.shown} broke: {_why(error)}") from error


def _parts(url: str) -> SplitResult | None:
    """Return the parts of an address. None if its host or its port cannot be one."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, list) else str(value)


def _timeout(wait_s: float) -> Any:
    import httpx2  # noqa: PLC0415  the client has loaded it

    return httpx2.Timeout(ANSWER_S, connect=CONNECT_S, read=ANSWER_S + wait_s)


def _is_transport_error(error: Exception) -> bool:
    import httpx2  # noqa: PLC0415  the client has loaded it

    return isinstance(error, httpx2.TransportError | httpx2.StreamError | httpx2.DecodingError | OSError)


def _is_refused(error: Exception) -> bool:
    import httpx2  # noqa: PLC0415  the client has loaded it

    return isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__


def retry_after_s(reply: Reply) -> float:
    """Return after how many seconds the server wants to be asked again."""
    given = reply.headers.get("retry-after", "")
    return min(float(given), 30.0) if given.isdigit() else 0.0


def read_answer(reply: Reply, gives: type[T], shown: str) -> T:
    """Return a good answer as a struct. Raise StoreError if it is none of ours: a proxy may answer with a page of its own."""
    try:
        return msgspec.json.decode(reply.body, type=gives)
    except (msgspec.MsgspecError, UnicodeDecodeError) as wrong:
        raise errors.StoreError(_strange(reply, shown)) from wrong


def _strange(reply: Reply, shown: str) -> str:
    return f"{shown} answered {reply.status} in a way that no Holdfast server does: check the address"


def error_of(reply: Reply, unknown: Callable[[], HoldfastError] | None, shown: str) -> HoldfastError:
    """Return the error that an answer stands for."""
    try:
        problem = msgspec.json.decode(reply.body, type=Problem)
    except msgspec.MsgspecError:
        problem = None
    if problem is None or not problem.type.startswith(TYPE):
        text = _strange(reply, shown)
        return StoreUnreachable(text) if reply.status >= 500 else errors.StoreError(text)
    name = problem.type.removeprefix(TYPE)
    if name == "unknown" and unknown is not None:
        return unknown()
    detail = problem.detail or problem.title
    if problem.next:
        detail = f"{detail}; {problem.next}"
    if name == "throttled" or (name == "gone" and not problem.error):
        return StoreUnreachable(f"{shown}: {detail}")
    if name == "unauthenticated":
        return errors.Unauthenticated(
            f"{shown} knows no such token: set {TOKEN_VARIABLE} to one that is good, as `holdfast tokens create` prints it"
        )
    kind = OF_PROBLEM.get(name, errors.StoreError)
    finer = getattr(errors, problem.error, None) if problem.error else None
    if isinstance(finer, type) and issubclass(finer, HoldfastError):
        kind = finer
    if issubclass(kind, errors.UpdateFailed | errors.RunFailed):
        return kind(detail, error_type=problem.error_type)
    if name == "internal":
        return errors.StoreError(f"{shown} has a bug: its log names the request {problem.instance}")
    try:
        return kind(detail)
    except TypeError:  # an error that needs more than a message
        return OF_PROBLEM.get(name, errors.StoreError)(detail)

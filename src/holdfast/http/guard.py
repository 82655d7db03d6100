"""Who asks: makes the identity of a request from its token, and refuses what a page in a browser must not ask. A token is
one of the store's own, or, if the settings name an issuer, one that this issuer has signed.

Without a token in the store, a server listens on this host alone, and whoever reaches it is its user. A page in that
user's browser could reach it, too, so it must then name this host (`Host`) and come from no other page (`Origin`,
`Sec-Fetch-Site`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from holdfast.access import STORE_WIDE, Act, Identity, Kind, local
from holdfast.access.grants import SignedIn
from holdfast.access.tokens import TokenText, identity_of, is_good, read, was_theirs
from holdfast.actor import user
from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import Forbidden, StoreError
from holdfast.http.reader import header
from holdfast.http.refusals import Refusal
from holdfast.model import DEFAULT_NAMESPACE
from holdfast.namespaces import is_namespace
from holdfast.store.tokens import Tokens

NAMESPACE_HEADER = "holdfast-namespace"
KNOWN_S = 1.0
"""For how long a verified token is remembered: a revoked one works on for at most this long."""
KNOWN_MAX = 10_000
USED_EVERY_S = 3600.0
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
NEEDS_NO_NAMESPACE = STORE_WIDE | {Act.KNOW_SELF}


class SigningIssuer(Protocol):
    """Who signs tokens for people here."""

    async def signed_in(self, text: str) -> SignedIn | None:
        """Return for whom this token is, if it is good. None for everything else."""


class KnownToken(NamedTuple):
    who: Identity
    until: float


class FoundToken(NamedTuple):
    who: Identity
    lasts_s: float
    is_good: bool = True
    """False if the token was theirs, and is revoked or has expired."""


class CountedAgent(Protocol):
    """An agent whose requests are counted by themselves."""

    @property
    def id(self) -> str: ...

    @property
    def token(self) -> str:
        """The id of the token by which it came."""


class Bucket:
    """How many requests somebody may still send."""

    def __init__(self, now: float, burst: int) -> None:
        self.left, self.at = float(burst), now

    def take(self, now: float, per_s: float, burst: int) -> bool:
        self.left = min(burst, self.left + (now - self.at) * per_s) - 1
        self.at = now
        if self.left >= 0:
            return True
        self.left = 0.0
        return False


class Minute:
    """Counts what somebody does in a minute."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, int]] = {}
        """By name: since when it is counted, and how often it was."""

    def count(self, name: str, now: float) -> int:
        """Count once more. Return how often it was before in this minute."""
        since, count = self._counts.get(name, (now, 0))
        if now > since + 60:
            since, count = now, 0
        if name not in self._counts and len(self._counts) >= KNOWN_MAX:
            self._counts = {one: counted for one, counted in self._counts.items() if now <= counted[0] + 60}
            if len(self._counts) >= KNOWN_MAX:
                self._counts.clear()
        self._counts[name] = since, count + 1
        return count


class Guard:
    def __init__(
        self,
        tokens: Tokens,
        environment: Environment,
        config: Config,
        *,
        is_loopback: bool,
        issuer: SigningIssuer | None = None,
    ) -> None:
        self._tokens, self._environment, self._config = tokens, environment, config
        self._issuer = issuer
        self._is_loopback = is_loopback
        """True if the server listens on this host alone."""
        self._known: dict[bytes, KnownToken] = {}
        self._has_tokens, self._looked_at = True, float("-inf")
        self._buckets: dict[str, Bucket] = {}
        self._failed, self._signed_in = Minute(), Minute()
        """Requests with bad tokens, by address. Sign-ins, by token."""
        self._used: dict[str, float] = {}
        self._user = user()

    async def identify(
        self, headers: Mapping[str, str], address: str, scheme: str, agent: CountedAgent | None = None
    ) -> Identity:
        """Return who asks. Requests are counted for each token, and for each of its agents that is known here: whoever makes up
        agents gets no more by that. Raise a refusal: one text for a token that is missing, unknown, expired or revoked."""
        given = headers.get("authorization")
        if given is None:
            if not await self.is_open():
                raise self._unauthenticated(address)
            demand_own_host(headers, scheme)
            return local(self._user)
        who = await self.verified(given, address)
        if who.kind is Kind.OIDC:
            try:
                demand_no_other_site(headers)
            except Refusal as refusal:
                refusal.who = who
                raise
        self.count(who, agent.id if agent is not None and agent.token == who.id else "")
        return who

    def count(self, who: Identity, part: str = "") -> None:
        """Count a request of a token. Raise a refusal if it has sent too many."""
        now, per_s, burst = (
            self._environment.monotonic(),
            self._config.requests_per_s,
            self._config.requests_burst,
        )
        counted = f"{who.id}/{part}"
        bucket = self._buckets.get(counted)
        if bucket is None:
            if len(self._buckets) >= KNOWN_MAX:  # a bucket that is full again need not be kept
                self._buckets = {
                    name: one for name, one in self._buckets.items() if one.at + burst / per_s > now
                }
            bucket = self._buckets[counted] = Bucket(now, burst)
        if not bucket.take(now, per_s, burst):
            refusal = Refusal("throttled", f"this token may send {per_s:g} requests a second")
            refusal.who = who
            raise refusal

    def count_sign_in(self, who: Identity) -> None:
        """Count that a token signs in. Raise a refusal if it did so too often: each time is a row in the store."""
        before = self._signed_in.count(who.id, self._environment.monotonic())
        if before >= self._config.sign_ins_per_min:
            refusal = Refusal("throttled", "this token has signed in too often: wait a minute")
            refusal.who = who
            raise refusal

    async def is_open(self) -> bool:
        """True if whoever reaches this server is its user."""
        return self._is_loopback and self._issuer is None and not await self.has_tokens()

    async def has_tokens(self) -> bool:
        """True if the store has a token, good or not. From then on, everybody needs one."""
        now = self._environment.monotonic()
        if now > self._looked_at + KNOWN_S:
            self._has_tokens = bool(await self._tokens.tokens(1))
            self._looked_at = now
        return self._has_tokens

    async def verified(self, given: str, address: str) -> Identity:
        """Return who has this token. Raise a refusal if it is not good."""
        scheme, _, text = given.partition(" ")
        text = text.strip()
        if scheme.lower() != "bearer" or not given.isascii():
            raise self._unauthenticated(address)
        mark, now = hashlib.sha256(text.encode()).digest(), self._environment.monotonic()
        known = self._known.get(mark)
        if known is not None and now < known.until:
            return known.who
        token = read(text)
        found = await (self._of_issuer(text) if token is None else self._of_store(token))
        if found is None or not found.is_good:
            self._known.pop(mark, None)
            refusal = self._unauthenticated(address)
            if found is not None and refusal.name == "unauthenticated":
                refusal.who = found.who
            raise refusal
        self._remember(mark, found.who, now + min(found.lasts_s, KNOWN_S))
        return found.who

    async def look_again(self, given: Collection[str]) -> None:
        """Look at tokens that were good a moment ago, those of the store all at once. What is remembered of them is true now."""
        texts = {one.partition(" ")[2].strip() for one in given}
        tokens = {text: token for text in sorted(texts) if (token := read(text)) is not None}
        if not tokens:
            return
        until = self._environment.monotonic() + KNOWN_S
        rows = {row.id: row for row in await self._tokens.these_tokens([one.id for one in tokens.values()])}
        now = await self._tokens.now()
        for text, token in tokens.items():
            row, mark = rows.get(token.id), hashlib.sha256(text.encode()).digest()
            self._known.pop(mark, None)
            if row is not None and is_good(token, row, now):
                self._remember(mark, identity_of(row), until)

    def _remember(self, mark: bytes, who: Identity, until: float) -> None:
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[mark] = KnownToken(who, until)

    async def _of_store(self, token: TokenText) -> FoundToken | None:
        """Return who has a token of the store, and for how long at least. None if nobody has."""
        row, now = await self._tokens.token(token.id), self._environment.monotonic()
        if not is_good(token, row, await self._tokens.now()) or row is None:
            # Only the secret shows that it is theirs: ids stand in lists and in the journal.
            return (
                None
                if row is None or not was_theirs(token, row)
                else FoundToken(identity_of(row), 0.0, False)
            )
        if now > self._used.get(row.id, float("-inf")) + USED_EVERY_S:
            self._used[row.id] = now
            with suppress(StoreError):
                await self._tokens.use_token(row.id)
        return FoundToken(identity_of(row), KNOWN_S)

    async def _of_issuer(self, text: str) -> FoundToken | None:
        """Return for whom the issuer has signed a token, and for how long it is good. None if it is not."""
        found = None if self._issuer is None else await self._issuer.signed_in(text)
        return None if found is None else FoundToken(found.who, found.until - self._environment.now())

    def _unauthenticated(self, address: str) -> Refusal:
        """Count a request with a bad token. An address that sends many gets another answer, which says nothing about
        tokens. Good tokens are not affected."""
        before = self._failed.count(address, self._environment.monotonic())
        if before >= self._config.sign_ins_per_min:
            return Refusal("throttled", "this address has sent too many requests without a good token")
        return Refusal(
            "unauthenticated",
            "send a good token: Authorization: Bearer hf_…",
            next="`holdfast tokens create` makes one at the store",
        )


def authorised(
    who: Identity, act: Act, headers: Mapping[str, str], *, needs_namespace: bool = True
) -> Identity:
    """Return the identity with the namespace of the request. Raise unless its role may do this, whatever exists."""
    who.demand(act)
    given = header(headers, NAMESPACE_HEADER)
    if given is not None:
        if not is_namespace(given):
            raise Forbidden("this token is not for that namespace")
        return who.within(given)
    if who.kind is Kind.LOCAL:
        return who.within(DEFAULT_NAMESPACE)
    if len(who.namespaces) == 1 and not who.has_all:
        return who.within(next(iter(who.namespaces)))
    if act in NEEDS_NO_NAMESPACE or (who.has_all and not needs_namespace):
        return who
    raise Refusal(
        "invalid",
        "this token is for several namespaces: name one by the header Holdfast-Namespace",
        place="Holdfast-Namespace",
    )


def demand_own_host(headers: Mapping[str, str], scheme: str) -> None:
    """Refuse what a page of somebody else could send: its owner can let its name lead to this host, and then its
    scripts can ask here."""
    host = headers.get("host", "")
    if _name(f"//{host}") not in LOOPBACK:
        raise Refusal(
            "forbidden",
            "while no token exists, this server answers to localhost only",
            next="make a token with `holdfast tokens create`",
            place="Host",
        )
    origin = headers.get("origin")
    if origin is not None and origin != f"{scheme}://{host}":
        raise Refusal("forbidden", "a page of another origin may not ask this server", place="Origin")
    if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
        raise Refusal("forbidden", "a page of another site may not ask this server", place="Sec-Fetch-Site")


def demand_no_other_site(headers: Mapping[str, str]) -> None:
    """Refuse what a page of another site sends. A proxy may add the token of whoever sits before the browser to whatever the
    browser sends, as a browser adds its cookies."""
    origin, host = headers.get("origin"), headers.get("host", "")
    if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
        raise Refusal("forbidden", "a page of another site may not ask this server", place="Sec-Fetch-Site")
    if origin is not None and place_of(origin) != host:
        raise Refusal("forbidden", "a page of another origin may not ask this server", place="Origin")


def place_of(origin: str) -> str | None:
    """Return the host and port of an origin. None if the text is no origin."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None

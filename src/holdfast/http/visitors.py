"""People in a browser: they sign in with a token, once, and a cookie says who they are from then on.

The cookie is a secret of a session, whose row the store has: it can be ended, and it ends with its token. A page of
somebody else cannot use it: the cookie is sent with links only (`SameSite=Lax`), nothing changes by a link, and a form must
come from a page of this server (`Origin`) and send along a seal that only such a page knows.

A proxy before the server may sign people in instead, and send their token with each request. Then there is no cookie of
ours, and all the rest is the same.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.access import Identity, local
from holdfast.access.signed_texts import digest
from holdfast.access.tokens import identity_of, read
from holdfast.actor import user
from holdfast.environment import Environment
from holdfast.http.guard import KNOWN_MAX, KNOWN_S, Guard, demand_own_host, place_of
from holdfast.http.refusals import Refusal
from holdfast.store.store import Store

COOKIE, HOST_COOKIE = "holdfast", "__Host-holdfast"
"""The name of the cookie, without and with TLS. A browser takes the second one from this host alone, and sends it to
nobody else."""
LASTS_S = 12 * 3600.0
SECRET_BYTES = 32


class Visitor(NamedTuple):
    who: Identity
    seal: str


class Visitors:
    def __init__(self, store: Store, guard: Guard, environment: Environment) -> None:
        self._sessions, self._tokens, self._guard = store.sessions, store.tokens, guard
        self._signing_keys, self._environment = store.signing_keys, environment
        self._keys: dict[str, bytes] = {}
        self._known: dict[bytes, tuple[Identity, float]] = {}
        self._own = environment.secret(SECRET_BYTES).hex()
        """What seals are made of while no token exists."""
        self._user = user()

    async def identify(self, headers: Mapping[str, str], scheme: str, address: str) -> Visitor | None:
        """Return who looks at a page. None: nobody has signed in. Raise a refusal if a proxy sends a token that is not
        good."""
        given = headers.get("authorization", "")
        if given[:7].lower() == "bearer ":  # another scheme is the proxy's own
            who = await self._guard.verified(given, address)
            self._guard.count(who)
            return Visitor(who, await self._seal_of(who))
        if await self._guard.is_open():
            mode, target = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
            if (mode, target) == ("navigate", "document") and "origin" not in headers:
                # Somebody followed a link to a page, maybe from another site: that changes nothing.
                headers = {name: value for name, value in headers.items() if name != "sec-fetch-site"}
            demand_own_host(headers, scheme)
            return Visitor(local(self._user), _seal(self._own))
        found = await self.visitor(headers)
        if found is not None:
            self._guard.count(found.who)
        return found

    async def visitor(self, headers: Mapping[str, str]) -> Visitor | None:
        """Return whose cookie this is. None if there is none that is good."""
        secret = _cookie(headers)
        if secret is None:
            return None
        digest, now = _digest(secret), self._environment.monotonic()
        known = self._known.get(digest)
        if known is None or now > known[1]:
            self._known.pop(digest, None)
            who = await self._verified(digest)
            if who is None:
                return None
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            known = self._known[digest] = who, now + KNOWN_S
        return Visitor(known[0], _seal(secret))

    async def reader(self, headers: Mapping[str, str]) -> Identity | None:
        """Return who reads, by a script of a page of this server. None if nobody has signed in."""
        found = await self.visitor(headers)
        if found is None:
            return None
        demand_same_origin(headers, is_read=True)
        self._guard.count(found.who)
        return found.who

    async def _seal_of(self, who: Identity) -> str:
        """Return the seal for the forms of somebody whom a proxy signs in. Every server of the store makes the same
        one."""
        if not self._keys:
            self._keys = await self._signing_keys.certain_keys(self._environment.secret(SECRET_BYTES))
        key = next(iter(self._keys.values()))
        return digest(key, "seal", who.id.encode()).hex()

    def forget(self) -> None:
        """Forget what is remembered about sessions, which is good for a second."""
        self._known.clear()

    async def _verified(self, digest: bytes) -> Identity | None:
        session = await self._sessions.session(digest)
        row = None if session is None else await self._tokens.token(session.token)
        if session is None or row is None or row.revoked_at is not None:
            return None
        now = await self._tokens.now()
        if row.expires_at is not None and row.expires_at <= now:
            return None
        is_current = hmac.compare_digest(session.token_digest, row.digest)
        is_old = row.old_digest is not None and hmac.compare_digest(session.token_digest, row.old_digest)
        if not is_current and not (is_old and row.old_until is not None and now < row.old_until):
            return None  # the token has another secret now
        return identity_of(row)

    async def sign_in(self, text: str, address: str, headers: Mapping[str, str], scheme: str) -> str:
        """Return the header that sets the cookie. Raise a refusal if the token is not good."""
        token = read(text.strip())
        who = await self._guard.verified(f"Bearer {text.strip() if token is not None else ''}", address)
        assert token is not None
        self._guard.count_sign_in(who)
        secret = base64.urlsafe_b64encode(self._environment.secret(SECRET_BYTES)).decode().rstrip("=")
        await self._sessions.add_session(_digest(secret), who.id, token.digest, LASTS_S)
        # A proxy in front may speak TLS: the page says so by its origin.
        is_tls = scheme == "https" or headers.get("origin", "").startswith("https://")
        return _set_cookie(is_tls, secret, int(LASTS_S))

    async def sign_out(self, headers: Mapping[str, str], scheme: str) -> str:
        """End the session, and return the header that removes the cookie."""
        secret = _cookie(headers)
        if secret is not None:
            self._known.pop(_digest(secret), None)
            await self._sessions.end_session(_digest(secret))
        is_tls = scheme == "https" or headers.get("origin", "").startswith("https://")
        return _set_cookie(is_tls, "", 0)


def demand_same_origin(headers: Mapping[str, str], *, is_read: bool = False) -> None:
    """Refuse what a page of another origin sends. Browsers say with each form where it comes from."""
    site, origin, host = headers.get("sec-fetch-site"), headers.get("origin"), headers.get("host", "")
    if site is not None and site != "same-origin" and not (is_read and site == "none"):
        raise Refusal("forbidden", "a page of another site may not ask this server", place="Sec-Fetch-Site")
    if origin is None and is_read:
        return
    if origin is None or place_of(origin) != host:
        raise Refusal("forbidden", "a form must come from a page of this server", place="Origin")


def demand_seal(given: Sequence[str], seal: str) -> None:
    """Refuse a form without the seal of the session. A form that was refused has two: its own, and the one that the answer gave
    it."""
    if not any(hmac.compare_digest(one.encode(), seal.encode()) for one in given):
        raise Refusal(
            "forbidden",
            "this form is not of the session that you are in now; nothing was done",
            next="look at it again, and send it once more",
            place="seal",
        )


def _cookie(headers: Mapping[str, str]) -> str | None:
    found: dict[str, str] = {}
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        found.setdefault(name, value)
    return found.get(HOST_COOKIE) or found.get(COOKIE) or None


def _set_cookie(is_tls: bool, value: str, lasts_s: int) -> str:
    name = HOST_COOKIE if is_tls else COOKIE
    secure = "; Secure" if is_tls else ""
    return f"{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={lasts_s}{secure}"


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _seal(secret: str) -> str:
    return hmac.new(secret.encode(), b"seal", hashlib.sha256).hexdigest()[:32]

"""Tokens that an issuer has signed (OpenID Connect), beside those of the store.

The issuer is fixed by the settings, and so is where its keys come from: nothing in a token says which key or which address
to use. Its keys are kept, asked for again at most once a minute, and good for a day while the issuer is away.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import jwt
import msgspec
from jwt.algorithms import AllowedPublicKeys
from jwt.exceptions import PyJWTError

from holdfast.access.grants import OidcSettings, SignedIn, signed_in
from holdfast.environment import Environment
from holdfast.errors import InvalidSettings
from holdfast.outbound import LOOPBACK, NotReached, Target, fetched, networks, target_of, tls_context
from holdfast.settings import checked_settings, read_settings

log = logging.getLogger("holdfast.http")

ALGORITHMS = ("RS256", "ES256", "EdDSA")
OF_KEYS = {("RSA", None): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}
"""By the type and the curve of a key, the only algorithm it is used with."""
NEVER = frozenset({"jku", "jwk", "x5u", "x5c", "crit", "b64", "zip", "enc"})
"""Members of a token's header that would choose the key, or change how the token is read."""
TYPES = frozenset({None, "JWT", "jwt", "at+jwt", "application/at+jwt"})
RSA_BITS_MIN = 2048
TOKEN_MAX, ANSWER_MAX, KEYS_MAX = 16 * 1024, 512 * 1024, 100
ASK_EVERY_S = 60.0
FRESH_S = 600.0
"""Keys older than this are asked for again, so that one that the issuer has taken away is refused soon."""
KEPT_S = 86_400.0
"""For how long keys stay good while the issuer does not answer."""
DISCOVERY = "/.well-known/openid-configuration"


class IssuerKey(NamedTuple):
    id: str | None
    algorithm: str
    public: AllowedPublicKeys


def load_oidc(path: str) -> OidcSettings:
    """Return the table `[oidc]` of a settings file. Raise InvalidSettings if there is none, or it cannot be used."""
    found = read_settings(Path(path))
    if not isinstance(found, dict) or not isinstance(found.get("oidc"), dict):
        raise InvalidSettings(
            f"{path}: there is no table [oidc]: write the issuer, the audience and grants there"
        )
    settings = checked_settings(found["oidc"], OidcSettings, f"{path}: oidc")
    settings.demand_sound(f"{path}: oidc")
    return settings


class Issuer:
    """Who signs tokens for people here."""

    def __init__(self, settings: OidcSettings, environment: Environment) -> None:
        self.settings, self._environment = settings, environment
        self._keys = Keys(settings, environment)

    async def signed_in(self, text: str) -> SignedIn | None:
        """Return for whom this token is, if the issuer has signed it and it is good now. None for everything else."""
        head = _head(text)
        if head is None:
            return None
        key = await self._keys.find(head.get("kid"), head["alg"])
        if key is None:
            return None
        try:
            claims: dict[str, Any] = jwt.decode(
                text,
                key.public,
                algorithms=[key.algorithm],
                audience=self.settings.audience,
                issuer=self.settings.issuer,
                # By our own clock, and with all the rest of the claims.
                options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
            )
            return signed_in(claims, self.settings, self._environment.now())
        except (PyJWTError, ValueError, TypeError, RecursionError):
            return None

    async def close(self) -> None:
        await self._keys.close()


def _head(text: str) -> dict[str, Any] | None:
    """Return the header of a token that may be looked at further. None otherwise."""
    if len(text) > TOKEN_MAX or text.count(".") != 2:
        return None
    part = text.partition(".")[0]
    try:
        head = msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (msgspec.DecodeError, binascii.Error, ValueError, RecursionError):
        return None
    if not isinstance(head, dict) or NEVER & head.keys() or head.get("alg") not in ALGORITHMS:
        return None
    if not isinstance(head.get("kid"), str | None) or head.get("typ") not in TYPES:
        return None
    return head


class Keys:
    """The issuer's keys, as it last gave them."""

    def __init__(self, settings: OidcSettings, environment: Environment) -> None:
        self._settings, self._environment = settings, environment
        self._allowed = _networks(settings)
        self._tls = tls_context("oidc", settings.ca_file)
        self._known: list[IssuerKey] = []
        self._known_at = self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        if settings.keys_url is None:
            self._target(settings.issuer.rstrip("/") + DISCOVERY)
        else:
            self._target(settings.keys_url)

    async def find(self, id: str | None, algorithm: str) -> IssuerKey | None:
        """Return the key of this id. One that is not known may be new: the issuer is asked, at most once a minute."""
        now = self._environment.monotonic()
        if now > self._known_at + FRESH_S:
            self._ask(now)
        found = self._found(id, algorithm, now)
        if found is None:
            self._ask(now)
            if self._asking is not None:
                await asyncio.shield(self._asking)
            found = self._found(id, algorithm, self._environment.monotonic())
        return found

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def _found(self, id: str | None, algorithm: str, now: float) -> IssuerKey | None:
        if now > self._known_at + KEPT_S:
            return None
        fitting = [one for one in self._known if one.algorithm == algorithm and (id is None or one.id == id)]
        # Without an id, it must be clear which key is meant.
        return fitting[0] if fitting and (id is not None or len(fitting) == 1) else None

    def _ask(self, now: float) -> None:
        """Ask the issuer for its keys, unless somebody does so now or did so a moment ago."""
        if (self._asking is None or self._asking.done()) and now >= self._asked_at + ASK_EVERY_S:
            self._asked_at = now
            self._asking = asyncio.create_task(self._learn(), name="holdfast-oidc")

    async def _learn(self) -> None:
        try:
            url = self._settings.keys_url or await self._discovered()
            found = msgspec.json.decode(await self._fetched(url), type=dict[str, Any])
            keys = found.get("keys")
            known = [key for one in keys[:KEYS_MAX] if (key := _key(one))] if isinstance(keys, list) else []
            if not known:
                raise NotReached("it names no key that can be used")
        except (NotReached, InvalidSettings, msgspec.MsgspecError) as error:
            log.warning("the keys of %s cannot be learned: %s", self._settings.issuer, error)
            return
        self._known, self._known_at = known, self._environment.monotonic()

    async def _discovered(self) -> str:
        raw = await self._fetched(self._settings.issuer.rstrip("/") + DISCOVERY)
        found = msgspec.json.decode(raw, type=dict[str, Any])
        if found.get("issuer") != self._settings.issuer:
            raise NotReached("it says that it is another issuer")
        return str(found.get("jwks_uri"))

    async def _fetched(self, url: str) -> bytes:
        target = self._target(url)
        tls = self._tls if target.is_tls else None
        return await fetched(target, self._allowed, tls, most=ANSWER_MAX, timeout_s=self._settings.timeout_s)

    def _target(self, url: str) -> Target:
        """Return where to ask. Only an address on this host itself may be without TLS."""
        if urlsplit(url).scheme != "https" and urlsplit(url).hostname not in LOOPBACK:
            raise InvalidSettings("oidc: the issuer and its keys need addresses that begin with https://")
        return target_of(url, "oidc")


def _networks(settings: OidcSettings) -> Any:
    try:
        return networks(settings.allow)
    except ValueError as error:
        raise InvalidSettings(f"oidc: allow: {error}") from None


def _key(given: object) -> IssuerKey | None:
    """Return a public key of a kind that we use. None for all others."""
    if not isinstance(given, dict) or "d" in given or given.get("use", "sig") != "sig":
        return None
    try:
        algorithm = OF_KEYS.get((str(given.get("kty")), given.get("crv")))
        name = given.get("kid")
        if algorithm is None or given.get("alg", algorithm) != algorithm or not isinstance(name, str | None):
            return None
        public = jwt.PyJWK.from_dict(given, algorithm=algorithm).key
    except (PyJWTError, ValueError, TypeError):
        return None
    if algorithm == "RS256" and public.key_size < RSA_BITS_MIN:
        return None
    return IssuerKey(name, algorithm, public)

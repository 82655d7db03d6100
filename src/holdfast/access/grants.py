"""What grants give to whoever has a token of somebody else (OpenID Connect). A table in the settings says it: the claims of the
token in, an identity out. Pure.

The signature has been checked by whoever asks this. Each reason to refuse is the same None, so nobody learns which one it
was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from holdfast.access.identity import Identity, Kind
from holdfast.access.roles import Role
from holdfast.access.tokens import namespaces, narrowed
from holdfast.errors import InvalidInput, InvalidSettings
from holdfast.model import DEFAULT_NAMESPACE
from holdfast.questions import PERSON, TEAM, is_who

SUBJECT_MAX, NAME_MAX = 255, 100
LEEWAY_MAX_S = 300.0
EMAIL = "email"

Claims = Mapping[str, Any]


class Grant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody gets whose claims fit."""

    when: dict[str, str | tuple[str, ...]] = {}
    """By the name of a claim, the value that it must have, or one of several. A claim with a list must contain it."""
    role: Role
    namespaces: tuple[str, ...] = (DEFAULT_NAMESPACE,)
    can: tuple[str, ...] = ()
    payloads: bool = True

    def fits(self, claims: Claims) -> bool:
        return all(
            set(_values(claims, name)) & ({wanted} if isinstance(wanted, str) else set(wanted))
            for name, wanted in self.when.items()
        )


class OidcSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[oidc]` of a settings file."""

    issuer: str
    audience: str
    grants: tuple[Grant, ...]
    """The first that fits decides. A token that fits none of them is not good here."""
    keys_url: str | None = None
    """Where the issuer's keys are. Without it, the issuer is asked."""
    name: str = "preferred_username"
    """The claim that the journal calls somebody by, beside the subject."""
    person: str | None = None
    """The claim that says which person it is: `person:VALUE`. Without it, nobody is a person."""
    groups: str = "groups"
    """The claim with somebody's groups."""
    teams: dict[str, str] = {}
    """By the name of a group, the team that its members are in."""
    allow: tuple[str, ...] = ()
    """Networks that are not public and in which the issuer may be all the same: ["10.1.0.0/16"]."""
    ca_file: str | None = None
    timeout_s: float = 10.0
    leeway_s: float = 10.0
    """By how much the clocks of the issuer and of the server may differ."""

    def demand_sound(self, where: str) -> None:
        """Raise InvalidSettings for what could never work, or would mean something else than it says."""
        if not self.audience or not self.issuer or "#" in self.issuer or "?" in self.issuer:
            raise InvalidSettings(f"{where}: `issuer` is an address without ? and #, and `audience` a text")
        if not self.grants:
            raise InvalidSettings(f"{where}: without a grant nobody gets in: write [[oidc.grants]]")
        if not 0 <= self.leeway_s <= LEEWAY_MAX_S or not 0 < self.timeout_s <= LEEWAY_MAX_S:
            raise InvalidSettings(f"{where}: leeway_s and timeout_s must be between 0 and {LEEWAY_MAX_S:g}")
        for group, team in self.teams.items():
            if not is_who(TEAM + team):
                raise InvalidSettings(f"{where}: teams: {group!r}: {team!r} cannot be the name of a team")
        for number, grant in enumerate(self.grants):
            try:
                namespaces(grant.namespaces)
                narrowed(grant.can)
            except InvalidInput as wrong:
                raise InvalidSettings(f"{where}: grants[{number}]: {wrong}") from None
            if not grant.namespaces:
                raise InvalidSettings(f"{where}: grants[{number}]: name a namespace")
            if grant.role is Role.ANSWERER and self.person is None:
                raise InvalidSettings(
                    f"{where}: grants[{number}]: who answers is a person: say by `person` which claim names them"
                )


class SignedIn(NamedTuple):
    """Somebody for whom an issuer has signed a token, and until when."""

    who: Identity
    until: float


def signed_in(claims: Claims, settings: OidcSettings, now: float) -> SignedIn | None:
    """Return whom these claims are about. None if they are not for us, not for now, or give nothing here."""
    until = _number(claims.get("exp"))
    begins = _number(claims["nbf"]) if "nbf" in claims else -math.inf
    if until is None or begins is None:
        return None
    if not begins - settings.leeway_s <= now < until + settings.leeway_s:
        return None
    subject = claims.get("sub")
    if claims.get("iss") != settings.issuer or settings.audience not in _values(claims, "aud"):
        return None
    if not isinstance(subject, str) or not 1 <= len(subject) <= SUBJECT_MAX or not subject.isprintable():
        return None
    grant = next((one for one in settings.grants if one.fits(claims)), None)
    if grant is None:
        return None
    person = _person(claims, settings)
    if grant.role is Role.ANSWERER and person is None:
        return None
    teams = {TEAM + settings.teams[one] for one in _values(claims, settings.groups) if one in settings.teams}
    who = Identity(
        Kind.OIDC,
        f"{settings.issuer}#{subject}",
        _name(claims, settings.name, subject),
        grant.role,
        frozenset(grant.namespaces),
        can=grant.can,
        payloads=grant.payloads,
        who=(*(() if person is None else (person,)), *sorted(teams)),
    )
    return SignedIn(who, until + settings.leeway_s)


def _person(claims: Claims, settings: OidcSettings) -> str | None:
    """Return the person. An address that the issuer has not verified is anybody's claim."""
    if settings.person is None or (settings.person == EMAIL and claims.get("email_verified") is not True):
        return None
    found = _values(claims, settings.person)
    return PERSON + found[0] if len(found) == 1 and is_who(PERSON + found[0]) else None


def _name(claims: Claims, claim: str, subject: str) -> str:
    found = _values(claims, claim)
    is_good = len(found) == 1 and 1 <= len(found[0]) <= NAME_MAX and found[0].isprintable()
    return found[0] if is_good else subject


def _values(claims: Claims, name: str) -> list[str]:
    """Return the texts of a claim. Its name is that of a member, or leads into members with dots: `realm_access.roles`."""
    found: Any = claims
    if name in claims:
        found = claims[name]
    else:
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    many = found if isinstance(found, list) else [found]
    return [one for one in many if isinstance(one, str)]


def _number(value: object) -> float | None:
    """Return a time. A truth value is none, though Python counts with it."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        number = float(value) if is_number else math.nan  # type: ignore[arg-type]
    except OverflowError:
        return None
    return number if math.isfinite(number) else None

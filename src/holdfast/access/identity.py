"""Who asks: one frozen value for each request, which the desk gets with each act."""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec

from holdfast.access.roles import MAY, STORE_WIDE, Act, Role
from holdfast.actor import Actor, Via
from holdfast.errors import Forbidden
from holdfast.namespaces import ALL

ALL_NAMESPACES = ALL
WORKFLOWS = "workflows:"
"""`can workflows:shop.*` narrows a token to the workflows whose names fit the pattern."""
EVENTS = "events:"
"""`can events:order.*` narrows a token to sending events of these types."""
STEPS, LABELS = "steps:", "labels:"
"""`can steps:billing.*` and `can labels:gpu` narrow the token of an agent to these steps and labels."""


class Kind(StrEnum):
    LOCAL = "local"
    """A program that reaches the store itself, or a person at the host while no token exists."""
    TOKEN = "token"  # noqa: S105  a kind, not a secret
    OIDC = "oidc"
    """Somebody for whom an issuer has signed a token."""


class Identity(msgspec.Struct, frozen=True):
    kind: Kind
    id: str
    """The token's id, or the issuer and its subject: `https://login.example#42`. Empty for a local one."""
    name: str
    role: Role
    namespaces: frozenset[str]
    namespace: str | None = None
    """The namespace of this request. None means the whole store: then ids are those that the store has."""
    can: tuple[str, ...] = ()
    payloads: bool = True
    """False if it must not see inputs, results and logs."""
    who: tuple[str, ...] = ()
    """The person who asks, and their teams: `person:anna`, `team:finance`."""
    via: str = ""
    """By which way it came, and in which request, for the journal. Whoever lets it in says so."""
    request: str = ""

    @property
    def actor(self) -> Actor:
        """Who it is, for the journal."""
        if self.kind is Kind.LOCAL:
            return Actor(self.name, self.via, self.request)
        name = f"{self.name} ({self.id[:8] if self.kind is Kind.TOKEN else self.id})"
        return Actor(name, self.via, self.request)

    @property
    def person(self) -> str | None:
        """Which person this is. None if nobody has said so."""
        return next((one for one in self.who if one.startswith("person:")), None)

    @property
    def has_all(self) -> bool:
        return ALL_NAMESPACES in self.namespaces

    def may(self, act: Act) -> bool:
        return self.kind is Kind.LOCAL or (self.role in MAY[act] and (act not in STORE_WIDE or self.has_all))

    def demand(self, act: Act) -> None:
        """Raise Forbidden unless this identity may do this. What exists plays no part in it."""
        if self.kind is Kind.LOCAL:
            return
        if self.role not in MAY[act]:
            roles = ", ".join(sorted(MAY[act]))
            raise Forbidden(f"the role {self.role} may not do this: it needs one of {roles}")
        if act in STORE_WIDE and not self.has_all:
            raise Forbidden(
                "this is about the whole store, and this token is for some namespaces only: "
                "it needs a token made with --namespace '*'"
            )

    def sees(self, namespace: str) -> bool:
        """True if something in this namespace may be shown to this identity in this request."""
        return self.namespace is None or self.namespace == namespace

    def within(self, namespace: str | None) -> Identity:
        """Return this identity with the namespace of one request. Raise Forbidden if it does not have that one."""
        if namespace is not None and not self.has_all and namespace not in self.namespaces:
            raise Forbidden("this token is not for that namespace")
        return msgspec.structs.replace(self, namespace=namespace)

    def came(self, via: Via, request: str = "") -> Identity:
        """Return this identity with the way by which it came, and the id of its request."""
        return msgspec.structs.replace(self, via=via, request=request)

    def may_work(self, step: str) -> bool:
        """True if nothing narrows this identity to other steps."""
        return self._fits(STEPS, step)

    def has_label(self, label: str) -> bool:
        """True if nothing narrows this identity to other labels."""
        return self._fits(LABELS, label)

    def may_start(self, workflow: str) -> bool:
        """True if nothing narrows this identity to other workflows."""
        return self._fits(WORKFLOWS, workflow)

    def may_emit(self, type: str) -> bool:
        """True if nothing narrows this identity to events of other types."""
        return self._fits(EVENTS, type)

    @property
    def is_for_events(self) -> bool:
        """True if this identity is narrowed to some events: then it may send these, whatever they start."""
        return any(one.startswith(EVENTS) for one in self.can)

    def _fits(self, kind: str, name: str) -> bool:
        patterns = [one.removeprefix(kind) for one in self.can if one.startswith(kind)]
        return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def local(name: str, namespace: str | None = None, via: Via = Via.PYTHON) -> Identity:
    """Return the identity of a program or person that reaches the store itself, in this namespace or in all."""
    return Identity(Kind.LOCAL, "", name, Role.ADMIN, frozenset({ALL_NAMESPACES}), namespace, via=via)

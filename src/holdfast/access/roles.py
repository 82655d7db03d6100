"""Which role may do what. This table is asked by the server before it reads a request, and by the desk for each act."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Role(StrEnum):
    """The role of a token."""

    VIEWER = "viewer"
    STARTER = "starter"
    OPERATOR = "operator"
    ANSWERER = "answerer"
    AGENT = "agent"
    ADMIN = "admin"


class Act(StrEnum):
    """What somebody asks for."""

    KNOW_SELF = "know self"
    """Who am I."""
    START = "start"
    """Start runs, send signals, call updates."""
    FOLLOW = "follow"
    """Read one run by its id: its state and its result."""
    READ = "read"
    """List runs, and read their parts."""
    STEER = "steer"
    """Cancel, hold, release, retry, skip, fork a run."""
    READ_WORKFLOWS = "read workflows"
    READ_STORE = "read store"
    """Read what is in no namespace: metrics."""
    STEER_STORE = "steer store"
    """Change what is in no namespace: hold everything."""
    AUDIT = "audit"
    """Read the journal."""
    ADMINISTER = "administer"
    """Make, rotate and revoke tokens."""
    SEE_ASKS = "see asks"
    """List asks, and read one. Answerers see those that they are asked."""
    ANSWER = "answer"
    """Answer an ask, or hand it over."""
    WORK = "work"
    """Claim steps and report what became of them."""


_READERS = frozenset({Role.VIEWER, Role.OPERATOR, Role.ADMIN})
_STARTERS = frozenset({Role.STARTER, Role.OPERATOR, Role.ADMIN})
_OPERATORS = frozenset({Role.OPERATOR, Role.ADMIN})

MAY: Mapping[Act, frozenset[Role]] = {
    Act.KNOW_SELF: frozenset(Role),
    Act.START: _STARTERS,
    Act.FOLLOW: _READERS | _STARTERS,
    Act.READ: _READERS,
    Act.STEER: _OPERATORS,
    Act.READ_WORKFLOWS: _READERS | _STARTERS,
    Act.READ_STORE: _READERS,
    Act.STEER_STORE: _OPERATORS,
    Act.AUDIT: frozenset({Role.ADMIN}),
    Act.ADMINISTER: frozenset({Role.ADMIN}),
    Act.SEE_ASKS: _READERS | {Role.ANSWERER},
    Act.ANSWER: frozenset({Role.ANSWERER, Role.ADMIN}),
    Act.WORK: frozenset({Role.AGENT}),
}
"""For each act, the roles that may do it."""

STORE_WIDE = frozenset({Act.READ_STORE, Act.STEER_STORE, Act.ADMINISTER})
"""Acts about the whole store. They need a token for all namespaces."""

"""Who acts, for the journal: a name, by which way they came, and in which request."""

from __future__ import annotations

import getpass
from enum import StrEnum


class Via(StrEnum):
    """By which way somebody came to act."""

    PYTHON = "python"
    """A program that reaches the store itself."""
    CLI = "cli"
    """A command that reaches the store itself. Through a server, a command is `http` like every client."""
    HTTP = "http"
    PAGE = "page"
    """A page of the dashboard."""
    LINK = "link"
    """A signed address, which is all that its holder has: of an ask, or of a callback."""
    HOOK = "hook"
    """A webhook."""


class Actor(str):
    """A name that also knows by which way its bearer came, and the id of the request. Wherever only the name counts, this is
    a text like any other; the journal writes down all of it."""

    __slots__ = ("request", "via")
    via: str | None
    request: str | None

    def __new__(cls, name: str, via: str | None = None, request: str | None = None) -> Actor:
        made = super().__new__(cls, name)
        made.via, made.request = via or None, request or None
        return made


Entry = tuple[str, str, str | None, int | None, str, str | None, str | None]


def entry(actor: str, verb: str, run_id: str | None, n: int | None, note: str) -> Entry:
    """Return a row of the journal. A role of Holdfast that acts by itself has only a name: it came by no way."""
    return (actor, verb, run_id, n, note, *way(actor))


def way(actor: str) -> tuple[str | None, str | None]:
    """Return by which way somebody came, and the id of the request."""
    return (actor.via, actor.request) if isinstance(actor, Actor) else (None, None)


def user() -> str:
    """Return the name of this process's user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"

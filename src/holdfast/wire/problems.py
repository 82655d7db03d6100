"""Problems: RFC 9457. One table says which error is which problem, for both ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from holdfast import errors

TYPE = "urn:holdfast:problem:"
MEDIA_TYPE = "application/problem+json"


class Kind(NamedTuple):
    """A kind of problem."""

    status: int
    title: str


KINDS: Mapping[str, Kind] = {
    "malformed": Kind(400, "The request cannot be read"),
    "unauthenticated": Kind(401, "This needs a token that is good"),
    "forbidden": Kind(403, "This token may not do this"),
    "unknown": Kind(404, "There is no such thing"),
    "method": Kind(405, "This address has no such method"),
    "conflict": Kind(409, "The same id or key was used for something else"),
    "wrong-state": Kind(409, "This cannot be done in this state"),
    "update-failed": Kind(409, "The update ended in an error"),
    "refused": Kind(409, "The run refused the update, and nothing changed"),
    "gone": Kind(410, "It is too late: this is over"),
    "too-large": Kind(413, "The request is too large"),
    "media-type": Kind(415, "The content type is not the one of this route"),
    "invalid": Kind(422, "A value does not fit"),
    "upgrade": Kind(426, "The agent speaks no protocol that this server speaks"),
    "throttled": Kind(429, "There are too many requests"),
    "internal": Kind(500, "This is a bug of the server"),
    "unavailable": Kind(503, "The store or the server cannot answer now"),
    "store-full": Kind(507, "The store cannot write"),
}

FROM: Mapping[type[errors.HoldfastError], str] = {
    errors.Unauthenticated: "unauthenticated",
    errors.Forbidden: "forbidden",
    errors.UnknownRun: "unknown",
    errors.UnknownSchedule: "unknown",
    errors.UnknownEvent: "unknown",
    errors.UnknownOccasion: "unknown",
    errors.UnknownHook: "unknown",
    errors.UnknownAsk: "unknown",
    errors.UnknownCallback: "unknown",
    errors.Gone: "gone",
    errors.UnknownLimit: "unknown",
    errors.LimitReached: "conflict",
    errors.UnknownWorkflow: "unknown",
    errors.InvalidInput: "invalid",
    errors.UnknownStep: "invalid",
    errors.UnknownSignal: "invalid",
    errors.UnknownUpdate: "invalid",
    errors.UnknownValue: "unknown",
    errors.UnknownAct: "unknown",
    errors.Conflict: "conflict",
    errors.WrongState: "wrong-state",
    errors.UpdateFailed: "update-failed",
    errors.Refused: "refused",
    errors.StoreUnreachable: "unavailable",
    errors.StoreGone: "unavailable",
    errors.LeaseLost: "unavailable",
    errors.StoreFull: "store-full",
    errors.StoreSealed: "wrong-state",
    errors.HoldfastError: "invalid",
}
"""Which problem an error is: that of the first of its classes, in the order of its bases. The first error of a problem is the
one that it stands for if it names no other."""


def kind_of(error: errors.HoldfastError) -> str:
    """Return the name of the problem that an error is."""
    for cls in type(error).__mro__:
        if cls in FROM and cls is not errors.HoldfastError:
            return FROM[cls]
    return "internal" if isinstance(error, errors.StoreError) else FROM[errors.HoldfastError]


class Place(msgspec.Struct, omit_defaults=True):
    """One of several places in a request that are wrong."""

    detail: str
    place: str


class Problem(msgspec.Struct, omit_defaults=True):
    type: str
    title: str
    status: int
    detail: str = ""
    instance: str = ""
    """The request's id, by which the log names it, too."""
    place: str = ""
    """A JSON pointer into the body, or `?name` for the query, or the name of a header."""
    next: str = ""
    """What to do about it."""
    errors: list[Place] = []
    error: str = ""
    """The class of the error in Python, if there is a more precise one than the problem's own."""
    error_type: str = ""
    """The class of the error that ended an update."""


def problem(name: str, detail: str = "", *, instance: str = "", place: str = "", next: str = "") -> Problem:
    kind = KINDS[name]
    return Problem(TYPE + name, kind.title, kind.status, detail, instance, place, next)

"""A request that is refused, and the problem that says why."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.access import Identity
from holdfast.errors import AccessError, HoldfastError, StoreError
from holdfast.wire.problems import FROM, KINDS, Problem, kind_of, problem

UNKNOWN = "there is nothing of this name here"
"""The detail of every `unknown`: what is in another namespace is refused in the same bytes as what does not exist."""
RETRY_AFTER_S = {"unavailable": "2", "throttled": "1"}


class Refusal(Exception):
    """Raised where a request is read or authorised."""

    def __init__(
        self, name: str, detail: str = "", *, place: str = "", next: str = "", error: str = ""
    ) -> None:
        super().__init__(detail)
        assert name in KINDS
        self.name, self.detail, self.place, self.next, self.error = name, detail, place, next, error
        self.who: Identity | None = None
        """Whose token it was, if that is known, for the audit. The answer does not say it."""

    def problem(self, request: str = "") -> Problem:
        made = _made(self.name, self.detail, request, self.place, self.next)
        made.error = self.error
        return made


def problem_of(error: HoldfastError, *, request: str = "", place: str = "", hide: str = "") -> Problem:
    """Return the problem that an error of the desk is. `hide` is the beginning of stored ids, which nobody needs to
    see."""
    name = kind_of(error)
    detail = str(error).replace(hide, "") if hide else str(error)
    if name == "internal":
        detail = ""
    elif isinstance(error, StoreError) and name == "unavailable":
        detail = "the store cannot be reached"  # without the address of the store
    made = _made(name, detail, request, "" if isinstance(error, AccessError) else place, "")
    if name not in {"unknown", "internal"}:
        made.error = _finer(error, name)
        made.error_type = str(getattr(error, "error_type", ""))
    return made


def _finer(error: HoldfastError, name: str) -> str:
    """Return the class of an error, if it is not the one that its problem stands for anyway."""
    usual = next(kind for kind, known in FROM.items() if known == name)
    # An agent that has left gets `gone`, too. So an answer that comes too late always names its class.
    return "" if type(error) is usual and name != "gone" else type(error).__name__


def _made(name: str, detail: str, request: str, place: str, next: str) -> Problem:
    if name == "unknown":
        return problem("unknown", UNKNOWN)
    return problem(name, detail, instance=request, place=place, next=next)


def headers_of(found: Problem, allow: str = "") -> Mapping[str, str]:
    name = found.type.rpartition(":")[2]
    headers = {"Retry-After": RETRY_AFTER_S[name]} if name in RETRY_AFTER_S else {}
    if name == "unauthenticated":
        headers["WWW-Authenticate"] = "Bearer"
    if allow:
        headers["Allow"] = allow
    return headers

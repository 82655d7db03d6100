"""Retry rules: when a failed attempt is tried again, and after how long. Pure: the dice and the times are arguments.

A policy is kept as JSON beside the step it belongs to, so exception classes are kept by their qualified names and
whoever decides needs none of the author's code.
"""

from __future__ import annotations

import random as chance
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast

import msgspec

from holdfast import errors

RETRY_IN_PER_ATTEMPT = 20
"""`RetryIn` spends no attempt, but a server that never stops asking is down: so many per attempt of the policy."""
RETRY_IN_MAX_S = 86_400.0
"""Without `total`, a step may be put off by `RetryIn` for a day."""
RETRY_IN_FLOOR_S = 0.1
"""`RetryIn(0)` must not become a busy loop."""

Errors: TypeAlias = type[BaseException] | str | tuple[type[BaseException] | str, ...]


def name_of(cls: type) -> str:
    """The qualified name under which a class is matched and recorded."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _names(of: object, field: str) -> tuple[str, ...]:
    found = []
    for item in of if isinstance(of, tuple | list) else (of,):
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, type) and issubclass(item, BaseException):
            found.append(name_of(item))
        else:
            raise errors.DefinitionError(
                f"Retry({field}=…) takes exception classes, not {item!r}: write {field}=ConnectionError or a tuple of classes"
            )
    return tuple(found)


def _check_attempts(attempts: object) -> None:
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise errors.DefinitionError(f"Retry(attempts={attempts!r}): at least 1, which means no retry")


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often and when a failed step is tried again.

    `attempts` counts the first one. `on` limits retrying to these exceptions, `never` takes some out again.
    The n-th wait is drawn from 0 … `delay * factor**(n-1)`, at most `max_delay` (`jitter="full"`), from its upper
    half (`"equal"`), or is exactly that (`"none"`). `total` bounds the seconds from the step's issue to its last attempt.
    """

    attempts: int = 3
    on: Errors = ()
    never: Errors = ()
    delay: float = 1.0
    factor: float = 2.0
    max_delay: float = 60.0
    jitter: Literal["full", "equal", "none"] = "full"
    total: float | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "on", _names(self.on, "on"))
        msgspec.structs.force_setattr(self, "never", _names(self.never, "never"))
        _check_attempts(self.attempts)
        if self.jitter not in ("full", "equal", "none"):
            raise errors.DefinitionError(f"Retry(jitter={self.jitter!r}): 'full', 'equal' or 'none'")
        if not (self.delay >= 0 and self.factor >= 1 and self.max_delay >= 0):
            raise errors.DefinitionError(
                "Retry: delay and max_delay are seconds from 0, factor is at least 1"
            )
        if self.total is not None and not self.total > 0:
            raise errors.DefinitionError(
                f"Retry(total={self.total!r}): seconds above 0, or None for no bound"
            )

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()

    @staticmethod
    def decode(raw: str) -> Retry:
        return _decode(raw)


DEFAULT_RETRY = Retry()
"""For steps that name no policy: three attempts within seconds heal a blip and do not hide a bug for long."""


@lru_cache(maxsize=1024)
def _decode(raw: str) -> Retry:
    fields: dict[str, Any] = msgspec.json.decode(raw)
    for name in ("on", "never"):
        if name in fields:
            fields[name] = tuple(fields[name])
    return Retry(**fields)


class TryAgain(msgspec.Struct, frozen=True):
    after_s: float
    spends: bool = True


class GiveUp(msgspec.Struct, frozen=True):
    reason: str


Verdict: TypeAlias = TryAgain | GiveUp


def decide(
    policy: Retry,
    *,
    spent: int,
    error: BaseException,
    elapsed_s: float,
    random: chance.Random,
    asked: int = 0,
) -> Verdict:
    """What follows a failed attempt.

    `spent` counts the attempts that this policy has paid for, the failed one included; `elapsed_s` runs from the
    step's issue. `Stop` and `InvalidInput` give up at once: trying again cannot help. `RetryIn` spends nothing and is
    honoured until 20 of them per attempt were `asked`, or `total` (a day, when there is none) has passed.
    """
    if isinstance(error, errors.Stop):
        return GiveUp("the step said Stop")
    if isinstance(error, errors.InvalidInput):
        return GiveUp("a value does not fit its declared type, and would not at the next attempt")
    if isinstance(error, errors.RetryIn):
        return _put_off(policy, error.seconds, elapsed_s=elapsed_s, asked=asked)
    if not retries(policy, error):
        return GiveUp(f"the policy does not retry {type(error).__name__}")
    if spent >= policy.attempts:
        return GiveUp(f"attempt {spent} of {policy.attempts} failed")
    after_s = backoff_s(policy, spent, random)
    if policy.total is not None and elapsed_s + after_s > policy.total:
        return GiveUp(f"the next attempt would begin later than {policy.total:g} s after the first")
    return TryAgain(after_s)


def _put_off(policy: Retry, seconds: float, *, elapsed_s: float, asked: int) -> Verdict:
    limit_s = policy.total if policy.total is not None else RETRY_IN_MAX_S
    if asked >= policy.attempts * RETRY_IN_PER_ATTEMPT:
        return GiveUp(f"RetryIn was raised {asked} times")
    after_s = max(RETRY_IN_FLOOR_S, seconds)  # in this order, which turns NaN into the floor
    if elapsed_s + after_s > limit_s:
        return GiveUp(f"RetryIn({seconds:g}) would go beyond {limit_s:g} s after the first attempt")
    return TryAgain(after_s, spends=False)


def retries(policy: Retry, error: BaseException) -> bool:
    """Does this policy retry this exception at all?"""
    if not policy.on and not policy.never:
        return True
    names = {name_of(cls) for cls in type(error).__mro__}
    on, never = cast("tuple[str, ...]", policy.on), cast("tuple[str, ...]", policy.never)
    return names.isdisjoint(never) and (not on or not names.isdisjoint(on))


def backoff_s(policy: Retry, spent: int, random: chance.Random) -> float:
    """Seconds to wait after `spent` attempts."""
    try:
        most = min(policy.delay * policy.factor ** (spent - 1), policy.max_delay)
    except OverflowError:
        most = policy.max_delay
    if policy.jitter == "none":
        return most
    if policy.jitter == "equal":
        return most / 2 + random.random() * most / 2
    return random.random() * most

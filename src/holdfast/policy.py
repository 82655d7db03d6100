"""Retry rules: when a failed attempt is tried again, and after how long. Pure: the dice and the times are arguments.

Failures have classes with budgets of their own: a step that timed out twice has all its attempts left for errors of its
own. Agents decide by these rules what follows a failure they saw; the store, what follows one that only a Supervisor saw.

A policy is kept as JSON beside the step it belongs to, so exception classes are kept by their qualified names and
whoever decides needs none of the author's code.
"""

from __future__ import annotations

import hashlib
import math
import random as chance
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast

import msgspec

from holdfast import errors
from holdfast.config import DEFAULT, Config
from holdfast.model import Counted, Ending, Failure, spent
from holdfast.programs import name_of

RETRY_IN_PER_ATTEMPT = 20
"""`RetryIn` spends no attempt, but a server that never stops asking is down: so many per attempt of the policy."""
OUTAGES_PER_RETRY = 1000
"""A failure behind a breaker spends no attempt, but it is an execution: so many for each attempt after the first. A step that is
alone behind its breaker, and so is every probe, has enough of them for a night."""
RETRY_IN_MAX_S = 86_400.0
"""Without `total`, a step may be put off by `RetryIn` for a day."""
RETRY_IN_FLOOR_S = 0.1
"""`RetryIn(0)` must not become a busy loop."""

Errors: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]


class ClassName(str):
    """A class in a policy that was recorded. Authors name classes themselves: a misspelt text would never match."""

    __slots__ = ()


def _names(of: object, field: str) -> tuple[str, ...]:
    found = []
    for item in of if isinstance(of, tuple | list) else (of,):
        if isinstance(item, ClassName):
            found.append(item)
        elif isinstance(item, type) and issubclass(item, BaseException):
            found.append(ClassName(name_of(item)))
        else:
            raise errors.DefinitionError(
                f"Retry({field}=…) takes exception classes, not {item!r}: write {field}=ConnectionError or a tuple of classes"
            )
    return tuple(found)


def _check_seconds(name: str, given: object, least: float) -> None:
    if (
        isinstance(given, bool)
        or not isinstance(given, int | float)
        or not (math.isfinite(given) and given >= least)
    ):
        raise errors.DefinitionError(f"Retry({name}={given!r}): a number, at least {least:g}")


def _check_budget(name: str, given: object, least: int, means: str) -> None:
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        raise errors.DefinitionError(f"Retry({name}={given!r}): at least {least}, which means {means}")


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often and when a failed step is tried again.

    `attempts` counts the first one. `on` limits retrying to these exceptions, `never` takes some out again.
    The n-th wait is drawn from 0 … `delay * factor**(n-1)`, at most `max_delay` (`jitter="full"`), from its upper
    half (`"equal"`), or is exactly that (`"none"`). `total` bounds the seconds from the step's issue to its last attempt.

    Other classes of failure spend no attempt and have budgets of their own: `timeouts` attempts may time out (None: as many
    as there are attempts, if `on` and `never` retry a TimeoutError), `losses` times the agent may die under it (None:
    `losses_max` of the node), `throttles` times it may raise `RetryIn` (None: 20 for each attempt). A step that is lost
    more often goes into quarantine, where it waits for a person. `quarantine=True` sends it there whichever budget is
    spent; with `False` it fails, always. `outages` attempts may fail while the step's dependency is known to be down, and spend
    nothing else (None: 1000 for each attempt after the first, so that one that has a single attempt is executed once).
    """

    attempts: int = 3
    on: Errors = ()
    never: Errors = ()
    delay: float = 1.0
    factor: float = 2.0
    max_delay: float = 60.0
    jitter: Literal["full", "equal", "none"] = "full"
    total: float | None = None
    timeouts: int | None = None
    losses: int | None = None
    throttles: int | None = None
    quarantine: bool | None = None
    outages: int | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "on", _names(self.on, "on"))
        msgspec.structs.force_setattr(self, "never", _names(self.never, "never"))
        _check_budget("attempts", self.attempts, 1, "no retry")
        if self.timeouts is not None:
            _check_budget("timeouts", self.timeouts, 1, "no retry after a timeout")
        if self.losses is not None:
            _check_budget("losses", self.losses, 0, "poison at the first loss")
        if self.throttles is not None:
            _check_budget("throttles", self.throttles, 0, "RetryIn is a failure")
        if self.outages is not None:
            _check_budget("outages", self.outages, 0, "a failure is one, whatever its dependency does")
        if self.quarantine not in (None, True, False):
            raise errors.DefinitionError(f"Retry(quarantine={self.quarantine!r}): True, False or None")
        if self.jitter not in ("full", "equal", "none"):
            raise errors.DefinitionError(f"Retry(jitter={self.jitter!r}): 'full', 'equal' or 'none'")
        _check_seconds("delay", self.delay, 0)
        _check_seconds("max_delay", self.max_delay, 0)
        _check_seconds("factor", self.factor, 1)
        if self.total is not None:
            _check_seconds("total", self.total, 0)
            if self.total == 0:
                raise errors.DefinitionError("Retry(total=0): seconds above 0, or None for no bound")

    @property
    def timeouts_max(self) -> int:
        """How many attempts may time out, the last one included."""
        if self.timeouts is not None:
            return self.timeouts
        return self.attempts if retries(self, errors.StepTimeout("")) else 1

    @property
    def throttles_max(self) -> int:
        return self.attempts * RETRY_IN_PER_ATTEMPT if self.throttles is None else self.throttles

    @property
    def outages_max(self) -> int:
        return (self.attempts - 1) * OUTAGES_PER_RETRY if self.outages is None else self.outages

    def encode(self) -> str:
        return msgspec.json.encode(self, enc_hook=str).decode()

    def told(self, *, timed: bool) -> str | None:
        """What must stand beside a step that has this policy by declaration: agents know it, a Supervisor has none of the
        author's code. None: what the row says anyway is enough."""
        plain = self.losses is None and self.quarantine is None
        if plain and (not timed or self.timeouts_max == self.attempts):
            return None
        return self.encode()

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
            fields[name] = tuple(map(ClassName, fields[name]))
    return Retry(**fields)


def policy_of(raw: str | None, attempts_max: int) -> Retry:
    """The policy of a step as far as its row tells."""
    return _decode(raw) if raw else _plain(attempts_max)


@lru_cache(maxsize=256)
def _plain(attempts: int) -> Retry:
    return Retry(attempts=attempts)


class RetryAfter(msgspec.Struct, frozen=True):
    after_s: float
    failure: Failure = Failure.APPLICATION
    """Whose budget it spends."""
    excused: bool = False
    """It spends none but that for outages."""


class GiveUp(msgspec.Struct, frozen=True):
    reason: str


class WaitForPerson(msgspec.Struct, frozen=True):
    """It waits for a person."""

    reason: str
    failure: Failure


Verdict: TypeAlias = RetryAfter | GiveUp | WaitForPerson


def classify(ending: Ending, error: BaseException) -> Failure:
    """The class of a failed attempt."""
    if ending is Ending.LOST:
        return Failure.LOST
    if ending is Ending.TIMED_OUT:
        return Failure.TIMEOUT
    return Failure.THROTTLED if isinstance(error, errors.RetryIn) else Failure.APPLICATION


def decide(
    policy: Retry,
    failure: Failure,
    step: Counted,
    *,
    error: BaseException,
    elapsed_s: float,
    random: chance.Random,
    config: Config = DEFAULT,
    outage: bool = False,
) -> Verdict:
    """What follows a failed attempt.

    `step` is its row as it was while the attempt ran: the attempt is counted, how it ended is not. `elapsed_s` runs from
    the step's issue. Of the application's errors, those that are `FINAL` give up at once.
    In an `outage` what it depends on was known to be in trouble: it is excused, if the policy would retry such a failure at
    all, as long as there are outages left to spend.
    """
    if outage and step.excused < policy.outages_max and _is_retried(policy, failure, error):
        return _again(
            policy, max(1, spent(step) - 1), failure, elapsed_s=elapsed_s, random=random, excused=True
        )
    match failure:
        case Failure.LOST | Failure.POISON:
            return after_loss(policy, step.losses, config)
        case Failure.TIMEOUT:
            return _after_timeout(policy, step.timeouts + 1, elapsed_s=elapsed_s, random=random)
        case Failure.THROTTLED:
            seconds = error.seconds if isinstance(error, errors.RetryIn) else 0.0
            return _put_off(policy, seconds, elapsed_s=elapsed_s, asked=step.throttled)
    return _after_error(policy, spent(step), error, elapsed_s=elapsed_s, random=random)


def _after_error(
    policy: Retry, tried: int, error: BaseException, *, elapsed_s: float, random: chance.Random
) -> Verdict:
    if isinstance(error, FINAL):
        return GiveUp(_why_final(error))
    if not retries(policy, error):
        return GiveUp(f"the policy does not retry {type(error).__name__}")
    if tried >= policy.attempts:
        return _exhausted(policy, f"attempt {tried} of {policy.attempts} failed", Failure.APPLICATION)
    return _again(policy, tried, Failure.APPLICATION, elapsed_s=elapsed_s, random=random)


FINAL = (errors.Stop, errors.InvalidInput, errors.DefinitionError)
"""Errors after which trying again cannot help."""


def _why_final(error: BaseException) -> str:
    if isinstance(error, errors.Stop):
        return "the step said Stop"
    if isinstance(error, errors.InvalidInput):
        return "a value does not fit its declared type, and would not at the next attempt"
    return "the code is declared in a way that cannot work"


def _after_timeout(policy: Retry, timeouts: int, *, elapsed_s: float, random: chance.Random) -> Verdict:
    most = policy.timeouts_max
    if timeouts >= most:
        said = "it timed out" if most == 1 else f"it timed out {timeouts} times of {most}"
        return _exhausted(policy, said, Failure.TIMEOUT)
    return _again(policy, timeouts, Failure.TIMEOUT, elapsed_s=elapsed_s, random=random)


def after_loss(policy: Retry, losses: int, config: Config = DEFAULT) -> Verdict:
    """What follows the loss of an agent by a step that had lost `losses` before. At once the first time, because most
    deaths are not the step's doing; then after growing waits, so that one that is does not kill a fleet in a second."""
    most = config.losses_max if policy.losses is None else policy.losses
    if losses >= most:
        reason = f"its agent was lost {losses + 1} times, {most} are allowed"
        return GiveUp(reason) if policy.quarantine is False else WaitForPerson(reason, Failure.POISON)
    if losses == 0:
        return RetryAfter(0.0, Failure.LOST)
    waits = config.loss_back_off_s * 2.0 ** min(losses - 1, 30)
    return RetryAfter(min(waits, config.loss_back_off_max_s), Failure.LOST)


def _put_off(policy: Retry, seconds: float, *, elapsed_s: float, asked: int) -> Verdict:
    limit_s = policy.total if policy.total is not None else RETRY_IN_MAX_S
    if asked >= policy.throttles_max:
        return _exhausted(policy, f"RetryIn was raised {asked + 1} times", Failure.THROTTLED)
    after_s = max(RETRY_IN_FLOOR_S, seconds)  # in this order, which turns NaN into the floor
    if elapsed_s + after_s > limit_s:
        said = f"RetryIn({seconds:g}) would go beyond {limit_s:g} s after the first attempt"
        return _exhausted(policy, said, Failure.THROTTLED)
    return RetryAfter(after_s, Failure.THROTTLED)


def _is_retried(policy: Retry, failure: Failure, error: BaseException) -> bool:
    """Would the policy retry such a failure, if it were the first?"""
    if failure is Failure.TIMEOUT:
        return policy.timeouts_max > 1
    return failure is Failure.APPLICATION and not isinstance(error, FINAL) and retries(policy, error)


def _again(
    policy: Retry,
    times: int,
    failure: Failure,
    *,
    elapsed_s: float,
    random: chance.Random,
    excused: bool = False,
) -> Verdict:
    after_s = backoff_s(policy, times, random)
    if policy.total is not None and elapsed_s + after_s > policy.total:
        said = f"the next attempt would begin later than {policy.total:g} s after the first"
        return _exhausted(policy, said, failure)
    return RetryAfter(after_s, failure, excused)


def _exhausted(policy: Retry, reason: str, failure: Failure) -> Verdict:
    return WaitForPerson(reason, failure) if policy.quarantine else GiveUp(reason)


def fingerprint(step: str, error: str, place: str) -> str:
    """What steps that came to grief in the same way have in common."""
    return hashlib.sha256(f"{step}\n{error}\n{place}".encode()).hexdigest()[:12]


def retries(policy: Retry, error: BaseException) -> bool:
    """Does this policy retry this exception at all?"""
    if not policy.on and not policy.never:
        return True
    names = {name_of(cls) for cls in type(error).__mro__}
    on, never = cast("tuple[ClassName, ...]", policy.on), cast("tuple[ClassName, ...]", policy.never)
    return names.isdisjoint(never) and (not on or not names.isdisjoint(on))


def backoff_s(policy: Retry, times: int, random: chance.Random) -> float:
    """Seconds to wait after the `times`-th failure of a class."""
    try:
        most = min(policy.delay * policy.factor ** (times - 1), policy.max_delay)
    except OverflowError:
        most = policy.max_delay
    if policy.jitter == "none":
        return most
    if policy.jitter == "equal":
        return most / 2 + random.random() * most / 2
    return random.random() * most

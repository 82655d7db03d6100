"""Retry rules: when a failed attempt is tried again, and after how long. These functions are pure: the dice and the
times are arguments.

Each class of failure has its own budget. A step that timed out twice still has all its attempts for its own errors.
Agents decide by these rules what follows a failure that they saw, and a Supervisor what follows one that only it saw.

A policy is recorded as JSON in the row of its step. It names exception classes by their qualified names, so that
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
from holdfast.model import Ending, Failure, StepCounts, spent
from holdfast.programs import name_of

RETRY_IN_PER_ATTEMPT = 20
"""How often a step may raise `RetryIn` for each attempt of its policy. `RetryIn` spends no attempt, but a server that
never stops asking for it is down."""
OUTAGES_PER_RETRY = 1000
"""How many failures behind a breaker a step may have for each attempt after the first. They spend no attempt, but each
one executes the step. This is enough for a night, even for a step that is alone behind its breaker and is every
probe."""
RETRY_IN_MAX_S = 86_400.0
"""Without `total`, `RetryIn` may delay a step by up to a day."""
RETRY_IN_FLOOR_S = 0.1
"""`RetryIn(0)` must not become a busy loop."""

Errors: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]


class ClassName(str):
    """The name of an exception class in a policy. Authors must pass the class itself, because a misspelt name would
    never match."""

    __slots__ = ()


def _class_names(given: object, field: str) -> tuple[str, ...]:
    names = []
    for item in given if isinstance(given, tuple | list) else (given,):
        if isinstance(item, ClassName):
            names.append(item)
        elif isinstance(item, type) and issubclass(item, BaseException):
            names.append(ClassName(name_of(item)))
        else:
            raise errors.DefinitionError(
                f"Retry({field}=…) takes exception classes, not {item!r}: write {field}=ConnectionError or a tuple "
                "of classes"
            )
    return tuple(names)


def _check_seconds(name: str, given: object, least: float) -> None:
    if (
        isinstance(given, bool)
        or not isinstance(given, int | float)
        or not (math.isfinite(given) and given >= least)
    ):
        raise errors.DefinitionError(f"Retry({name}={given!r}): it must be a number, at least {least:g}")


def _check_budget(name: str, given: object, least: int, means: str) -> None:
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        raise errors.DefinitionError(
            f"Retry({name}={given!r}): it must be a whole number, at least {least} ({least} means {means})"
        )


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often and when a failed step is tried again.

    `attempts` includes the first one. `on` limits retrying to these exceptions. `never` lists exceptions that are not
    retried. The n-th wait has the bound `delay * factor**(n-1)`, at most `max_delay`. With `jitter="full"`, the wait is
    drawn from 0 to that bound, with `"equal"` from its upper half, and with `"none"` it is exactly the bound. `total`
    limits the seconds from the step's issue to its last attempt.

    Other classes of failure spend no attempt and have their own budgets:

    - `timeouts`: how many attempts may time out. None: as many as there are attempts, if `on` and `never` retry a
      TimeoutError.
    - `losses`: how often the step's agent may die. None: `losses_max` of the node. A step that is lost more often goes
      into quarantine, where it waits for a person.
    - `throttles`: how often the step may raise `RetryIn`. None: 20 times for each attempt.
    - `outages`: how many attempts may fail while the step's dependency is known to be down. They spend nothing else.
      None: 1000 for each attempt after the first, so that a step with a single attempt is executed once.

    With `quarantine=True` the step goes into quarantine whichever budget it used up. With `False` it always fails.
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
        msgspec.structs.force_setattr(self, "on", _class_names(self.on, "on"))
        msgspec.structs.force_setattr(self, "never", _class_names(self.never, "never"))
        _check_budget("attempts", self.attempts, 1, "no retry")
        if self.timeouts is not None:
            _check_budget("timeouts", self.timeouts, 1, "no retry after a timeout")
        if self.losses is not None:
            _check_budget("losses", self.losses, 0, "quarantine at the first loss")
        if self.throttles is not None:
            _check_budget("throttles", self.throttles, 0, "that RetryIn is a failure")
        if self.outages is not None:
            _check_budget("outages", self.outages, 0, "that a failure counts even if the dependency is down")
        if self.quarantine not in (None, True, False):
            raise errors.DefinitionError(
                f"Retry(quarantine={self.quarantine!r}): it must be True, False or None"
            )
        if self.jitter not in ("full", "equal", "none"):
            raise errors.DefinitionError(
                f"Retry(jitter={self.jitter!r}): it must be 'full', 'equal' or 'none'"
            )
        _check_seconds("delay", self.delay, 0)
        _check_seconds("max_delay", self.max_delay, 0)
        _check_seconds("factor", self.factor, 1)
        if self.total is not None:
            _check_seconds("total", self.total, 0)
            if self.total == 0:
                raise errors.DefinitionError(
                    "Retry(total=0): it must be more than 0 seconds, or None for no limit"
                )

    @property
    def timeouts_max(self) -> int:
        """How many attempts may time out, including the last one."""
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

    def for_supervisor(self, *, timed: bool) -> str | None:
        """Return what the row of a step must record of its declared policy. Agents know the policy from the code, but a
        Supervisor has none of the author's code. None if the other columns of the row are enough. `timed` says whether
        the step has a timeout."""
        plain = self.losses is None and self.quarantine is None
        if plain and (not timed or self.timeouts_max == self.attempts):
            return None
        return self.encode()

    @staticmethod
    def decode(raw: str) -> Retry:
        return _decode(raw)


DEFAULT_RETRY = Retry()
"""The policy of steps that name none. Three attempts within seconds survive a short disturbance, and do not hide a bug
for long."""


@lru_cache(maxsize=1024)
def _decode(raw: str) -> Retry:
    fields: dict[str, Any] = msgspec.json.decode(raw)
    for name in ("on", "never"):
        if name in fields:
            fields[name] = tuple(map(ClassName, fields[name]))
    return Retry(**fields)


def policy_of(raw: str | None, attempts_max: int) -> Retry:
    """Return the policy of a step, as far as its row has it."""
    return _decode(raw) if raw else _plain(attempts_max)


@lru_cache(maxsize=256)
def _plain(attempts: int) -> Retry:
    return Retry(attempts=attempts)


class RetryAfter(msgspec.Struct, frozen=True):
    after_s: float
    failure: Failure = Failure.APPLICATION
    """The class of failure whose budget the attempt spends."""
    excused: bool = False
    """True if the attempt spends only the budget for outages."""


class GiveUp(msgspec.Struct, frozen=True):
    reason: str


class WaitForPerson(msgspec.Struct, frozen=True):
    """The step goes into quarantine, where it waits for a person."""

    reason: str
    failure: Failure


Verdict: TypeAlias = RetryAfter | GiveUp | WaitForPerson


def classify(ending: Ending, error: BaseException) -> Failure:
    """Return the class of a failed attempt."""
    if ending is Ending.LOST:
        return Failure.LOST
    if ending is Ending.TIMED_OUT:
        return Failure.TIMEOUT
    return Failure.THROTTLED if isinstance(error, errors.RetryIn) else Failure.APPLICATION


def decide(
    policy: Retry,
    failure: Failure,
    step: StepCounts,
    *,
    error: BaseException,
    elapsed_s: float,
    random: chance.Random,
    config: Config = DEFAULT,
    outage: bool = False,
) -> Verdict:
    """Return what follows a failed attempt.

    `step` is the row as it was while the attempt ran: it counts the attempt, but not yet how the attempt ended.
    `elapsed_s` is the time since the step was issued. Errors in `FINAL` make the step give up at once. `outage` says
    that the step's dependency was known to be down. Then the attempt is excused if the policy retries such failures at
    all, until the budget for outages is used up.
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
            return _after_throttle(policy, seconds, elapsed_s=elapsed_s, throttled=step.throttled)
    return _after_error(policy, spent(step), error, elapsed_s=elapsed_s, random=random)


def _after_error(
    policy: Retry, attempts: int, error: BaseException, *, elapsed_s: float, random: chance.Random
) -> Verdict:
    if isinstance(error, FINAL):
        return GiveUp(_why_final(error))
    if not retries(policy, error):
        return GiveUp(f"the policy does not retry {type(error).__name__}")
    if attempts >= policy.attempts:
        return _exhausted(policy, f"attempt {attempts} of {policy.attempts} failed", Failure.APPLICATION)
    return _again(policy, attempts, Failure.APPLICATION, elapsed_s=elapsed_s, random=random)


FINAL = (errors.Stop, errors.InvalidInput, errors.DefinitionError)
"""Errors after which trying again cannot help."""


def _why_final(error: BaseException) -> str:
    if isinstance(error, errors.Stop):
        return "the step raised Stop"
    if isinstance(error, errors.InvalidInput):
        return "a value does not fit its declared type, and would not fit at the next attempt either"
    return "the code is declared in a way that cannot work"


def _after_timeout(policy: Retry, timeouts: int, *, elapsed_s: float, random: chance.Random) -> Verdict:
    limit = policy.timeouts_max
    if timeouts >= limit:
        reason = "it timed out" if limit == 1 else f"it timed out {timeouts} times, {limit} are allowed"
        return _exhausted(policy, reason, Failure.TIMEOUT)
    return _again(policy, timeouts, Failure.TIMEOUT, elapsed_s=elapsed_s, random=random)


def after_loss(policy: Retry, losses: int, config: Config = DEFAULT) -> Verdict:
    """Return what follows when a step loses its agent and had lost `losses` agents before. After the first loss the
    step is tried again at once, because most deaths are not the step's fault. After that the waits grow, so that a step
    that does kill its agents does not kill a whole fleet in a second."""
    limit = config.losses_max if policy.losses is None else policy.losses
    if losses >= limit:
        reason = f"its agent was lost {losses + 1} times, {limit} are allowed"
        return GiveUp(reason) if policy.quarantine is False else WaitForPerson(reason, Failure.POISON)
    if losses == 0:
        return RetryAfter(0.0, Failure.LOST)
    wait_s = config.loss_back_off_s * 2.0 ** min(losses - 1, 30)
    return RetryAfter(min(wait_s, config.loss_back_off_max_s), Failure.LOST)


def _after_throttle(policy: Retry, seconds: float, *, elapsed_s: float, throttled: int) -> Verdict:
    limit_s = policy.total if policy.total is not None else RETRY_IN_MAX_S
    if throttled >= policy.throttles_max:
        return _exhausted(policy, f"RetryIn was raised {throttled + 1} times", Failure.THROTTLED)
    after_s = max(RETRY_IN_FLOOR_S, seconds)  # in this order max() turns NaN into the floor
    if elapsed_s + after_s > limit_s:
        reason = f"RetryIn({seconds:g}) would go beyond {limit_s:g} s after the step was issued"
        return _exhausted(policy, reason, Failure.THROTTLED)
    return RetryAfter(after_s, Failure.THROTTLED)


def _is_retried(policy: Retry, failure: Failure, error: BaseException) -> bool:
    """True if the policy would retry such a failure if it were the first."""
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
        reason = f"the next attempt would begin later than {policy.total:g} s after the step was issued"
        return _exhausted(policy, reason, failure)
    return RetryAfter(after_s, failure, excused)


def _exhausted(policy: Retry, reason: str, failure: Failure) -> Verdict:
    return WaitForPerson(reason, failure) if policy.quarantine else GiveUp(reason)


def fingerprint(step: str, error: str, place: str) -> str:
    """Return a text that is the same for steps that failed in the same way."""
    return hashlib.sha256(f"{step}\n{error}\n{place}".encode()).hexdigest()[:12]


def retries(policy: Retry, error: BaseException) -> bool:
    """True if this policy retries this exception at all."""
    if not policy.on and not policy.never:
        return True
    names = {name_of(cls) for cls in type(error).__mro__}
    on, never = cast("tuple[ClassName, ...]", policy.on), cast("tuple[ClassName, ...]", policy.never)
    return names.isdisjoint(never) and (not on or not names.isdisjoint(on))


def backoff_s(policy: Retry, times: int, random: chance.Random) -> float:
    """Return the seconds to wait after the `times`-th failure of a class."""
    try:
        bound_s = min(policy.delay * policy.factor ** (times - 1), policy.max_delay)
    except OverflowError:
        bound_s = policy.max_delay
    if policy.jitter == "none":
        return bound_s
    if policy.jitter == "equal":
        return bound_s / 2 + random.random() * bound_s / 2
    return random.random() * bound_s

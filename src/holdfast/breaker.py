"""When a breaker opens, probes and closes. These functions are pure: they get what is known and the time, and return
what follows.

An agent uses `trips` to decide whether to stop by itself. Only the leader, with `decide`, changes the breaker that all
agents obey.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from holdfast import errors, policy
from holdfast.config import Config
from holdfast.model import Breaker, BreakerState, Ending

BUGS: tuple[type[BaseException], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    SyntaxError,
    TypeError,
    errors.InvalidInput,
)
"""Errors that say that the code is wrong. They say nothing about the step's dependency, and must fail soon and visibly.
If a misspelt name opened a breaker, the runs that wait behind it would only hide the mistake."""


class Sign(Enum):
    """What the end of an attempt says about the step's dependency."""

    WELL = "well"
    TROUBLE = "trouble"
    NOTHING = "nothing"


def read_failure(retry: policy.Retry, error: BaseException, ending: Ending) -> Sign:
    """Return what a failed attempt says. A dependency that answered is well, even if it answered "no" or "later"."""
    if ending is Ending.TIMED_OUT:
        return Sign.TROUBLE
    if ending is not Ending.FAILED:
        return Sign.NOTHING
    if isinstance(error, errors.Stop | errors.RetryIn):
        return Sign.WELL
    if isinstance(error, BUGS) or not isinstance(error, Exception):
        return Sign.NOTHING
    return Sign.TROUBLE if policy.retries(retry, error) else Sign.WELL


def trips(ok: int, failed: int, config: Config) -> bool:
    """True if these outcomes within the window mean an outage, so that a breaker opens."""
    return failed >= config.breaker_failures_min and fails(ok, failed, config)


def fails(ok: int, failed: int, config: Config) -> bool:
    """True if the share of failed attempts is that of an outage, however few attempts there are."""
    return failed >= (ok + failed) * config.breaker_rate


class BreakerLook(NamedTuple):
    """A breaker, and what its steps are doing, at one moment."""

    breaker: Breaker
    in_flight: int
    """How many of its running steps began in this round."""
    waiting: bool
    """True if any of its steps is ready and due."""


class BreakerChange(NamedTuple):
    """What the leader does with a breaker, and why."""

    state: BreakerState
    wave: int = 0
    open_s: float = 0.0
    note: str = ""

    @property
    def journalled(self) -> bool:
        """True if the journal records this change: every change of state, but only the first of the waves."""
        return self.state is not BreakerState.PROBING or self.wave == 1


class GiveBack(NamedTuple):
    """Some probes of the wave were lost, so this many others may begin."""

    probes: int


def decide(look: BreakerLook, now: float, config: Config) -> BreakerChange | GiveBack | None:
    """Return what the leader does with a breaker. None: nothing now."""
    row = look.breaker
    if row.forced:
        return None
    if row.state is BreakerState.CLOSED:
        return _watched(row, now, config)
    if row.state is BreakerState.OPEN:
        due = row.open_until is not None and now >= row.open_until
        return BreakerChange(BreakerState.PROBING, 1, row.open_s, row.note) if due else None
    return _probed(look, now, config)


def _watched(row: Breaker, now: float, config: Config) -> BreakerChange | None:
    age_s = now - row.window_at
    if not config.breaker_wait_s <= age_s <= config.breaker_window_s:
        return None
    if not trips(row.ok, row.failed, config):
        return None
    note = f"{row.failed} of {row.ok + row.failed} attempts failed within {max(1.0, age_s):.0f} s"
    return BreakerChange(BreakerState.OPEN, 0, config.breaker_open_s, note)


def _probed(look: BreakerLook, now: float, config: Config) -> BreakerChange | GiveBack | None:
    row = look.breaker
    taken, answered = row.wave - row.allowance, row.ok + row.failed
    whole = row.wave if look.waiting else taken
    """How large the wave will be. When no step waits, no probe is added to it."""
    if row.failed and (
        row.failed >= whole * config.breaker_rate
        or (answered >= taken and row.failed >= taken * config.breaker_rate)
    ):
        note = f"{row.failed} of {_counted(answered, 'probe')} failed"
        return BreakerChange(BreakerState.OPEN, 0, longer_s(row.open_s, config), note)
    if row.ok and row.ok > whole * (1 - config.breaker_rate):
        if not look.waiting or row.wave >= config.breaker_wave_max:
            return BreakerChange(
                BreakerState.CLOSED, note=f"{row.ok} of {_counted(answered, 'probe')} went well"
            )
        if row.allowance <= 0:
            return BreakerChange(BreakerState.PROBING, row.wave * config.breaker_growth, row.open_s, row.note)
    lost = taken - answered - look.in_flight
    if lost > 0 and now - row.told_at > config.probe_lost_s:
        return GiveBack(lost)
    if taken <= 0 and not look.waiting and now - row.window_at > config.breaker_open_max_s:
        return BreakerChange(BreakerState.CLOSED, note="nothing waits for it any more")
    return None


def longer_s(open_s: float, config: Config) -> float:
    """Return how long a breaker stays open after a wave that failed, if it was open for `open_s` before that wave."""
    return min(max(open_s, config.breaker_open_s) * 2, config.breaker_open_max_s)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

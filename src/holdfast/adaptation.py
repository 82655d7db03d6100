"""How an adaptive limit finds its number. These functions are pure: they get what is known and the time, and return what
follows.

Agents add up how the attempts under the limit went. The leader looks once a second, and calls `look_at`. A window ends when
it has enough attempts to judge by. The new number is what the dependency can bear by Little's law: the old number,
multiplied by how long attempts usually take, divided by how long they took in this window. A little is added, so that the
number grows while all is well. If attempts fail as they do under overload, the number falls by a third, and stays below
the one at which they failed for a while.

How long attempts usually take is not the shortest time ever seen: attempts vary, so that would be too short. The leader
finds it out by trial: now and then it lowers the number for a window. If attempts are no faster then, it was not the load
that made them slow.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.durations import span

FIRST_PART = 10
"""A new limit begins with its ceiling divided by this."""
ATTEMPTS_MIN = 10
"""A window needs at least this many attempts, and at least as many as the number itself."""
WINDOW_MAX_S = 60.0
"""A window that has too few attempts after this time begins again, unless attempts themselves take that long."""
TOLERANCE = 1.1
"""Attempts that take at most this many times as long as usual count as usual."""
FAILED_MIN, FAILED_SHARE = 2, 0.1
"""This many failed attempts, if they are also this share of all, say that the dependency is overloaded."""
FALL = 0.7
"""The number is multiplied by this after such failures, and while the leader tries whether fewer at once are faster."""
LATE_S = 1.0
"""How late agents report how attempts went."""
WARY = 20
"""For this many windows the number stays below one at which attempts failed."""
TRIED_EVERY, TRIED_EVERY_SLOW = 40, 6
"""After this many windows, the leader tries whether fewer at once are faster. The second number is for slow attempts."""
SLOW = 1.5
"""Attempts that take more than this many times as long as usual are slow."""
FASTER = 0.85
"""Fewer at once are faster if attempts then take at most this part of the time."""
LEARNED = 0.1
"""How much weight one window has in how long attempts usually take."""
NOTED = 0.2
"""How long attempts usually take is written if it has changed by more than this part, even if the number stays."""


class LimitLook(NamedTuple):
    """An adaptive limit at one moment. The sums have grown since it was made."""

    id: int
    name: str
    most: int
    """The number in force."""
    least: int
    ceiling: int
    usual_s: float | None
    """How long an attempt usually takes."""
    ok: int
    failed: int
    seconds: float
    """How long the attempts that succeeded took."""
    used: int
    """How much of it is in use."""


class LimitWatch(msgspec.Struct, frozen=True):
    """What the leader remembers of a limit from look to look. A new leader begins without it, which costs a window."""

    since: float
    """When the window begins. Attempts that end before that began under another number."""
    most: int
    ok: int
    failed: int
    seconds: float
    usual_s: float | None
    used: int = 0
    """The most that was seen in use."""
    windows: int = 0
    """How many windows have ended since it was last tried out whether fewer are faster."""
    failed_at: int | None = None
    """A number at which attempts failed."""
    wary: int = 0
    """How many windows the number stays below `failed_at`."""
    tried: tuple[int, float] | None = None
    """While it is tried out whether fewer are faster: the number before, and how long attempts took."""


class LimitChange(NamedTuple):
    """What the leader writes: the number, what is usual, and why."""

    most: int
    usual_s: float | None
    why: str | None
    """None if only what is usual has changed."""


def first_number(ceiling: int, least: int) -> int:
    """Return the number that a new limit begins with."""
    return max(least, -(-ceiling // FIRST_PART))


def look_at(row: LimitLook, watch: LimitWatch | None, now: float) -> tuple[LimitWatch, LimitChange | None]:
    """Return what to remember, and what to write, if anything."""
    if watch is None or watch.most != row.most or row.ok < watch.ok:
        return _begun(row, watch, now), None
    if now < watch.since:
        return replace(watch, ok=row.ok, failed=row.failed, seconds=row.seconds), None
    watch = replace(watch, used=max(watch.used, row.used))
    ok, failed = row.ok - watch.ok, row.failed - watch.failed
    if ok + failed < max(ATTEMPTS_MIN, row.most):
        too_long_s = max(WINDOW_MAX_S, ATTEMPTS_MIN * (watch.usual_s or 0.0))
        return (_begun(row, watch, now) if now - watch.since > too_long_s else watch), None
    took_s = (row.seconds - watch.seconds) / ok if ok else None
    decided = _decided(row, watch, ok, failed, took_s)
    most = max(row.least, min(decided.most, row.ceiling))
    after = _begun(row, decided.watch, now, waits_s=_waits_s(row, most, took_s or 0.0), most=most)
    if most != row.most:
        return after, LimitChange(most, after.usual_s, decided.why)
    if after.usual_s is not None and not _is_near(row.usual_s, after.usual_s):
        return after, LimitChange(most, after.usual_s, None)
    return after, None


def _waits_s(row: LimitLook, most: int, took_s: float) -> float:
    """Return for how long attempts that began under another number still go on. After a fall, what agents have not
    reported yet counts, too: it would let the number fall twice for the same trouble."""
    if most == row.most:
        return 0.0
    return took_s if most > row.most else took_s + LATE_S


class _Decided(NamedTuple):
    most: int
    watch: LimitWatch
    why: str


def _decided(row: LimitLook, watch: LimitWatch, ok: int, failed: int, took_s: float | None) -> _Decided:
    """Return the number after a window, before it is kept between floor and ceiling."""
    watch = replace(watch, windows=watch.windows + 1, wary=max(0, watch.wary - 1))
    if failed >= FAILED_MIN and failed >= (ok + failed) * FAILED_SHARE:
        why = f"{failed} of {ok + failed} attempts failed"
        watch = replace(watch, failed_at=row.most, wary=WARY, tried=None, windows=0)
        return _Decided(int(row.most * FALL), watch, why)
    if took_s is None:
        return _Decided(row.most, watch, "")
    if watch.tried is not None:
        return _compared(row, watch, *watch.tried, took_s)
    usual_s = took_s if watch.usual_s is None else watch.usual_s
    if took_s <= usual_s * TOLERANCE:
        usual_s += (took_s - usual_s) * LEARNED
    watch = replace(watch, usual_s=usual_s)
    is_slow, is_used = took_s > usual_s * SLOW, watch.used * 2 >= row.most
    lower = int(row.most * FALL)
    if is_used and lower >= row.least and watch.windows >= (TRIED_EVERY_SLOW if is_slow else TRIED_EVERY):
        watch = replace(watch, tried=(row.most, took_s), windows=0)
        return _Decided(lower, watch, f"to see whether attempts are faster than {span(took_s)} with fewer")
    bears = row.most * min(1.0, TOLERANCE * usual_s / took_s)
    target = int(bears + max(1.0, math.sqrt(row.most) / 2))
    if target <= row.most:
        return _Decided(target, watch, f"attempts took {span(took_s)} instead of {span(usual_s)}")
    if not is_used:
        return _Decided(row.most, watch, "")
    if watch.failed_at is not None and watch.wary:
        target = max(row.most, min(target, watch.failed_at - 1))
    return _Decided(target, watch, f"attempts took {span(took_s)}, as usual")


def _compared(row: LimitLook, watch: LimitWatch, before: int, before_s: float, took_s: float) -> _Decided:
    """Return what follows from a window with fewer."""
    watch = replace(watch, tried=None, usual_s=took_s)
    if took_s <= before_s * FASTER:
        return _Decided(
            row.most, watch, f"with {before} attempts took {span(before_s)} instead of {span(took_s)}"
        )
    return _Decided(before, watch, f"with {row.most} attempts were not faster than {span(before_s)}")


def _begun(
    row: LimitLook, watch: LimitWatch | None, now: float, *, waits_s: float = 0.0, most: int | None = None
) -> LimitWatch:
    """Return the beginning of a window. After a move it begins when what ran before has ended."""
    known = LimitWatch(now, row.most, 0, 0, 0.0, row.usual_s) if watch is None else watch
    if most is None and known.most != row.most:  # somebody else has changed the number
        known = replace(known, tried=None, windows=0, failed_at=None, wary=0)
    return replace(
        known,
        since=now + waits_s,
        most=row.most if most is None else most,
        ok=row.ok,
        failed=row.failed,
        seconds=row.seconds,
        used=0,
    )


def _is_near(known: float | None, found: float) -> bool:
    return known is not None and abs(found - known) <= known * NOTED

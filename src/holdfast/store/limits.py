"""Limits and rates: what they are, how much of them is in use, who has their slots, and what operators set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.actor import way
from holdfast.adaptation import LimitChange, LimitLook
from holdfast.errors import LimitReached
from holdfast.model import NewRun
from holdfast.namespaces import bare
from holdfast.store.answers import Answer
from holdfast.store.database import Noun, Session, leading, look, transaction
from holdfast.store.operators import Cause, cancel
from holdfast.store.rows import run_of, start_row
from holdfast.store.verbs import Verb
from holdfast.store.walk import LimitState, Room, room_of

OPEN_MAX = 10_000
"""How many open runs under a limit are read to find out whether there is room for one more."""


class LimitRow(msgspec.Struct, frozen=True):
    """A limit or a rate, with how much of it is in use."""

    id: int
    name: str
    """Its stored name."""
    kind: str
    declared: int
    """The number in the code."""
    most: int
    """The number in force."""
    per_s: float | None
    burst: int | None
    tat: float
    is_set: bool
    """True if an operator has set the number."""
    actor: str
    note: str
    used: int
    now: float
    is_adaptive: bool
    """True if the leader moves the number between `least` and `declared`."""
    least: int
    moved: str
    """Why the number moved last."""
    moved_at: float | None
    saved_for: int | None
    """The queue for which its slots are saved up."""
    takes: int = 1
    """How many slots whoever asked about it takes at once."""
    queue: int = 0
    """In which queue whoever asked about it waits."""

    @property
    def has_room(self) -> bool:
        """True if whoever asked about it can begin."""
        return not self.is_saved_for_others and self.room.left >= self.takes

    @property
    def is_saved_for_others(self) -> bool:
        return self.saved_for is not None and self.saved_for != self.queue

    @property
    def room(self) -> Room:
        """How much it has left."""
        return room_of(
            LimitState(self.kind, self.most, self.per_s, self.burst, self.tat, self.used, self.now)
        )


class LimitUse(NamedTuple):
    """A step or a run that has a slot under a limit, or waits for one. A run has n = 0."""

    run_id: str
    n: int
    name: str
    since: float
    weight: int


class LimitedStart(NamedTuple):
    """What became of a start under limits."""

    answer: Answer
    run_id: str
    """The run that was started, or the open one in its place."""
    cancelled: tuple[str, ...] = ()
    """Runs that were asked to cancel themselves for it."""


class LimitSeen(NamedTuple):
    row: LimitRow
    holders: list[LimitUse]
    waiters: list[LimitUse]


class LimitLoad(NamedTuple):
    """How attempts under an adaptive limit went."""

    id: int
    ok: int
    failed: int
    """How many failed as they do when a dependency is overloaded."""
    seconds: float
    """How long those that succeeded took."""


class AgentLimits(Noun):
    @transaction
    async def observe_limits(
        self, session: Session, loads: Sequence[LimitLoad], namespace: str | None = None
    ) -> None:
        """Add how attempts went to the sums of their limits. With a namespace, only limits of that namespace count."""
        sums: dict[int, LimitLoad] = {}
        for one in loads:
            known = sums.get(one.id, LimitLoad(one.id, 0, 0, 0.0))
            sums[one.id] = LimitLoad(
                one.id, known.ok + one.ok, known.failed + one.failed, known.seconds + one.seconds
            )
        # All transactions lock rows in the same order.
        await session.each(Verb.observe_limits, sorted(sums.values()), namespace)


class LeaderLimits(Noun):
    @look
    async def adaptive_limits(self, session: Session, reported_s: float, limit: int) -> list[LimitLook]:
        """Return adaptive limits that agents have reported about within the last `reported_s` seconds."""
        return [LimitLook(*row) for row in await session.rows(Verb.adaptive_limits, reported_s, limit)]

    @leading(0)
    async def move_limits(self, session: Session, moves: Sequence[tuple[LimitLook, LimitChange]]) -> int:
        """Move the numbers of adaptive limits. One whose number is another one by now, or that an operator has set, stays.
        Return how many moved."""
        moved = 0
        for row, move in sorted(moves, key=lambda one: one[0].id):
            known = (row.id, row.most, row.least, row.ceiling)
            moved += await session.run(Verb.move_limit, *known, move.most, move.usual_s, move.why)
        return moved


class Limits(AgentLimits, LeaderLimits):
    @look
    async def limits(
        self, session: Session, namespace: str | None, after: str = "", limit: int = 1000
    ) -> list[LimitRow]:
        """Return limits and rates by name, from the one after `after` on."""
        return [_row(row) for row in await session.rows(Verb.limits, namespace, after, limit)]

    @look
    async def limit(self, session: Session, name: str) -> LimitRow | None:
        row = await session.row(Verb.limit, name)
        return None if row is None else _row(row)

    @look
    async def seen(self, session: Session, name: str, limit: int) -> LimitSeen | None:
        """Return a limit with up to `limit` of those who have its slots and of those who wait for one, the oldest first."""
        row = await session.row(Verb.limit, name)
        if row is None:
            return None
        found = _row(row)
        holders = await session.rows(Verb.limit_holders, found.id, limit)
        waiters = await session.rows(Verb.limit_waiters, found.id, limit)
        return LimitSeen(found, [LimitUse(*one) for one in holders], [LimitUse(*one) for one in waiters])

    @look
    async def of_queue(self, session: Session, queue: int) -> list[LimitRow]:
        """Return the limits and rates that everything in a queue is under."""
        return [_row(row, queue) for row in await session.rows(Verb.limits_of_queue, queue)]

    @transaction
    async def set_limit(self, session: Session, name: str, most: int | None, actor: str, note: str) -> bool:
        """Set the number of a limit or a rate, or with None let the code's number count again. Return False if there is no
        such limit."""
        if not await session.run(Verb.set_limit, name, most, actor, note):
            return False
        words = f"{bare(name)}: " + ("as the code says" if most is None else f"most {most}")
        said = f"{words}: {note}" if note else words
        await session.run(Verb.journal_about, actor, "limit", name, said, *way(actor))
        return True

    @transaction
    async def start_limited(self, session: Session, run: NewRun) -> LimitedStart:
        """Start a run whose limits say what becomes of it while they have no room: it waits, it is skipped for the run that
        is open, the oldest one is cancelled for it, or it is refused. Runs that wait count as open here."""
        # Nobody else starts a run under these limits meanwhile. The same start, sent twice, is noticed after that: otherwise
        # the second would find the first in its way, and cancel it.
        await session.rows(Verb.wait_for_limits, sorted(one for one, _ in run.queue.limits))
        for run_id, workflow, digest in await session.rows(Verb.started_as, [run.id]):
            same = (workflow, bytes(digest)) == (run.workflow, run.digest)
            return LimitedStart(Answer.DUPLICATE if same else Answer.FENCED, run_id)
        full = await _full(session, run)
        if full and run.full == "refuse":
            raise LimitReached(_refusal(run, full[0]))
        if run.full == "skip" and (opened := [one for limit in full for one in limit.opened]):
            return LimitedStart(Answer.DUPLICATE, opened[0].id)
        cancelled = sorted({one for limit in full for one in limit.in_the_way()})
        for run_id in cancelled if run.full == "replace" else ():
            row = await session.row(Verb.lock_run, run_id)
            if row is not None:
                cause = Cause("limit", f"replaced by {run.id}", self._database.environment.new_id)
                await cancel(session, run_of(row), cause, again=False)
        rows = await session.all(Verb.start_runs, [start_row(run)])
        return LimitedStart(Answer.ACCEPTED if rows else Answer.FENCED, run.id, tuple(cancelled))


class _Opened(NamedTuple):
    """An open run under a limit."""

    id: str
    weight: int
    is_leaving: bool
    """True if it was asked to cancel itself."""


class _Full(NamedTuple):
    """A limit that has no room for a run that is to start."""

    name: str
    most: int
    takes: int
    opened: list[_Opened]
    """The oldest first."""

    def in_the_way(self) -> list[str]:
        """Return the oldest runs whose slots the new one takes. Those that are leaving already have none to give."""
        staying = [one for one in self.opened if not one.is_leaving]
        left = min(sum(one.weight for one in staying) + self.takes - self.most, self.takes)
        found = []
        for one in staying:
            if left <= 0:
                break
            found.append(one.id)
            left -= one.weight
        return found


async def _full(session: Session, run: NewRun) -> list[_Full]:
    """Return the limits that have no room for this run. Runs that wait count, too."""
    takes, found = dict(run.queue.limits), dict[int, _Full]()
    rows = await session.rows(Verb.open_under, sorted(takes), OPEN_MAX)
    for limit, name, most, run_id, weight, _, is_leaving in rows:
        found.setdefault(limit, _Full(name, most, takes[limit], []))
        if run_id is not None:
            found[limit].opened.append(_Opened(run_id, weight, bool(is_leaving)))
    return [one for one in found.values() if sum(each.weight for each in one.opened) + one.takes > one.most]


def _refusal(run: NewRun, limit: _Full) -> str:
    what = f"{bare(limit.name)} has no room for run {run.id!r}"
    if limit.takes > limit.most or not limit.opened:
        slots = "slot" if limit.takes == 1 else "slots"
        return f"{what}: it needs {limit.takes} {slots}, and the limit's number is {limit.most}: set a higher one"
    return f"{what}: run {limit.opened[0].id!r} is open: wait for its end, or cancel it"


def _row(row: Sequence[object], *about: object) -> LimitRow:
    values = dict(zip(LimitRow.__struct_fields__, (*row, *about), strict=False))
    values["is_set"], values["is_adaptive"] = bool(values["is_set"]), bool(values["is_adaptive"])
    return LimitRow(**values)  # type: ignore[arg-type]  # columns of a row

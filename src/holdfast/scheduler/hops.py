"""Turns what the code of a run did into the hop that writes it. Pure functions."""

from __future__ import annotations

import json

from holdfast import codec
from holdfast.decider.commands import Finish, Turn
from holdfast.decider.finish import interrupted
from holdfast.model import CANCEL, UNDO, NewSignal, RunState
from holdfast.scheduler.owned_run import Owned
from holdfast.store.answers import ClaimedRun
from holdfast.store.children import RESUME
from holdfast.store.operations import BeginUndo, Close, Hop


def complete(hop: Hop, turn: Turn, owned: Owned, now: float) -> None:
    """Add to the hop everything that the code did, except for the steps it issued."""
    if not turn.is_plain:
        _add_rest(hop, turn, owned, now)
    if turn.finish is not None:
        _finish(hop, turn.finish, owned, now)
    elif owned.decider.needs_reload:
        hop.is_plain, hop.park = False, True
        hop.sends = [*hop.sends, _wake(owned.run_id, f"reload-{owned.decider.seq}")]


def _add_rest(hop: Hop, turn: Turn, owned: Owned, now: float) -> None:
    """Add what few turns have."""
    hop.is_plain = False
    if turn.dropped:
        hop.dropped = turn.dropped
        if owned.asks:
            hop.withdrawn = [n for n in turn.dropped if n in owned.asks]
    if turn.begun_waits:
        hop.begun_waits = turn.begun_waits
    if turn.placed:
        hop.placed = turn.placed
    if turn.cancelled:
        hop.cancelled = turn.cancelled
    if turn.ended:
        hop.ended = [(n, seq, payload, now) for n, seq, payload in turn.ended]
    if turn.set_aside:
        hop.set_aside = turn.set_aside
    if turn.replies:
        hop.replies = [(*reply, now) for reply in turn.replies]
    if turn.sends:
        hop.sends = [*hop.sends, *turn.sends]
    if turn.progress is not None:
        hop.progress = turn.progress
    if turn.kept_n is not None:
        hop.kept_n = turn.kept_n
    if turn.published is not None:
        owned.published.update({key: json.loads(raw) for key, raw in turn.published.items()})
        hop.published = json.dumps(owned.published)
    if turn.logs:
        hop.logs = turn.logs


def _finish(hop: Hop, finish: Finish, owned: Owned, now: float) -> None:
    if finish.how == "continued":
        hop.is_plain = False
        hop.next_input, hop.unread = finish.input, finish.unread
        hop.begun_at, hop.had_updates = now, finish.had_updates
    elif finish.how == "undoing":
        hop.is_plain = False
        hop.undo = BeginUndo(finish.ending or "failed", finish.error)
        hop.sends = [*hop.sends, _wake(owned.run_id, f"begin-{owned.generation}")]
    else:
        state = RunState(finish.how)
        hop.close = Close(state, finish.output, finish.error, now, owned.parent_id, owned.parent_n)
        hop.close.ends_undo = owned.undo_n is not None
        if owned.undo_n is not None:
            hop.close.parent_n = owned.undo_n


def _wake(run_id: str, key: str) -> NewSignal:
    """Return a signal that makes a scheduler claim the run again: a run that has an undelivered signal can be claimed.
    The run leaves memory with this commit, and it has to go on."""
    return NewSignal(run_id, UNDO, key, RESUME)


def is_empty(hop: Hop) -> bool:
    """True if there is nothing to write."""
    return not (
        hop.begin
        or hop.outcomes
        or hop.signals
        or hop.set_aside
        or hop.replies
        or hop.issued
        or hop.dropped
        or hop.cancelled
        or hop.ended
        or hop.sends
        or hop.progress is not None
        or hop.published is not None
        or hop.kept_n is not None
        or hop.logs
        or hop.close
        or hop.undo
        or hop.park
        or hop.next_input is not None
    )


def cancelled_without_code(claimed: ClaimedRun) -> Hop | None:
    """Return the hop that cancels a run whose code no longer fits it. The rows alone say what there is to undo. None if
    nobody asked to cancel the run."""
    run = claimed.run
    asked = [row for row in claimed.signals if row.name == CANCEL and row.delivered_seq is None]
    if run.state is not RunState.RUNNING or not asked:
        return None
    last = max(
        (row.delivered_seq or 0 for rows in (claimed.steps, claimed.signals) for row in rows), default=0
    )
    hop = Hop(run.id, run.fence, signals=[(asked[0].id, last + 1)])
    hop.undo = BeginUndo("cancelled", codec.ended_by(interrupted("cancel").error or "", last, ()))
    hop.sends = [_wake(run.id, f"begin-{run.generation}")]
    return hop

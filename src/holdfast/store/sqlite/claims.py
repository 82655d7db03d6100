"""Claims on SQLite. A claim finds candidates in small index ranges, and then claims them by their fences.

No two transactions write at the same time. So what a transaction has found, it can claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apsw
import msgspec

from holdfast.store.claims import LOSSES_NEVER, RunClaim, StepClaim
from holdfast.store.database import Row
from holdfast.store.sqlite.verbs import STATEMENTS, SqliteVerb
from holdfast.store.verbs import Verb

_WHOLE = STATEMENTS.whole
_json = msgspec.json.Encoder().encode
ABOVE_ALL = 2**31
"""Higher than any priority."""
NO_END = float("inf")
"""Later than any time."""
DueStep = tuple[int, float, str, int, int, int]
"""(-priority, ready_at, run, n, fence, losses). Sorted, these are in the order of priority, then age."""
DueRun = tuple[int, float, str]
"""(-priority, created_at, id). Sorted, these are in the order of priority, then age."""


def claim_steps(connection: apsw.Connection, claim: StepClaim, now: float) -> list[Row]:
    """Claim steps for an agent."""
    if not _find(connection, SqliteVerb.is_member, claim.node):
        return []
    due = _due_steps(connection, claim, _lanes(connection, claim), now)
    if claim.suspects:
        suspects = [step for step in due if step[-1] >= claim.suspect_losses]
        due = [step for step in due if step[-1] < claim.suspect_losses] + suspects[: claim.suspects]
    rows = [(run_id, n, fence, claim.node, now) for _, _, run_id, n, fence, _ in due]
    taken: list[Row] = connection.executemany(_WHOLE[Verb.claim_steps], rows).fetchall() if rows else []
    return taken


def any_steps(connection: apsw.Connection, claim: StepClaim, now: float) -> bool:
    """True if there is anything to claim. So an idle agent does not take the write lock."""
    if not _find(connection, SqliteVerb.any_ready):
        return False  # most polls end here, however many lanes there are
    if claim.probes_of is not None and not _find(connection, Verb.probing, claim.probes_of):
        return False
    return bool(_due_steps(connection, claim._replace(limit=1), _lanes(connection, claim), now))


def open_lanes(connection: apsw.Connection, claim: StepClaim) -> list[int]:
    """Return the lanes to walk in. There are none if the node was reclaimed, or if nothing is ready, which is the most
    frequent case."""
    if not _find(connection, SqliteVerb.is_member, claim.node) or not _find(connection, SqliteVerb.any_ready):
        return []
    if claim.probes_of is not None and not _find(connection, Verb.probing, claim.probes_of):
        return []
    return _lanes(connection, claim)


def _lanes(connection: apsw.Connection, claim: StepClaim) -> list[int]:
    """Return those lanes of the claim that are not behind a gate."""
    wanted = _json(list(claim.lanes)).decode()
    if claim.probes_of is None:
        found = _find(connection, SqliteVerb.passable_lanes, wanted)
    else:
        found = _find(connection, SqliteVerb.probe_lanes, claim.probes_of, wanted)
    return [row[0] for row in found]


def _due_steps(
    connection: apsw.Connection, claim: StepClaim, lanes: Sequence[int], now: float
) -> list[DueStep]:
    """Return ready steps that are due, by priority, then age. Suspects are included only if the claim may have one."""
    losses_below = LOSSES_NEVER if claim.suspects or claim.probes_of is not None else claim.suspect_losses
    found: list[DueStep] = []
    for run_id in claim.runs or ():
        rows = _find(connection, SqliteVerb.due_steps_of, run_id, now, losses_below)
        found += [(-row[0], *row[1:6]) for row in rows if row[6] in lanes]
    for lane in lanes if claim.runs is None else ():
        wanted = claim.limit
        for priority in _priorities(connection, lane):
            rows = _find(connection, SqliteVerb.due_steps, lane, priority, now, losses_below, wanted)
            found += [(-row[0], *row[1:]) for row in rows]
            wanted -= len(rows)
            if wanted <= 0:
                break
    found.sort()
    return found[: claim.limit]


def _priorities(connection: apsw.Connection, lane: int) -> Iterator[int]:
    """Yield the priorities of the ready steps of a lane, highest first."""
    priority = ABOVE_ALL
    while found := _find(connection, SqliteVerb.next_priority, lane, priority):
        priority = found[0][0]
        yield priority


def claim_runs(connection: apsw.Connection, claim: RunClaim) -> list[Row]:
    """Claim runs for a scheduler."""
    claimed: list[Row] = []
    steps = 0
    for _, _, run_id in _due_runs(connection, claim):
        if steps >= claim.steps_max:
            break  # the others are claimed later, after these were replayed
        claimed += _find(connection, Verb.claim_run, claim.node, run_id)
        steps += _find(connection, SqliteVerb.history_size, run_id)[0][0]
    return claimed


def any_runs(connection: apsw.Connection, claim: RunClaim) -> bool:
    """True if there is anything to claim. So an idle scheduler does not take the write lock."""
    return bool(_due_runs(connection, claim._replace(limit=1)))


def _due_runs(connection: apsw.Connection, claim: RunClaim) -> list[DueRun]:
    """Return runs that can be claimed: pending ones, from one index range per workflow, and those with something to
    deliver."""
    found: set[DueRun] = set()
    awake: Iterable[Any]
    if claim.runs is None:
        # A walk finds pending runs by itself.
        for workflow, version in claim.workflows if claim.turns is None else ():
            found.update(_pending_runs(connection, workflow, version, claim.limit))
        awake = _find(connection, SqliteVerb.awake_runs)
    else:
        awake = (row for run_id in claim.runs for row in _find(connection, SqliteVerb.claimable_run, run_id))
    served = set(claim.workflows)
    for priority, created_at, run_id, workflow, version in awake:
        if (workflow, version) in served:
            found.add((-priority, created_at, run_id))
    return sorted(found)[: claim.limit]


def _pending_runs(connection: apsw.Connection, workflow: str, version: str, wanted: int) -> Iterator[DueRun]:
    """Yield pending runs of queue 0, by priority, then age. Only within one priority are they in the order of the index."""
    priority = ABOVE_ALL
    while wanted > 0 and (
        found := _find(connection, SqliteVerb.next_run_priority, workflow, version, priority)
    ):
        priority = found[0][0]
        rows = _find(connection, SqliteVerb.pending_in_queue, workflow, version, priority, 0, NO_END, wanted)
        yield from ((-priority, created_at, run_id) for created_at, run_id in rows)
        wanted -= len(rows)


def _find(connection: apsw.Connection, verb: Verb | SqliteVerb, *values: Any) -> list[Any]:
    return connection.execute(_WHOLE[verb], values).fetchall()

"""Rare states that must be reached now and then: a simulation that never gets there proves nothing about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lifecycle import RUN_ENDED
from holdfast.model import NEVER

if TYPE_CHECKING:
    from tests.simulation.invariants import Commit
    from tests.simulation.simulation import Simulation

SOMETIMES = (
    "a commit's fate: lost",
    "a commit's fate: unanswered",
    "a commit's fate: dies before",
    "a commit's fate: dies after",
    "the disk was full",
    "a process was killed",
    "a process was killed in the middle of a step",
    "a host vanished",
    "a process was stopped for longer than its lease",
    "the leader was stopped",
    "the clock was set back",
    "the clock was set forward",
    "a process left and was replaced",
    "another leader took over",
    "a node was buried with steps in its hands",
    "a node was buried with runs in its hands",
    "a step was lost too often and waits for a person",
    "a step came back from quarantine",
    "an overdue attempt was ended by the leader",
    "a late report was refused",
    "a step was handed back",
    "a step was tried again",
    "an attempt found the checkpoint of an earlier one",
    "a run went from one node to another",
    "a run left memory",
    "a timer of a sleeping run fired",
    "a timer fired in memory",
    "a signal came before it was waited for",
    "two outcomes were delivered by one commit",
    "a child was started",
    "a child was asked to cancel itself",
    "a run was asked to cancel itself",
    "a run was held",
    "a run was released",
    "a part of a run was taken back while it went on",
    "a run began again with a new history",
    "a step was given up while it ran",
    "an undo was tried again",
    "a run was stuck",
    "a run ended: succeeded",
    "a run ended: failed",
    "a run ended: undone",
    "a run ended: cancelled",
    "a node that was away gave back what it did not know of",
    "a doubled Report was duplicate",
    "a doubled Hop was fenced",
    "a doubled TryAgain was fenced",
)


def observe(simulation: Simulation, commit: Commit) -> None:
    """What a commit shows."""
    say, verb = simulation.sometimes, commit.verb
    delivered = 0
    for _, before, after in commit.steps:
        if after is None:
            continue
        if after.delivered_seq and (before is None or not before.delivered_seq):
            delivered += 1
        if before is None:
            if after.kind == "child":
                say("a child was started")
            elif after.key.startswith("undo:"):
                run = simulation.checker.runs.get(after.run_id)
                if run is not None and run.state == "running":
                    say("a part of a run was taken back while it went on")
            continue
        if before.state == "running":
            if verb == "bury":
                say("a node was buried with steps in its hands")
                if after.ready_at > NEVER / 2:
                    say("a step was lost too often and waits for a person")
            elif verb == "end_overdue":
                say("an overdue attempt was ended by the leader")
            elif verb == "reconcile":
                say("a node that was away gave back what it did not know of")
            elif after.state == "cancelled":
                say("a step was given up while it ran")
            elif after.state == "ready":
                handed = after.excused > before.excused and after.error == before.error
                say("a step was handed back" if handed else "a step was tried again")
                if after.key.startswith("undo:") and not handed:
                    say("an undo was tried again")
        elif before.ready_at > NEVER / 2 > after.ready_at:
            say("a step came back from quarantine")
        elif before.kind == "timer" and after.state == "succeeded":
            say("a timer of a sleeping run fired" if verb == "fire_timers" else "a timer fired in memory")
    if delivered > 1:
        say("two outcomes were delivered by one commit")
    for _, before, after in commit.runs:
        if after is None or before is None:
            continue
        if verb == "bury" and before.owner is not None:
            say("a node was buried with runs in its hands")
        if verb.startswith("claim_run") and after.fence > 2:
            say("a run went from one node to another")
        if (
            verb == "commit"
            and before.owner is not None
            and after.owner is None
            and after.state == before.state
        ):
            say("a run left memory")
        if before.state == "held" and after.state != "held":
            say("a run was released")
        if after.generation > before.generation:
            say("a run began again with a new history")
        if after.state == "stuck" and before.state != "stuck":
            say("a run was stuck")
        if after.state in RUN_ENDED and before.state not in RUN_ENDED:
            say(f"a run ended: {after.state}")
    for _, before, after in commit.signals:
        if before is None and after is not None:
            if after.name == "$cancel" and verb == "commit":
                say("a child was asked to cancel itself")
        elif after is not None and after.delivered_seq and after.name == "note":
            if not any(step is not None and step.kind == "signal" for _, _, step in commit.steps):
                say("a signal came before it was waited for")
    for row in commit.attempts:
        if row.ending == "refused":
            say("a late report was refused")
    for table, before, after in commit.changes:
        if (
            table == "leases"
            and before is not None
            and after is not None
            and before.holder != after.holder is not None
        ):
            say("another leader took over")

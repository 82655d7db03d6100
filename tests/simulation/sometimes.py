"""Rare states that must be reached now and then: a simulation that never gets there proves nothing about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lifecycle import RUN_ENDED
from holdfast.model import NEVER, UNDO_PREFIX, undone_key
from holdfast.node import Node
from tests.simulation.invariants import OPERATORS, Gates

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
    "a node that had steps was reclaimed",
    "a node that had runs was reclaimed",
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
    "an event was sent",
    "an event was sent again",
    "an event woke a run",
    "an event was the last part of an occasion",
    "a time arrived at an occasion",
    "an operator ended an occasion: started",
    "an operator ended an occasion: expired",
    "a limit was full",
    "an adaptive limit rose",
    "an adaptive limit fell",
    "an update was answered: returned",
    "an update was answered: refused",
    "an update was answered: failed",
    "two outcomes were delivered by one commit",
    "a child was started",
    "a child was asked to cancel itself",
    "a run was asked to cancel itself",
    "a run was held",
    "a run was released",
    "a part of a run was undone while it went on",
    "a run began again with a new history",
    "a step was given up while it ran",
    "an undo was tried again",
    "a run was stuck",
    "a run ended: succeeded",
    "a run ended: failed",
    "a run ended: undone",
    "a run ended: cancelled",
    "a node that was away handed back what it did not know of",
    "a doubled Outcome was duplicate",
    "a doubled Hop was fenced",
    "a doubled RetryStep was fenced",
    "a twin was made",
    "a twin won",
    "a twin was outrun by its step",
    "a twin failed",
    "a twin was barred before it began",
    "a step that failed waited for its twin",
    "a step and its twin both had the effect",
    "a step that had run twice was undone",
    "the doubled end of a twin was duplicate",
    "the shop was down",
    "an agent stopped by itself",
    "a breaker opened",
    "a step waited behind a breaker",
    "a breaker was probed",
    "a breaker opened again",
    "a wave of probes grew",
    "probes were lost and given back",
    "a breaker closed",
    "a breaker was opened by hand",
    "a breaker was closed by hand",
    "a step waited behind a hold: workflow",
    "a step waited behind a hold: step",
    "a step waited behind a hold: dependency",
    "a step waited behind a hold: namespace",
    "a step waited behind a hold: all",
    "a hold was released",
    "a step killed its agent",
    "a step spent its attempts and waits for a person",
    "an operator decided about quarantine: released",
    "an operator decided about quarantine: skipped",
    "an operator decided about quarantine: given up",
    "a child's id was taken",
    "a run was joined",
    "a run that had joined another one got its outcome",
    "a run was retried",
    "a run that was retried is retried",
    "a child of a run was taken over by its retry",
    "a child was retried with its parent",
    "an effect kept its key when its run was retried",
    "a retry did again what was undone",
    "a run went the old way at a marker",
    "a run went the new way at a marker",
    "a step returned what cannot be stored",
    "a signal was set aside",
    "a deadline came",
    "a step that failed for sure was undone",
    "an undo was steered: retry",
    "an undo was steered: skip",
    "an undo was steered: abandon",
    "a process was stopped before it got an answer",
    "the answer to a renewal was late",
    "the process of a step died",
    "a step did not end when it was cancelled",
    "a run was started by another one",
    "a run outlived the one that had started it, which failed",
    "a run was forked where it was",
    "a run was forked from a step",
    "a run was forked with a result",
    "a run was forked anew",
    "a fork returned a result that was set",
    "a map was divided into pages",
    "the middle of what a step logged was left out",
    "all that a step logged was kept",
    "a run was started within a transaction",
    "a start within a transaction was refused",
    "a transaction that had started a run was rolled back",
    "a heart renewed a lease",
    "a heart said that its process is gone",
    "an answer to a heart was late",
    "a heart was killed",
    "a failed run was reported",
    "a child was removed before its parent",
    "an act: done",
    "an act: changed",
    "an act was taken over",
    "the same id was started in two namespaces",
    "claimed by a node for acme",
    "claimed by a node for several namespaces",
    "an act was stopped",
    "a batch began",
    "a batch was full",
    "a debounced run took several starts",
    "a callback was new",
    "a callback was gone",
    "a request counted as made",
    "a run with a callback was answered and retried",
    "a time of a schedule: started",
    "a time of a schedule: buffered",
    "a time of a schedule: skipped",
    "a time of a schedule: missed",
    "a time of a schedule: replaced",
    "a run was started through a server",
    "a remote agent claimed",
    "a remote process was cut off",
    "a lease was shortened",
    "the stream of a live agent was cut",
    "steps were handed back after a lost reply",
    "a stranger was refused: report",
    "a server was killed",
)


def observe(simulation: Simulation, commit: Commit) -> None:
    """Count the rare states that a commit shows."""
    if simulation.parts.any:
        observe_twins(simulation, commit)
        observe_gates(simulation, commit)
        observe_quarantine(simulation, commit)
    if simulation.parts.families:
        observe_families(simulation, commit)
    reached, verb = simulation.sometimes, commit.verb
    delivered = 0
    for _, before, after in commit.steps:
        if after is None:
            continue
        if after.delivered_seq and (before is None or not before.delivered_seq):
            delivered += 1
        if before is None:
            if after.kind == "child" and after.key.startswith("undo:"):
                run = simulation.checker.runs.get(after.run_id)
                saga = run is not None and run.state == "running"
                reached("a saga undid a child" if saga else "a run that was undone undid a child")
            elif after.kind == "child":
                reached("a child was started")
            elif after.key.startswith("undo:"):
                run = simulation.checker.runs.get(after.run_id)
                if run is not None and run.state == "running":
                    reached("a part of a run was undone while it went on")
            continue
        if before.state == "running":
            if verb == "reclaim":
                reached("a node that had steps was reclaimed")
                if after.ready_at > NEVER / 2:
                    reached("a step was lost too often and waits for a person")
            elif verb == "end_overdue":
                reached("an overdue attempt was ended by the leader")
            elif verb == "reconcile":
                reached("a node that was away handed back what it did not know of")
            elif after.state == "cancelled":
                reached("a step was given up while it ran")
            elif after.state == "ready":
                handed = after.excused > before.excused and after.error == before.error
                reached("a step was handed back" if handed else "a step was tried again")
                if after.key.startswith("undo:") and not handed:
                    reached("an undo was tried again")
        elif before.ready_at > NEVER / 2 > after.ready_at:
            reached("a step came back from quarantine")
        elif before.kind == "timer" and after.state == "succeeded":
            reached("a timer of a sleeping run fired" if verb == "fire_timers" else "a timer fired in memory")
    if delivered > 1:
        reached("two outcomes were delivered by one commit")
    for _, before, after in commit.runs:
        if after is None or before is None:
            continue
        if verb == "reclaim" and before.owner is not None:
            reached("a node that had runs was reclaimed")
        if verb.startswith("claim_run") and after.fence > 2:
            reached("a run went from one node to another")
        if (
            verb == "commit"
            and before.owner is not None
            and after.owner is None
            and after.state == before.state
        ):
            reached("a run left memory")
        if before.state == "held" and after.state != "held":
            reached("a run was released")
        if after.generation > before.generation:
            reached("a run began again with a new history")
        if after.state == "stuck" and before.state != "stuck":
            reached("a run was stuck")
        if after.state in RUN_ENDED and before.state not in RUN_ENDED:
            reached(f"a run ended: {after.state}")
    for _, before, after in commit.signals:
        if before is None and after is not None:
            if after.name == "$cancel" and verb == "commit":
                reached("a child was asked to cancel itself")
        elif after is not None and after.delivered_seq and after.name == "note":
            if not any(step is not None and step.kind == "signal" for _, _, step in commit.steps):
                reached("a signal came before it was waited for")
    for row in commit.attempts:
        if row.ending == "refused":
            reached("a late report was refused")
    for table, before, after in commit.changes:
        if (
            table == "leases"
            and before is not None
            and after is not None
            and before.holder != after.holder is not None
        ):
            reached("another leader took over")


def observe_twins(simulation: Simulation, commit: Commit) -> None:
    reached, checker = simulation.sometimes, simulation.checker
    for _, before, after in commit.twins:
        if after is None:
            continue
        step = checker.steps.get((after.run_id, after.n))
        if before is None:
            reached("a twin was made" if after.state == "ready" else "a step without a twin failed")
        elif after.state == "won":
            reached("a twin won")
            if any(old is not None and old.state == "ready" for _, old, _ in commit.steps):
                reached("a twin won while its step waited for its next attempt")
        elif after.state == "failed":
            reached("a twin failed")
        elif after.state == "barred":
            reached("a twin was barred before it began")
        elif after.state == "outrun" and before.state == "running":
            if step is not None and step.finished_at is not None:
                reached("a twin was outrun by its step")
            elif commit.verb == "sweep_twins" and checker.nodes[after.agent].retired_at is not None:
                reached("a twin's agent was lost")
            elif commit.verb == "stop_twin":
                reached("a step that failed stopped its twin")
    for _, before, after in commit.steps:
        if after is None or before is None or after.state == before.state:
            continue
        twin = checker.twins.get((after.run_id, after.n))
        if twin is not None and twin.started_at is not None:
            if after.state == "failed" and commit.verb == "commit":
                reached("a step that failed waited for its twin")
            if simulation.book.counts[f"{after.run_id}::{after.key}"] > 1 and after.state == "succeeded":
                reached("a step and its twin both had the effect")
        if after.state == "succeeded" and after.key.startswith(UNDO_PREFIX):
            key = undone_key(after.key)[0]
            origin = checker.twins.get((after.run_id, checker.keys.get((after.run_id, key), 0)))
            if origin is not None and simulation.book.counts[f"{after.run_id}::{key}"] > 1:
                reached("a step that had run twice was undone")


def observe_gates(simulation: Simulation, commit: Commit) -> None:
    reached, checker = simulation.sometimes, simulation.checker
    for _, before, after in commit.breakers:
        moved = ("" if before is None else before.state, after.state)
        if commit.verb in OPERATORS:
            if after.forced:
                reached(f"a breaker was {'opened' if after.state == 'open' else 'closed'} by hand")
        elif moved == ("closed", "open"):
            reached("a breaker opened")
        elif moved == ("probing", "open"):
            reached("a breaker opened again")
        elif moved == ("open", "probing"):
            reached("a breaker was probed")
        elif moved == ("probing", "closed"):
            reached("a breaker closed")
        elif moved == ("probing", "probing") and after.wave > before.wave:
            reached("a wave of probes grew")
        elif commit.verb == "give_back_probes":
            reached("probes were lost and given back")
    agent = commit.process.node.agent if isinstance(commit.process._caller, Node) else None
    if agent is not None and agent.gates.paused:
        reached("an agent stopped by itself")
    if checker.barred:
        for _, _, after in commit.steps:
            if after is not None and after.state == "ready":
                if (after.run_id, after.n, after.attempt) in checker.barred:
                    reached("a step that was handed over came back because of a gate")
    for table, before, after in commit.changes:
        if table == "holds" and after is None:
            reached("a hold was released")
            if _waited(simulation, Gates(frozenset(), frozenset((before,))), commit.now):
                reached(f"a step waited behind a hold: {before.scope}")
        elif (
            table == "breakers" and before is not None and (before.state, after.state) == ("open", "probing")
        ):
            if _waited(simulation, Gates(frozenset((after.name,)), frozenset()), commit.now):
                reached("a step waited behind a breaker")


def _waited(simulation: Simulation, gates: Gates, now: float) -> bool:
    """True if a step waits behind these gates and would otherwise begin."""
    checker = simulation.checker
    return any(
        step.state == "ready"
        and step.ready_at <= now
        and step.lane in checker.lanes
        and gates.keeps(checker.lanes[step.lane], checker.runs[step.run_id]) is not None
        for step in checker.steps.values()
    )


def observe_families(simulation: Simulation, commit: Commit) -> None:
    reached, checker = simulation.sometimes, simulation.checker
    for _, before, after in commit.runs:
        if after is None:
            continue
        if before is None and after.retry_of is not None:
            reached(
                "a child was retried with its parent" if after.parent_id is not None else "a run was retried"
            )
            old = checker.runs.get(after.retry_of)
            if old is not None and old.retry_of is not None:
                reached("a run that was retried is retried")
        if before is not None and before.parent_id is not None and before.parent_id != after.parent_id:
            reached("a child of a run was taken over by its retry")
    for _, before, after in commit.steps:
        if after is None or after.error is None or (before is not None and before.error == after.error):
            continue
        if after.kind == "child" and "Conflict" in after.error:
            reached("a child's id was taken")
        elif after.kind == "call" and "InvalidInput" in after.error:
            reached("a step returned what cannot be stored")
    for _, before, after in commit.signals:
        if after is not None and after.set_aside is not None and (before is None or before.set_aside is None):
            reached("a signal was set aside")
    for table, before, _ in commit.changes:
        if table == "joins":
            reached(
                "a run was joined" if before is None else "a run that had joined another one got its outcome"
            )


def observe_quarantine(simulation: Simulation, commit: Commit) -> None:
    reached = simulation.sometimes
    for _, before, after in commit.steps:
        if after is None or before is None:
            continue
        if commit.verb == "resolve_quarantine":
            how = {"ready": "released", "succeeded": "skipped", "failed": "given up"}[after.state]
            reached(f"an operator decided about quarantine: {how}")
        elif after.ready_at > NEVER / 2 > before.ready_at and commit.verb == "commit":
            reached("a step spent its attempts and waits for a person")

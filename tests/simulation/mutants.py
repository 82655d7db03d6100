"""Planted bugs, called mutants. Checks that find no bug are worth nothing, so the simulation must find each mutant within
its number of seeds.

A mutant changes a statement or a function of the product while it is switched on. A claim that begins with `was:` belongs
to a bug that the simulation once found in the product. The mutant stays here so that the bug cannot come back unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from msgspec import structs

from holdfast import breaker, policy
from holdfast.agent import executor, outcome
from holdfast.agent.agent import Agent
from holdfast.agent.claims import Claimer
from holdfast.agent.gatekeeper import Gatekeeper
from holdfast.agent.places import Places
from holdfast.agent.twins import TwinKeeper
from holdfast.decider import decider as deciding
from holdfast.decider import history, undo_plan
from holdfast.decider.decider import Decider
from holdfast.decider.heritage import Heritage
from holdfast.decider.mailbox import Mailbox
from holdfast.decider.undo_order import Reverse
from holdfast.errors import InvalidInput
from holdfast.model import BreakerState, Outcome, StepKind, StepState
from holdfast.node import Node
from holdfast.scheduler.new_steps import NewSteps
from holdfast.scheduler.owned_run import Owned
from holdfast.scheduler.scheduler import Scheduler
from holdfast.store import batch, children, retries
from holdfast.store.answers import Answer
from holdfast.store.operations import Start
from holdfast.store.sqlite.verbs import STATEMENTS
from holdfast.store.verbs import Verb
from holdfast.store.writer import Writer
from holdfast.supervisor import breakers, reclaim
from holdfast.testing import world as worlds
from holdfast.workflow import undo as saga_undo

Switch = Callable[[ExitStack], None]


class Mutant(NamedTuple):
    name: str
    claim: str
    """What is true of the product, and no longer true with the mutant."""
    switch: Switch
    within: int
    """The simulation must find the mutant within this many seeds."""
    part: str = ""
    """Only seeds that play this part count: see `parts.py`."""


MUTANTS: list[Mutant] = []


def mutant(claim: str, within: int, part: str = "") -> Callable[[Switch], Switch]:
    def add(switch: Switch) -> Switch:
        MUTANTS.append(Mutant(switch.__name__, claim, switch, within, part))
        return switch

    return add


@contextmanager
def switched_on(mutant: Mutant) -> Iterator[None]:
    with ExitStack() as stack:
        mutant.switch(stack)
        yield


def sql(stack: ExitStack, verb: str, old: str, new: str) -> None:
    text = STATEMENTS[verb]
    assert old in text, f"the statement {verb} no longer contains {old!r}: change the mutant"
    stack.enter_context(patch.dict(STATEMENTS.whole, {verb: text.replace(old, new)}))


def code(stack: ExitStack, owner: Any, name: str, new: Any) -> None:
    assert hasattr(owner, name), f"{owner} has no {name}: change the mutant"
    stack.enter_context(patch.object(owner, name, new))


# --- fences -----------------------------------------------------------------------------------------------------------


@mutant("an outcome counts only with the fence that its agent got", within=60)
def no_fence_in_outcome(stack: ExitStack) -> None:
    sql(stack, "record_outcomes", "AND fence = ?3", "AND ?3 IS NOT NULL")


@mutant("a hop counts only with the current fence of its run", within=200)
def no_fence_in_hop(stack: ExitStack) -> None:
    sql(stack, "own_runs", "AND fence = ?2", "AND ?2 IS NOT NULL")


@mutant("a retry counts only with the fence that its agent got", within=200)
def no_fence_in_retry(stack: ExitStack) -> None:
    sql(stack, "retry_steps", "AND fence = ?3", "AND ?3 IS NOT NULL")
    sql(stack, "keep_attempts", "AND fence = ?3", "AND ?3 IS NOT NULL")


@mutant("reclaiming a step raises its fence", within=100)
def reclaim_keeps_the_fence(stack: ExitStack) -> None:
    sql(stack, "reclaim_steps", "fence = fence + 1", "fence = fence")


@mutant("freeing a run raises its fence", within=100)
def freed_runs_keep_their_fence(stack: ExitStack) -> None:
    sql(stack, "free_runs", "fence = fence + 1", "fence = fence")


# --- leases and leaders -----------------------------------------------------------------------------------------------


@mutant("only a node whose lease has run out is reclaimed", within=30)
def reclaims_live_leases(stack: ExitStack) -> None:
    sql(
        stack,
        "lapsed_nodes",
        "lease_until < (SELECT store_now())",
        "lease_until - 1.9 < (SELECT store_now())",
    )
    _skips_the_second_look(stack)


def _skips_the_second_look(stack: ExitStack) -> None:
    real = reclaim.death_of
    code(stack, reclaim, "death_of", lambda node, now: real(node, now) or reclaim.Death.LAPSED)


@mutant("a leader's write checks its epoch", within=400)
def deposed_leaders_write(stack: ExitStack) -> None:
    sql(stack, "leads", STATEMENTS["leads"], "SELECT 1 WHERE ?1 IS NOT NULL AND ?2 IS NOT NULL")


@mutant("a leader's lease keeps others from leading", within=60)
def two_leaders(stack: ExitStack) -> None:
    sql(stack, "lead", "WHERE holder = ?1 OR", "WHERE 1 OR")


@mutant("a node that could not renew its lease stops itself", within=200)
def never_stops_itself(stack: ExitStack) -> None:
    async def do_nothing(self: Any) -> None: ...

    code(stack, Node, "has_lease", lambda self: True)
    code(stack, Node, "_watch_lease", do_nothing)


@mutant("a node that was reclaimed claims nothing more", within=600)
def reclaimed_nodes_claim(stack: ExitStack) -> None:
    for verb in ("is_member", "claim_run"):
        is_member = "EXISTS (SELECT 1 FROM nodes WHERE id = ?1 AND retired_at IS NULL)"
        sql(stack, verb, is_member, "?1 IS NOT NULL")


@mutant("leases depend on the clock of the store, not on those of the nodes", within=100)
def skewed_clocks(stack: ExitStack) -> None:
    class Skewed:
        def __init__(self, clock: Any, skew_s: float) -> None:
            self._clock, self._skew_s = clock, skew_s

        def now(self) -> float:
            return float(self._clock.now() + self._skew_s)

        def begin_session(self) -> float:
            self._clock._session_now = self.now()
            return self.now()

    real = worlds.SharedDatabase.__init__

    def init(self: Any, world: Any, process: Any) -> None:
        real(self, world, process)
        self.clock = Skewed(world.clock, process.environment.skew_s / 20)

    code(stack, worlds.SharedDatabase, "__init__", init)


# --- counting ---------------------------------------------------------------------------------------------------------


@mutant("a claim counts the attempt", within=10)
def claims_are_not_counted(stack: ExitStack) -> None:
    sql(stack, "claim_steps", "attempt = attempt + 1,", "")


@mutant("a loss is counted", within=60)
def losses_are_not_counted(stack: ExitStack) -> None:
    sql(stack, "reclaim_steps", "losses = losses + ?6", "losses = losses + 0 * ?6")


@mutant("a step is not retried when its budget is spent", within=60)
def retries_for_ever(stack: ExitStack) -> None:
    real = policy.decide

    def decide(*facts: Any, **more: Any) -> Any:
        verdict = real(*facts, **more)
        return policy.RetryAfter(0.05) if isinstance(verdict, policy.GiveUp) else verdict

    code(stack, policy, "decide", decide)


# --- lost work --------------------------------------------------------------------------------------------------------


@mutant("the leader reclaims the steps of a node that is gone", within=60)
def reclaim_leaves_steps_out(stack: ExitStack) -> None:
    sql(stack, "lost_by", "WHERE state = 'running'", "WHERE state = 'running' AND fence < 0")


@mutant("a start is answered only after it is committed", within=200)
def starts_are_not_durable(stack: ExitStack) -> None:
    async def start_run(self: Any, run: Any) -> Answer:
        self.writer.submit(Start(run), lambda answer: None)
        return Answer.ACCEPTED

    code(stack, Node, "start_run", start_run)


@mutant("a signal wakes the run that waits for it", within=300)
def parked_runs_sleep_for_ever(stack: ExitStack) -> None:
    union = "UNION SELECT run_id FROM signals INDEXED BY signals_undelivered WHERE delivered_seq IS NULL"
    sql(stack, "awake_runs", union, "")


@mutant("a timer fires even if no node has its run in memory", within=200)
def sleeping_timers_never_fire(stack: ExitStack) -> None:
    sql(stack, "due_timers", "WHERE s.state = 'waiting'", "WHERE s.state = 'waiting' AND s.fence < 0")


@mutant("a child that ends gives its outcome to its parent", within=60)
def parents_get_no_outcome(stack: ExitStack) -> None:
    sql(stack, "end_child_steps", "WHERE run_id = ?1", "WHERE 0 AND run_id = ?1")


@mutant("a node that was away hands back what it does not know of", within=400)
def nothing_is_reconciled(stack: ExitStack) -> None:
    async def do_nothing(self: Any) -> None: ...

    code(stack, Node, "reconcile", do_nothing)


@mutant("was: a node hands back what it claimed if the answer to the claim got lost", within=400)
def lost_claims_stay_lost(stack: ExitStack) -> None:
    code(stack, Writer, "doubt", lambda self: None)


@mutant("was: a run that was parked before it asked for anything is claimed again", within=200)
def parked_before_it_asked(stack: ExitStack) -> None:
    sql(stack, "park_runs", "ELSE 'pending' END", "ELSE runs.state END")
    sql(stack, "free_runs", "ELSE 'pending' END", "ELSE runs.state END")


@mutant("a checkpoint that was acknowledged is in the store", within=60)
def checkpoints_are_not_written(stack: ExitStack) -> None:
    sql(stack, "save_steps", "coalesce(?4, checkpoint)", "iif(?4 IS NULL, checkpoint, checkpoint)")


@mutant("an attempt gets the checkpoint of an earlier one", within=60)
def attempts_get_no_checkpoint(stack: ExitStack) -> None:
    real = Agent._begin

    def begin(self: Any, assignment: Any, checkpoint: Any = None, *, is_barred: bool = False) -> None:
        real(self, assignment, None, is_barred=is_barred)

    code(stack, Agent, "_begin", begin)


@mutant("a step that is lost keeps its checkpoint", within=300)
def lost_steps_lose_their_checkpoint(stack: ExitStack) -> None:
    sql(stack, "reclaim_steps", "agent = NULL, state", "agent = NULL, checkpoint = NULL, state")


# --- order and time ---------------------------------------------------------------------------------------------------


@mutant("replay delivers outcomes in the recorded order", within=100)
def replays_in_another_order(stack: ExitStack) -> None:
    real = history.timeline
    code(stack, deciding, "timeline", lambda steps, signals: iter(list(real(steps, signals))[::-1]))


@mutant("an outcome or signal is delivered once", within=200)
def delivers_twice(stack: ExitStack) -> None:
    def arrive(self: Any, arrival: Any) -> bool:
        self.inbox.append(arrival)
        return True

    code(stack, Owned, "arrive", arrive)
    sql(stack, "deliver_steps", "AND +delivered_seq IS NULL", "")
    sql(stack, "deliver_signals", "AND +delivered_seq IS NULL", "")


@mutant("outcomes are numbered without gaps", within=100)
def numbers_have_gaps(stack: ExitStack) -> None:
    real = Decider.deliver

    def deliver(self: Any, *args: Any, **more: Any) -> int:
        self.seq += 1
        return real(self, *args, **more)

    code(stack, Decider, "deliver", deliver)


@mutant("a timer does not fire before its time", within=30)
def timers_fire_early(stack: ExitStack) -> None:
    def fire(self: Any) -> int:
        now = self._clock.now()
        for run_id, n in self.timers.take_due(now + 0.4):
            owned = self.runs.get(run_id)
            if owned is not None and n in owned.decider.waiting:
                if owned.arrive(Outcome(run_id, n, StepState.SUCCEEDED, None, None, now, 0)):
                    self._advance(owned)
        return 0

    code(stack, Scheduler, "fire", fire)


@mutant("a step that backs off does not begin before its time", within=60)
def back_off_is_ignored(stack: ExitStack) -> None:
    sql(stack, "due_steps", "s.ready_at <= ?3", "s.ready_at <= ?3 + 1")


@mutant("the steps of a held run do not begin", within=600)
def held_runs_go_on(stack: ExitStack) -> None:
    sql(stack, "due_steps", "(+r.state = 'running' OR +r.state = 'undoing')", "1")


@mutant("a cancel ends the run", within=300)
def cancels_are_ignored(stack: ExitStack) -> None:
    code(stack, Decider, "_cancel", lambda self, why: None)


@mutant("a step begins only after the commit that issued it", within=60)
def acts_before_the_commit(stack: ExitStack) -> None:
    real = NewSteps.issue

    def issue(self: Any, owned: Any, hop: Any, issues: Any, seated: Any) -> Any:
        rows = real(self, owned, hop, issues, seated)
        if seated and self._seat is not None:
            self._seat.begin(list(seated))
            seated.clear()
        return rows

    code(stack, NewSteps, "issue", issue)


# --- rows -------------------------------------------------------------------------------------------------------------


@mutant("a new generation begins without the progress of the one before", within=300)
def generations_keep_their_progress(stack: ExitStack) -> None:
    sql(stack, "continue_runs", "progress = NULL, ", "")


@mutant("a commit writes a checkpoint only for the attempt that made it", within=400)
def stale_saves_are_written(stack: ExitStack) -> None:
    sql(stack, "save_steps", "AND fence = ?3", "AND ?3 IS NOT NULL")


@mutant("a run that is held keeps what the operator said", within=60)
def holds_are_written_without_their_note(stack: ExitStack) -> None:
    sql(stack, "hold", "note = ?2", "note = coalesce(note, iif(?2 IS NULL, NULL, NULL))")


@mutant("the oldest signal is read first", within=300)
def newer_signals_come_first(stack: ExitStack) -> None:
    def wait(self: Any, wait: Any) -> None:
        unread = self._unread.get(wait.name)
        if unread:
            unread.rotate(1)
        real(self, wait)

    real = Mailbox.wait
    code(stack, Mailbox, "wait", wait)


@mutant("an attempt that began and is given back may have had its effect", within=100)
def left_steps_seem_not_begun(stack: ExitStack) -> None:
    real = Agent.hand_back

    def hand_back(self: Any, assignment: Any) -> None:
        assignment.begun = False
        real(self, assignment)

    code(stack, Agent, "hand_back", hand_back)


@mutant("a node begins one step at a time of those that may kill nodes", within=150, part="hedge")
def suspects_run_together(stack: ExitStack) -> None:
    code(stack, Claimer, "_has_suspect", lambda self, assignments: False)


@mutant("a child of a retry goes on from the child of the run before", within=400, part="retries")
def children_of_retries_begin_anew(stack: ExitStack) -> None:
    real = Heritage.take_over

    def take_over(self: Any, wait: Any) -> None:
        if wait.kind is StepKind.CALL:
            real(self, wait)

    code(stack, Heritage, "take_over", take_over)


# --- undo -------------------------------------------------------------------------------------------------------------


@mutant("the newest effect is undone first", within=60)
def undo_out_of_order(stack: ExitStack) -> None:
    def ready(self: Any) -> list[Any]:
        found = [entry[2] for entry in self._completed if entry[2] not in self._resolved]
        self._completed.clear()
        return found

    code(stack, Reverse, "ready", ready)


@mutant("every effect is undone", within=30)
def undo_is_missing(stack: ExitStack) -> None:
    real = undo_plan._may_have_happened
    code(stack, undo_plan, "_may_have_happened", lambda row, undo: real(row, undo) and row.n % 2 == 1)


@mutant("an effect that may have happened is undone", within=300)
def unsure_effects_stay(stack: ExitStack) -> None:
    code(stack, undo_plan, "_may_have_happened", lambda row, undo: row.state is StepState.SUCCEEDED)


@mutant("a saga that fails is undone", within=100)
def sagas_undo_nothing(stack: ExitStack) -> None:
    async def do_nothing(host: Any, effects: Any, error: Any) -> None: ...

    code(stack, saga_undo, "_undo", do_nothing)


# --- twins ------------------------------------------------------------------------------------------------------------


@mutant("a twin outruns only a step that has not ended", within=120, part="hedge")
def twins_outrun_ended_steps(stack: ExitStack) -> None:
    sql(stack, "outrun_step", "AND finished_at IS NULL", "")


@mutant("a twin ends once, and only with the fence that its agent got", within=40, part="hedge")
def no_fence_for_twins(stack: ExitStack) -> None:
    sql(stack, "end_twin", "AND fence = ?3 AND agent = ?4", "AND ?3 IS NOT NULL AND ?4 IS NOT NULL")


@mutant("a twin runs on another agent than its step", within=20, part="hedge")
def twins_on_the_same_agent(stack: ExitStack) -> None:
    sql(stack, "ready_twins", "AND t.not_agent <> ?1", "AND ?1 IS NOT NULL")


@mutant("a twin begins only while its step is unchanged", within=150, part="hedge")
def late_twins_begin(stack: ExitStack) -> None:
    sql(stack, "ready_twins", "AND s.fence = t.step_fence", "")


@mutant(
    "a step that fails waits for its twin, and records that the twin may have had the effect",
    within=60,
    part="hedge",
)
def failures_do_not_wait_for_twins(stack: ExitStack) -> None:
    def wait_for_twin(self: Any, assignment: Any, ending: Any, unsure: bool, give_up: Any) -> None:
        give_up(unsure)

    code(stack, TwinKeeper, "wait_for_twin", wait_for_twin)


@mutant("a twin takes a place", within=60, part="hedge")
def twins_take_no_place(stack: ExitStack) -> None:
    real = Agent._begin_claimed

    def begin_claimed(self: Any, item: Any, probe: Any, is_twin: bool) -> None:
        real(self, item, probe, is_twin)
        if is_twin:
            self.places._free_async += 1

    def is_crowded(self: Any, step: Any) -> bool:
        self.places.overtake(step)
        return False

    code(stack, Agent, "_begin_claimed", begin_claimed)
    code(stack, Agent, "_is_crowded", is_crowded)
    code(stack, Places, "free", lambda self, is_async: 8 if is_async else self._free_threads)


@mutant("the leader ends twins that nobody needs any more", within=60, part="hedge")
def twins_are_not_swept(stack: ExitStack) -> None:
    sql(stack, "idle_twins", "WHERE t.ended_at IS NULL", "WHERE t.ended_at IS NULL AND t.fence < 0")


# --- gates ------------------------------------------------------------------------------------------------------------


@mutant("no step is claimed behind an open breaker", within=20, part="gates")
def breakers_are_passed(stack: ExitStack) -> None:
    sql(stack, "passable_lanes", "AND b.state <> 'closed'", "AND 0")


@mutant("no twin is claimed behind an open breaker", within=150, part="both")
def twins_pass_breakers(stack: ExitStack) -> None:
    sql(stack, "ready_twins", "AND b.state <> 'closed'", "AND 0")


@mutant("claimed probes lower the allowance of their wave", within=20, part="gates")
def probes_are_not_counted(stack: ExitStack) -> None:
    sql(stack, "take_allowance", "allowance = allowance - ?2", "allowance = allowance - 0 * ?2")


@mutant("the leader gives lost probes back to the allowance", within=60, part="gates")
def lost_probes_stay_lost(stack: ExitStack) -> None:
    real = breaker.decide

    def decide(look: Any, now: float, config: Any) -> Any:
        found = real(look, now, config)
        return None if isinstance(found, breaker.GiveBack) else found

    code(stack, breakers, "decide", decide)


@mutant("an open breaker is probed after a while", within=20, part="gates")
def breakers_stay_open(stack: ExitStack) -> None:
    real = breaker.decide

    def decide(look: Any, now: float, config: Any) -> Any:
        return None if look.breaker.state is BreakerState.OPEN else real(look, now, config)

    code(stack, breakers, "decide", decide)


@mutant("a hold on a namespace stops its steps", within=120, part="gates")
def namespaces_are_not_held(stack: ExitStack) -> None:
    sql(stack, "due_steps", "scope = 'namespace'", "scope = 'nobody'")


@mutant("a hold on a step stops it", within=120, part="gates")
def steps_are_not_held(stack: ExitStack) -> None:
    sql(stack, "passable_lanes", "scope = 'step'", "scope = 'nobody'")


@mutant(
    "a step that a node hands over to itself does not begin behind a closed gate", within=60, part="gates"
)
def handed_over_past_the_gates(stack: ExitStack) -> None:
    code(stack, Gatekeeper, "bars", lambda self, step, workflow=None, namespace=None: False)


@mutant("an agent learns of holds", within=120, part="gates")
def agents_learn_of_no_hold(stack: ExitStack) -> None:
    real = Gatekeeper.learn

    def learn(self: Any, gates: Any, at: float) -> bool:
        return real(self, structs.replace(gates, holds=[]), at)

    code(stack, Gatekeeper, "learn", learn)


# --- quarantine -------------------------------------------------------------------------------------------------------


@mutant("a step that an operator releases from quarantine begins again", within=60, part="any")
def released_steps_never_begin(stack: ExitStack) -> None:
    sql(stack, "resolve_steps", "WHEN 'release' THEN store_now()", "WHEN 'release' THEN 253402300799")


@mutant("a stuck run goes on after an operator has decided about its quarantine", within=60, part="any")
def resolved_runs_stay_stuck(stack: ExitStack) -> None:
    sql(stack, "unstick_quarantined", "WHERE id IN", "WHERE 0 AND id IN")


# --- families ---------------------------------------------------------------------------------------------------------


@mutant("a child is refused if another run has its id", within=60, part="names")
def conflicts_are_ignored(stack: ExitStack) -> None:
    async def do_nothing(session: Any, child: Any, met: Any) -> None: ...

    code(stack, children, "_join_or_refuse", do_nothing)


@mutant("a run that joined another one does not cancel it", within=200, part="names")
def joined_runs_are_cancelled(stack: ExitStack) -> None:
    owned = "FROM runs INDEXED BY runs_parent\nWHERE parent_id = ?1 AND parent_n = ?2 AND finished_at IS NULL"
    joined = "id IN (SELECT run_id FROM joins WHERE waiter_id = ?1 AND waiter_n = ?2)"
    either = f"FROM runs WHERE (parent_id = ?1 AND parent_n = ?2 OR {joined}) AND finished_at IS NULL"
    sql(stack, "cancel_children", owned, either)


@mutant("a run that joined another one gets its outcome", within=60, part="names")
def joins_are_never_answered(stack: ExitStack) -> None:
    sql(stack, "due_joins", "OR r.finished_at IS NOT NULL", "")


@mutant("a saga undoes what its children did", within=200)
def sagas_leave_children(stack: ExitStack) -> None:
    sql(stack, "undo_children", "AND +state = 'succeeded'", "AND +state = 'succeeded' AND 0")


@mutant("a child that a saga undid is not undone again with the run", within=400)
def children_are_undone_twice(stack: ExitStack) -> None:
    real = undo_plan.Undoing._recall_try

    def recall_try(self: Any, row: Any, leaf: Any, number: int) -> None:
        real(self, row, None if row.kind is StepKind.CHILD else leaf, number)

    code(stack, undo_plan.Undoing, "_recall_try", recall_try)


@mutant("a run goes on after its child is undone, and not before", within=200)
def child_undos_end_at_once(stack: ExitStack) -> None:
    real = children.undo_children

    async def undo_children(session: Any, wanted: Any) -> None:
        await real(session, wanted)
        ended = [children.undo_ended("", (run_id, one.n), "undone") for run_id, one in wanted]
        await session.each(Verb.end_child_steps, ended)

    code(stack, batch, "undo_children", undo_children)


@mutant("a retry keeps a failure that the code handled, and what came after it", within=200, part="retries")
def handled_failures_cut_off(stack: ExitStack) -> None:
    real = retries.plan

    def plan(run: Any, steps: Any, signals: Any, children: Any, inherited: Any) -> Any:
        found = real(run, steps, signals, children, inherited)
        failed = [row.n for row in steps if row.state is StepState.FAILED]
        kept = [one for one in found.steps if not failed or one[0] < failed[0]]
        return found if kept == found.steps else found._replace(steps=kept)

    code(stack, retries, "plan", plan)


@mutant(
    "a step that may have had its effect keeps its key when its run is retried", within=300, part="retries"
)
def retries_forget_keys(stack: ExitStack) -> None:
    real = Heritage.take_over

    def take_over(self: Any, wait: Any) -> None:
        if wait.issue is None or wait.issue.child is not None:
            real(self, wait)

    code(stack, Heritage, "take_over", take_over)


@mutant("a retry owns the children whose results it keeps", within=200, part="retries")
def kept_children_stay_with_the_old_run(stack: ExitStack) -> None:
    sql(stack, "take_over", "WHERE id = ?3", "WHERE 0 AND id = ?3")


# --- results and signals that cannot be read --------------------------------------------------------------------------


@mutant("a step whose result cannot be stored is undone", within=60, part="odd")
def unstored_effects_stay(stack: ExitStack) -> None:
    def unstored(step: Any, error: BaseException) -> Any:
        return outcome.Raised(error, unsure=False)

    code(stack, executor, "unstored", unstored)
    code(stack, outcome, "unstored", unstored)


@mutant("a signal that no wait can read is set aside", within=60, part="odd")
def odd_signals_fail_the_run(stack: ExitStack) -> None:
    real = Decider.deliver_signal

    def deliver_signal(self: Any, *signal: Any) -> int:
        seq = real(self, *signal)
        for _, problem in self._mailbox.set_aside:
            self.stick(InvalidInput(problem))
        return seq

    code(stack, Decider, "deliver_signal", deliver_signal)


# --- what only an invariant of the lease can see ------------------------------------------


@mutant("a renewal extends the lease by as much as the node counts on", within=60)
def leases_are_written_too_short(stack: ExitStack) -> None:
    sql(stack, "renew", "lease_until = store_now() + ?2", "lease_until = store_now() + ?2 - 0.7")


@mutant("a step that is tried again waits as long as its policy says", within=30)
def retries_do_not_wait(stack: ExitStack) -> None:
    sql(stack, "retry_steps", "ready_at = store_now() + ?4", "ready_at = store_now() + 0 * ?4")


@mutant("an attempt that took too long counts against the budget for timeouts", within=120)
def timeouts_are_free(stack: ExitStack) -> None:
    sql(stack, "retry_steps", "timeouts = timeouts + ?8", "timeouts = timeouts + 0 * ?8")


@mutant("numbers of steps are never used again in the next generation", within=60)
def generations_count_anew(stack: ExitStack) -> None:
    sql(stack, "continue_runs", "max(base_n, coalesce((", "max(0 * base_n, 0 * coalesce((")


@mutant("a step that is handed back spends nothing", within=300)
def hand_backs_are_charged(stack: ExitStack) -> None:
    sql(stack, "hand_back_steps", "excused = excused + 1", "excused = excused")


@mutant("the leader ends an attempt only after its grace", within=300)
def the_leader_is_hasty(stack: ExitStack) -> None:
    for look in ("duties", "overdue_steps"):
        sql(stack, look, "store_now() - ?1", "store_now() - 0 * ?1")


@mutant("an attempt may take as long as its step declares", within=30)
def attempts_take_longer(stack: ExitStack) -> None:
    sql(stack, "claim_steps", "complete_by = ?5 + timeout_s", "complete_by = ?5 + 10 * timeout_s")


@mutant("an attempt that the leader ends spends the budget for timeouts, and no other one", within=300)
def overdue_attempts_count_as_lost(stack: ExitStack) -> None:
    real = reclaim.remedy_of

    def remedy_of(*known: Any) -> Any:
        return structs.replace(real(*known), losses=1)

    code(stack, reclaim, "remedy_of", remedy_of)


# --- what only one invariant can see: see `matrix.toml` -------------------------------------------------------------------


@mutant("a step that has ended keeps the time of its end when the run gives it up", within=400)
def given_up_steps_end_again(stack: ExitStack) -> None:
    sql(stack, "drop_steps", "finished_at = coalesce(finished_at, store_now())", "finished_at = store_now()")


@mutant("a breaker changes in a new round", within=60, part="gates")
def breakers_stay_in_their_round(stack: ExitStack) -> None:
    sql(stack, "change_breaker", "round = round + 1", "round = round")


@mutant("a node leaves only after all that it had was taken from it", within=100)
def nodes_leave_with_their_steps(stack: ExitStack) -> None:
    sql(stack, "retire_reclaimed", "AND agent = ?1)", "AND agent = ?1 AND fence < 0)")
    sql(stack, "lost_by", "LIMIT ?2", "LIMIT min(?2, 1)")


# --- the reference ----------------------------------------------------------------------------------------------------


@mutant("a step waits between its attempts as long as its policy says", within=60)
def waits_grow_from_the_first_on(stack: ExitStack) -> None:
    real = policy.backoff_s
    code(stack, policy, "backoff_s", lambda retry, times, random: real(retry, times + 1, random))


@mutant("an attempt is kept with the time at which it began", within=60)
def attempts_begin_when_their_step_was_issued(stack: ExitStack) -> None:
    kept = "agent, ?5, started_at, store_now()"
    sql(stack, "keep_attempts", kept, kept.replace("started_at", "issued_at"))


@mutant("a step has the priority of its run and its own", within=60)
def new_steps_have_no_priority(stack: ExitStack) -> None:
    sql(stack, "issue_steps", "?7, ?8, coalesce", "?7, 0 * ?8, coalesce")


@mutant("a step that waits for its next attempt belongs to no agent", within=60)
def steps_that_wait_keep_their_agent(stack: ExitStack) -> None:
    sql(stack, "retry_steps", "agent = NULL, ", "")


@mutant("a twin that has ended takes no place", within=60, part="hedge")
def twins_keep_their_places(stack: ExitStack) -> None:
    real = Agent._let_go

    def let_go(self: Any, assignment: Any) -> bool:
        if assignment.twin and not assignment.ended:
            self.places.overtake(assignment.step)
        return real(self, assignment)

    code(stack, Agent, "_let_go", let_go)

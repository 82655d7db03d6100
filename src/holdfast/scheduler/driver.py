"""Makes the decider of a claimed run: its workflow code, replayed up to now, or the plan of its undos."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.config import Config
from holdfast.decider.decider import Decider
from holdfast.decider.undo_plan import Undoing
from holdfast.errors import HoldfastError, UnknownWorkflow
from holdfast.log_buffer import LogLimits
from holdfast.model import DEFAULT_NAMESPACE, RunRow, RunState, StepRow
from holdfast.namespaces import shown
from holdfast.store.answers import ClaimedRun
from holdfast.store.schedulers import Schedulers
from holdfast.workflow import registry
from holdfast.workflow.pages import code_of
from holdfast.workflow.workflow import Workflows


def bare_steps(run: RunRow, steps: Sequence[StepRow]) -> Sequence[StepRow]:
    """Return the steps of a run with the names that its code has for them."""
    if run.namespace == DEFAULT_NAMESPACE:
        return steps
    return [replace(step, name=shown(run.namespace, step.name)) for step in steps]


async def replayed(
    claimed: ClaimedRun, workflows: Workflows, store: Schedulers, now: float, config: Config
) -> Decider | Undoing:
    """Return the decider of a run, in the state in which the history ends. Raises if the run's code no longer fits the
    history, or is not loaded here."""
    run = claimed.run
    delivered = [row for row in claimed.signals if row.delivered_seq]
    decider: Decider | Undoing
    if run.state is RunState.UNDOING:
        lanes = {lane.id: lane for lane in await store.lanes()}
        children = await store.child_steps(run.id)
        decider = Undoing(run, lanes=lanes, children=children, find=registry.steps.get)
    else:
        workflow = code_of(workflows.get((run.workflow, run.version)), run.input)
        if workflow is None:
            raise UnknownWorkflow(f"{run.workflow} version {run.version} is not loaded here")
        decider = Decider.of_run(
            workflow,
            run,
            inherited=claimed.inherited,
            resumed_at=now if claimed.inherited else 0.0,
            payload_max=config.payload_max_bytes,
            log_limits=LogLimits.of(config.logs_level, config.logs_max_bytes),
            on_bug=config.on_bug,
        )
    try:
        decider.replay(bare_steps(run, claimed.steps), delivered)
    except HoldfastError:
        decider.close()
        raise
    return decider

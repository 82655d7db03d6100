"""What somebody edits in a fork: its input, and what steps returned. Checks it before anything is written.

If this process has the code, the types in it decide. Otherwise an input is checked by the schema that some process has
declared, and the result of a step must be of the same kinds as the recorded one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast import codec
from holdfast.codec.schema import check
from holdfast.codec.secret import demand_sealed
from holdfast.errors import InvalidInput, UnknownWorkflow, WrongState
from holdfast.lifecycle import STEP_ENDED
from holdfast.model import Declaration, RunRow, StepKind, StepRow, StepState
from holdfast.namespaces import bare
from holdfast.store.origins import Offers
from holdfast.store.store import Store
from holdfast.workflow import registry
from holdfast.workflow.workflow import Workflow

KINDS = {
    dict: "an object",
    list: "an array",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


async def demand_code(store: Store, run: RunRow, step: StepRow | None) -> Declaration | None:
    """Raise unless some code can go on with a fork of this run, from this step if one is given. Return what code has
    declared about the workflow."""
    declared = await store.workflows.declaration(run.workflow, run.version)
    if declared is None and (bare(run.workflow), run.version) not in registry.workflows:
        raise UnknownWorkflow(
            f"the code of run {run.id!r} is gone: no process has declared {run.workflow} version {run.version}; start "
            "one that has it with `holdfast up FILE`, and fork again"
        )
    if step is None or step.kind is not StepKind.CALL or bare(step.name) in registry.steps:
        return declared
    offers = [Offers.read(node.offers) for node in await store.nodes.nodes() if node.retired_at is None]
    code = f"{run.workflow}@{run.version}"
    if any(one.has("workflows", code) for one in offers) and not any(
        one.has("steps", step.name) for one in offers
    ):
        raise WrongState(
            f"the code of step {step.key!r} is gone: no process that is up has {step.name}; fork from an earlier step, "
            "or put the step back"
        )
    return declared


def checked_input(run: RunRow, value: Any, declared: Declaration | None, limit: int) -> bytes:
    """Return another input of the run, as it is recorded. Raise InvalidInput if it does not fit the workflow."""
    raw = codec.encode_open(value, "input", limit)
    demand_sealed(raw, "input")
    workflow = registry.workflows.get((bare(run.workflow), run.version))
    if workflow is not None:
        return workflow.shape.from_json(raw, limit)
    if not isinstance(value, Mapping):
        raise InvalidInput(
            f"input: give an object by the names of the arguments, because the code of {run.workflow} is not loaded here"
        )
    if declared is not None:
        check(msgspec.json.decode(raw), msgspec.json.decode(declared.input), f"input of {run.workflow}")
    return raw


def checked_result(step: StepRow, value: Any, workflow: Workflow[Any, Any] | None, limit: int) -> bytes:
    """Return the edited result of a step, as it is recorded. Raise InvalidInput if it does not fit the step."""
    what = f"the result of step {step.key!r}"
    raw = codec.encode_open(value, what, limit)
    demand_sealed(raw, what)
    known = registry.steps.get(bare(step.name)) if step.kind in (StepKind.CALL, StepKind.CALLBACK) else None
    shape = known.shape if known is not None else None if workflow is None else workflow.shape
    if shape is not None:
        try:
            return shape.result.encode_again(shape.result.decode_whole(raw))
        except InvalidInput as wrong:
            raise InvalidInput(f"{what}: {wrong}") from None
    if step.state is StepState.SUCCEEDED and step.output is not None and step.state in STEP_ENDED:
        _demand_alike(msgspec.json.decode(step.output), msgspec.json.decode(raw), what, "")
    return raw


def child_workflow(step: StepRow) -> Workflow[Any, Any] | None:
    """Return the workflow of the child that a step waits for, if exactly one version of it is loaded here."""
    if step.kind is not StepKind.CHILD:
        return None
    found = [one for (name, _), one in registry.workflows.items() if name == step.name]
    return found[0] if len(found) == 1 else None


def _demand_alike(was: Any, now: Any, what: str, place: str) -> None:
    """Raise unless a value has the kinds that the recorded one has, in all members that both have. Null fits anywhere."""
    if was is None or now is None:
        return
    kinds = _kind(was), _kind(now)
    if kinds[0] != kinds[1]:
        where = f"{what}: {place.lstrip('.')}" if place else what
        raise InvalidInput(f"{where}: the recorded one is {kinds[0]}, this is {kinds[1]}")
    if isinstance(was, dict):
        for key in was.keys() & now.keys():
            _demand_alike(was[key], now[key], what, f"{place}.{key}")
    elif isinstance(was, Sequence) and not isinstance(was, str) and was:
        for number, part in enumerate(now):
            _demand_alike(was[0], part, what, f"{place}[{number}]")


def _kind(value: Any) -> str:
    return KINDS.get(type(value), "null")

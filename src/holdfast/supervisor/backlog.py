"""What waits for somebody who can do it, and what nobody can do. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from holdfast.model import Breaker, BreakerState, Hold, HoldScope, Lane, NodeRow
from holdfast.namespaces import ALL, bare, namespace_of
from holdfast.store.answers import Backlog
from holdfast.supervisor.phrases import command
from holdfast.supervisor.why import gate_in_short


class BacklogItem(msgspec.Struct, frozen=True, kw_only=True):
    """Steps or runs that wait for the same capability."""

    kind: Literal["step", "workflow"]
    name: str
    """The step, or the workflow and its version: `shop.order@2`."""
    needs: list[str] = []
    depends: str = ""
    ready: int
    """How many could begin now, counted up to a limit."""
    since: float
    """Since when the oldest of them waits."""
    able: int
    """How many live agents, or schedulers, can do it."""
    parked: str = ""
    """Why none of them may begin: a hold or a breaker. Empty: nothing is in the way."""
    start: str = ""
    """The command that starts somebody who can do it, if nobody can."""

    @property
    def is_hopeless(self) -> bool:
        return not self.able and not self.parked


class Capabilities:
    """What live nodes can do."""

    def __init__(self, nodes: Sequence[NodeRow], now: float) -> None:
        self._offers: list[tuple[NodeRow, dict[str, Any]]] = [
            (node, json.loads(node.offers))
            for node in nodes
            if node.retired_at is None and node.lease_until > now
        ]
        self._all = [json.loads(node.offers) for node in nodes]

    def able(self, role: str, kind: str, name: str, needs: Sequence[str] = ()) -> int:
        """Return how many live nodes with this role have the step or workflow of this stored name, and the labels."""
        return sum(
            role in node.roles and _has(offers, kind, name) and set(needs) <= set(offers.get("labels", ()))
            for node, offers in self._offers
        )

    def files(self, kind: str, name: str) -> list[str]:
        """Return the program files of a node that has or had this."""
        for offers in self._all:
            if _has(offers, kind, name) and offers.get("files"):
                return [str(file) for file in offers["files"]]
        return ["FILE"]


def _has(offers: Mapping[str, Any], kind: str, name: str) -> bool:
    return (bare(name) if ALL in offers.get("namespaces", ()) else name) in offers.get(kind, ())


def backlog(
    lanes: Sequence[Lane],
    steps: Mapping[int, Backlog],
    codes: Mapping[tuple[str, str], Backlog],
    offering: Capabilities,
    holds: Sequence[Hold],
    breakers: Sequence[Breaker],
) -> list[BacklogItem]:
    """Return what waits: first what nobody can do, then what somebody can, then what is behind a gate; the oldest first."""
    found = []
    for lane in lanes:
        waits = steps.get(lane.id)
        if waits is None or waits.since is None:
            continue
        gate = _gate(lane.name, lane.depends, holds, breakers)
        able = offering.able("agent", "steps", lane.name, lane.needs)
        found.append(
            BacklogItem(
                kind="step",
                name=lane.name,
                needs=list(lane.needs),
                depends="" if lane.depends == lane.name else lane.depends,
                ready=waits.ready,
                since=waits.since,
                able=able,
                parked="" if gate is None else gate_in_short(gate),
                start=""
                if able
                else _start("agent", offering.files("steps", lane.name), lane.name, lane.needs),
            )
        )
    for (workflow, version), waits in codes.items():
        if waits.since is None:
            continue
        name = f"{workflow}@{version}"
        held = next((one for one in holds if _covers_run(one, workflow)), None)
        able = offering.able("scheduler", "workflows", name)
        found.append(
            BacklogItem(
                kind="workflow",
                name=name,
                ready=waits.ready,
                since=waits.since,
                able=able,
                parked="" if held is None else gate_in_short(held),
                start="" if able else _start("scheduler", offering.files("workflows", name), workflow, ()),
            )
        )
    return sorted(found, key=lambda one: (not one.is_hopeless, bool(one.parked), one.since))


def _start(role: str, files: Sequence[str], name: str, needs: Sequence[str]) -> str:
    labels = [word for need in needs for word in ("--label", need)]
    namespace = namespace_of(name)
    where = [] if namespace == "default" else ["--namespace", namespace]
    return command(role, *files, *labels, *where).strip("`")


def _gate(
    step: str, depends: str, holds: Sequence[Hold], breakers: Sequence[Breaker]
) -> Hold | Breaker | None:
    covered = {
        HoldScope.STEP: step,
        HoldScope.DEPENDENCY: depends,
        HoldScope.NAMESPACE: namespace_of(step),
        HoldScope.ALL: "",
    }
    held = next((one for one in holds if covered.get(one.scope) == one.value), None)
    if held is not None:
        return held
    return next(
        (one for one in breakers if one.name == depends and one.state is not BreakerState.CLOSED), None
    )


def _covers_run(hold: Hold, workflow: str) -> bool:
    covered = {
        HoldScope.WORKFLOW: workflow,
        HoldScope.NAMESPACE: namespace_of(workflow),
        HoldScope.ALL: "",
    }
    return covered.get(hold.scope) == hold.value

"""One run in a scheduler's memory: its decider, what waits to be delivered, and the hop in flight.

At most one hop of a run is in flight. What arrives meanwhile waits in the inbox and goes into the next hop, which is
when it would have been committed anyway.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from holdfast.decider import Decider, Issue
from holdfast.decider.undo_plan import Undoing
from holdfast.model import DEFAULT_NAMESPACE, Outcome, RunRow, SignalRow
from holdfast.scheduler.landmarks import Trace

Arrival = Outcome | SignalRow


class Lease(msgspec.Struct, gc=False):
    """A step issued already leased to the issuing node: what an agent needs to begin it."""

    run_id: str
    n: int
    issue: Issue
    workflow: str
    namespace: str


class Seat(Protocol):
    """How a scheduler hands steps to whoever executes them in the same node. It does not know who that is."""

    def reserve(self, issue: Issue, workflow: str, namespace: str) -> bool:
        """Keep a place for this step of a run of this workflow and namespace; False when there is none, or it must wait."""

    def begin(self, leases: list[Lease]) -> None:
        """The leases are committed: begin."""

    def release(self, leases: list[Lease]) -> None:
        """Places reserved for steps that were not issued after all."""

    def stop(self, run_id: str, steps: list[int]) -> None:
        """These steps were cancelled."""


class Owned:
    """A run this node owns."""

    __slots__ = (
        "decider",
        "fence",
        "generation",
        "in_flight",
        "inbox",
        "mine",
        "namespace",
        "parent_id",
        "parent_n",
        "pending",
        "priority",
        "published",
        "quiet_since",
        "run_id",
        "signals_seen",
        "trace",
        "workflow",
    )

    def __init__(
        self,
        run_id: str,
        fence: int,
        decider: Decider | Undoing,
        *,
        priority: int = 0,
        generation: int = 1,
        parent_id: str | None = None,
        parent_n: int | None = None,
        workflow: str = "",
        namespace: str = DEFAULT_NAMESPACE,
    ) -> None:
        self.run_id, self.fence, self.decider = run_id, fence, decider
        self.workflow, self.namespace = workflow, namespace
        self.priority, self.generation = priority, generation
        self.parent_id, self.parent_n = parent_id, parent_n
        self.inbox: list[Arrival] = []
        self.pending: set[int] = set()
        """n of what waits in the inbox or is in the hop in flight: a second look at the store must not add it again."""
        self.signals_seen: set[int] = set()
        self.mine: set[int] = set()
        """n of steps leased to this node's own agent."""
        self.published: dict[str, Any] = {}
        self.in_flight = False
        self.quiet_since = 0.0
        self.trace: Trace | None = None
        """When it came by its landmarks, if this run is followed."""

    @classmethod
    def of(cls, run: RunRow, decider: Decider | Undoing) -> Owned:
        """A run that was claimed."""
        return cls(
            run.id,
            run.fence,
            decider,
            priority=run.priority,
            generation=run.generation,
            parent_id=run.parent_id,
            parent_n=run.parent_n,
            workflow=run.workflow,
            namespace=run.namespace,
        )

    def arrive(self, arrival: Arrival) -> bool:
        """Keep an arrival for the next hop; False when it is known already."""
        if type(arrival) is Outcome:
            if arrival.n in self.pending:
                return False
            self.pending.add(arrival.n)
        else:
            assert isinstance(arrival, SignalRow)
            if arrival.id in self.signals_seen:
                return False
            self.signals_seen.add(arrival.id)
        self.inbox.append(arrival)
        return True

    def unrecorded(self) -> list[Outcome]:
        """Outcomes of this node's own agent that wait in the inbox: nobody has recorded them. (A timer has the fence 0.)"""
        return [item for item in self.inbox if type(item) is Outcome and item.fence]

    @property
    def quiet(self) -> bool:
        return not self.in_flight and not self.inbox and not self.mine

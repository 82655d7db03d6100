"""One run in a scheduler's memory: its decider, its inbox, and the hop in flight.

At most one hop of a run is in flight. Outcomes and signals that arrive meanwhile wait in the inbox for the next hop.
They lose no time: they could not be committed any sooner.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

import msgspec

from holdfast import codec
from holdfast.decider.commands import Issue
from holdfast.decider.decider import Decider
from holdfast.decider.undo_plan import Undoing
from holdfast.model import DEFAULT_NAMESPACE, Outcome, RunRow, RunState, SignalRow
from holdfast.scheduler.landmarks import Landmarks

Arrival = Outcome | SignalRow

NONE: frozenset[int] = frozenset()
"""The empty set that most runs share, because few runs have anything to put in. A set for each would only cost memory."""


class SeatedStep(msgspec.Struct, gc=False):
    """A step that was issued for the agent of the same node, with what the agent needs to begin it."""

    run_id: str
    n: int
    issue: Issue
    workflow: str
    namespace: str


class Seat(Protocol):
    """How a scheduler gives steps to the agent in the same node, without knowing that agent."""

    def reserve(self, issue: Issue, workflow: str, namespace: str, queue: int) -> bool:
        """Keep a place for this step of a run of this workflow and namespace. False if there is no place, or if the
        step must wait."""

    def begin(self, seated: list[SeatedStep]) -> None:
        """Begin these steps. The commit that issued them is answered."""

    def release(self, seated: list[SeatedStep]) -> None:
        """Free the places that were reserved for these steps, because the steps were not issued after all."""

    def stop(self, run_id: str, steps: list[int]) -> None:
        """Stop these steps. The run does not want them any more, or they ended elsewhere."""


class Owned:
    """A run that this node owns."""

    __slots__ = (
        "asks",
        "begun_at",
        "decider",
        "fair",
        "fence",
        "freeing",
        "generation",
        "in_flight",
        "inbox",
        "landmarks",
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
        "under",
        "undo_n",
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
        self.fair: str | None = None
        self.freeing: frozenset[int] = NONE
        """The numbers of steps under a limit that have ended here. Their outcomes are not committed yet."""
        self.under: frozenset[str] = frozenset()
        """The limits that the run is under, or a run above it. Its steps take no second slot under these."""
        self.undo_n: int | None = None
        """The step of the parent that waits until this run is undone."""
        self.inbox: list[Arrival] = []
        self.pending: set[int] = set()
        """The numbers of the steps whose outcomes are in the inbox or in the hop in flight. When the scheduler reads
        them from the store once more, it must not add them again."""
        self.signals_seen: set[int] = set()
        self.mine: set[int] = set()
        """The numbers of the steps that this node's own agent has."""
        self.asks: frozenset[int] = NONE
        """The numbers of the run's questions to people that have not ended, as far as this node knows."""
        self.published: dict[str, Any] = {}
        self.in_flight = False
        self.quiet_since = self.begun_at = 0.0
        self.landmarks: Landmarks | None = None
        """The times at which the run reached its landmarks, if the scheduler follows this run."""

    @classmethod
    def of(cls, run: RunRow, decider: Decider | Undoing) -> Owned:
        """Return a run that was just claimed."""
        owned = cls(
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
        owned.fair, owned.begun_at = run.fair, run.started_at or run.created_at
        if run.under is not None:
            owned.under = frozenset(json.loads(run.under))
        owned.undo_n = codec.end_of(run.error).by_n if run.state is RunState.UNDOING else None
        return owned

    def arrive(self, arrival: Arrival) -> bool:
        """Keep an outcome or a signal for the next hop. False if it is known already."""
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
        """Return the outcomes in the inbox that come from this node's own agent. Nobody has recorded them yet. (The
        outcome of a timer has the fence 0 and is not among them.)"""
        return [item for item in self.inbox if type(item) is Outcome and item.fence]

    @property
    def quiet(self) -> bool:
        return not self.in_flight and not self.inbox and not self.mine

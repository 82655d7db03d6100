"""What each role may ask of the State Store, so that the type checker enforces who may write what.

A scheduler uses `Schedulers`, and the sender of alerts uses `OutboxAlerts`. Each of the other roles uses several nouns.
A noun that several roles share has a class for each of them: operators use `OperatorGates`, agents use its part
`AgentGates`, and the leader uses its part `LeaderGates`.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.store.acts import CarriedActs
from holdfast.store.agents import Agents, Lanes
from holdfast.store.alerts import LeaderAlerts
from holdfast.store.asks import LeaderAsks
from holdfast.store.callbacks import AgentCallbacks, LeaderCallbacks
from holdfast.store.durations import Durations
from holdfast.store.events import LeaderEvents
from holdfast.store.gates import AgentGates, LeaderGates
from holdfast.store.leader import Leader
from holdfast.store.limits import AgentLimits, LeaderLimits
from holdfast.store.nodes import Nodes
from holdfast.store.occasions import LeaderOccasions
from holdfast.store.quarantine import LeaderQuarantine
from holdfast.store.retention import Retention
from holdfast.store.schedules import LeaderSchedules
from holdfast.store.twins import AgentTwins, LeaderTwins


class AgentStore(Protocol):
    @property
    def agents(self) -> Agents: ...

    @property
    def gates(self) -> AgentGates: ...

    @property
    def limits(self) -> AgentLimits: ...

    @property
    def twins(self) -> AgentTwins: ...

    @property
    def callbacks(self) -> AgentCallbacks: ...


class SupervisorStore(Protocol):
    @property
    def acts(self) -> CarriedActs: ...

    @property
    def leader(self) -> Leader: ...

    @property
    def gates(self) -> LeaderGates: ...

    @property
    def limits(self) -> LeaderLimits: ...

    @property
    def twins(self) -> LeaderTwins: ...

    @property
    def quarantine(self) -> LeaderQuarantine: ...

    @property
    def alerts(self) -> LeaderAlerts: ...

    @property
    def durations(self) -> Durations: ...

    @property
    def retention(self) -> Retention: ...

    @property
    def schedules(self) -> LeaderSchedules: ...

    @property
    def events(self) -> LeaderEvents: ...

    @property
    def occasions(self) -> LeaderOccasions: ...

    @property
    def asks(self) -> LeaderAsks: ...

    @property
    def callbacks(self) -> LeaderCallbacks: ...

    @property
    def agents(self) -> Lanes: ...

    @property
    def nodes(self) -> Nodes: ...

    async def now(self) -> float: ...


class PoolStore(Protocol):
    """What a pool of agents may ask. It changes nothing in the store."""

    @property
    def agents(self) -> Lanes: ...

    @property
    def nodes(self) -> Nodes: ...

    async def now(self) -> float: ...

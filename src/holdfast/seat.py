"""The agent of a node as the scheduler of the same node sees it. Through a seat, the scheduler reserves places and
gives steps to the agent, and neither role knows the other."""

from __future__ import annotations

from holdfast.agent import Agent
from holdfast.decider import Issue
from holdfast.scheduler import Lease


class LocalSeat:
    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def reserve(self, issue: Issue, workflow: str, namespace: str) -> bool:
        if issue.step is None or issue.arguments is None:
            return False
        return self._agent.reserve(issue.step, workflow, namespace)

    def begin(self, leases: list[Lease]) -> None:
        for lease in leases:
            self._agent.begin_issued(lease.run_id, lease.n, lease.issue, lease.workflow, lease.namespace)

    def release(self, leases: list[Lease]) -> None:
        for lease in leases:
            if lease.issue.step is not None:
                self._agent.places.give_back(lease.issue.step)

    def stop(self, run_id: str, steps: list[int]) -> None:
        for n in steps:
            self._agent.stop(run_id, n)

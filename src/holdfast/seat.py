"""The agent of a node as the scheduler of the same node sees it. Through a seat, the scheduler reserves places and
gives steps to the agent, and neither role knows the other."""

from __future__ import annotations

from holdfast.agent.agent import Agent
from holdfast.decider.commands import Issue
from holdfast.model import DEFAULT_NAMESPACE
from holdfast.scheduler import SeatedStep


class LocalSeat:
    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def reserve(self, issue: Issue, workflow: str, namespace: str, queue: int) -> bool:
        if issue.step is None or issue.arguments is None:
            return False
        step = issue.step if namespace == DEFAULT_NAMESPACE else issue.step.within(namespace)
        return self._agent.reserve(step, workflow, namespace, queue)

    def begin(self, seated: list[SeatedStep]) -> None:
        for step in seated:
            self._agent.begin_issued(step.run_id, step.n, step.issue, step.workflow, step.namespace)

    def release(self, seated: list[SeatedStep]) -> None:
        for step in seated:
            if step.issue.step is not None:
                self._agent.places.give_back(step.issue.step)

    def stop(self, run_id: str, steps: list[int]) -> None:
        for n in steps:
            self._agent.stop(run_id, n)

"""Which live nodes can go on with a run, and the command that starts a missing one. Pure: rows and the time in, words
out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from holdfast.model import DEFAULT_NAMESPACE, NodeRow, RunRow
from holdfast.namespaces import ALL, bare
from holdfast.supervisor.said import ago, command, place

UNKNOWN_FILE = "FILE"
"""Stands in a command for the program's file when no node has recorded one."""


class Staff:
    """The nodes of a store, seen from one run: which of them can serve it."""

    def __init__(self, run: RunRow, nodes: Sequence[NodeRow], now: float) -> None:
        self._run, self._nodes, self._now = run, nodes, now
        self._offers: dict[str, dict[str, Any]] = {node.id: json.loads(node.offers) for node in nodes}
        self.live = [node for node in nodes if self.is_live(node)]

    def is_live(self, node: NodeRow) -> bool:
        return node.retired_at is None and node.lease_until > self._now

    def node(self, node_id: str | None) -> NodeRow | None:
        return next((node for node in self._nodes if node.id == node_id), None)

    # --- who is up --------------------------------------------------------------------------------------------------

    @property
    def schedulers(self) -> list[NodeRow]:
        """Live schedulers that have loaded the run's workflow in its version."""
        return [node for node in self._having("workflows", self._code) if "scheduler" in node.roles]

    @property
    def has_supervisor(self) -> bool:
        return any("supervisor" in node.roles for node in self.live)

    def agents(self, step: str) -> list[NodeRow]:
        """Return the live agents that have this step's code."""
        return [node for node in self._having("steps", step) if "agent" in node.roles]

    def able(self, step: str, needs: Sequence[str]) -> list[NodeRow]:
        """Return the live agents that have this step's code and every label it needs."""
        return [
            node for node in self.agents(step) if set(needs) <= set(self._offers[node.id].get("labels", ()))
        ]

    @property
    def _code(self) -> str:
        return f"{self._run.workflow}@{self._run.version}"

    def _having(self, kind: str, value: str) -> list[NodeRow]:
        return [node for node in self.live if self._has(node, kind, value)]

    def _has(self, node: NodeRow, kind: str, value: str) -> bool:
        """True if the node offers this, or did: in the namespace of the run, or in all."""
        offers = self._offers[node.id]
        return (bare(value) if ALL in offers.get("namespaces", ()) else value) in offers.get(kind, ())

    # --- who is missing ---------------------------------------------------------------------------------------------

    def who_goes_on(self) -> str:
        """Say in a sentence which scheduler goes on with this run next, or what to start if none can."""
        owner = self.node(self._run.owner)
        if owner is not None and self.is_live(owner):
            return f"Its scheduler, {place(owner)}, is about to go on with the run."
        if self._run.owner is not None:
            who = "Its scheduler" if owner is None else f"Its scheduler, {place(owner)},"
            if self.has_supervisor:
                return f"{who} is gone; a Supervisor is about to free the run for another scheduler."
            return f"{who} is gone, and no Supervisor is up to free the run: start one with {self.start('supervisor')}."
        found = self.schedulers
        if not found:
            return f"{self.no_scheduler()}."
        if len(found) == 1:
            return f"The scheduler on {place(found[0])} is about to go on with the run."
        return f"One of {len(found)} schedulers is about to go on with the run."

    def no_scheduler(self) -> str:
        """Say that no live scheduler has the run's workflow in its version, and what to start."""
        run = self._run
        others = sorted(
            {
                name.rpartition("@")[2]
                for node in self.live
                if "scheduler" in node.roles
                for name in self._offers[node.id].get("workflows", ())
                if name.rpartition("@")[0] in {run.workflow, bare(run.workflow)}
                and self._has(node, "workflows", f"{run.workflow}@{name.rpartition('@')[2]}")
            }
        )
        loaded = f", only version {' and '.join(others)}" if others else ""
        return (
            f"No live scheduler has {bare(run.workflow)} version {run.version} loaded{loaded}"
            f"{self._had('workflows', self._code)}: start one with {self.start('scheduler')}"
        )

    def no_agent(self, step: str) -> str:
        return f"no live agent has {bare(step)}{self._had('steps', step)}"

    def start(self, role: str, step: str = "", needs: Sequence[str] = ()) -> str:
        """Return the command that starts this role, or all roles if others are missing too."""
        has_scheduler = bool(self.schedulers)
        if role == "supervisor" and (has_scheduler or not self._files("workflows", self._code)):
            return command("supervisor")
        has_other = has_scheduler if role == "agent" else any("agent" in node.roles for node in self.live)
        alone = has_other and self.has_supervisor
        labels = [word for need in needs for word in ("--label", need)]
        files = self._files("steps", step) if role == "agent" else self._files("workflows", self._code)
        where = () if self._run.namespace == DEFAULT_NAMESPACE else ("--namespace", self._run.namespace)
        named = role if alone and role != "supervisor" else "up"
        return command(named, *(files or [UNKNOWN_FILE]), *labels, *where)

    def _files(self, kind: str, value: str) -> list[str]:
        """Return the program files of the newest node that offers or offered this, live or gone."""
        offering = [node for node in self._nodes if self._has(node, kind, value)]
        for node in sorted(offering, key=lambda node: node.started_at, reverse=True):
            if files := self._offers[node.id].get("files"):
                return [str(file) for file in files]
        return []

    def _had(self, kind: str, value: str) -> str:
        """Say which node that is gone had this last, and until when; empty if there was none."""
        gone = [node for node in self._nodes if not self.is_live(node) and self._has(node, kind, value)]
        if not gone:
            return ""
        last = max(gone, key=lambda node: node.lease_until)
        left_at = min(last.lease_until, last.retired_at or last.lease_until)
        return f" ({place(last)} had it until {ago(self._now - left_at)} ago)"

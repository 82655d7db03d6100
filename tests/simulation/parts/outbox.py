"""Alerts that are sent through a channel, which fails and hangs while things go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from holdfast.supervisor import alerts
from holdfast.supervisor.channels import Channel, Notice, NotSent
from holdfast.testing.world import Process
from tests.simulation import program
from tests.simulation.mutants import code, mutant, sql
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Pager(Channel):
    """A channel that writes down what it was given."""

    type = "pager"

    def __init__(self, simulation: Simulation, process: Process, part: Outbox) -> None:
        super().__init__("pager", environment=process.environment, timeout_s=0.8, level="info", kinds=())
        self._simulation, self._part = simulation, part

    async def send(self, notice: Notice) -> None:
        part, simulation = self._part, self._simulation
        sent_at = simulation.connection.execute(
            "SELECT sent_at FROM deliveries WHERE id = ?", (notice.delivery,)
        ).get
        if sent_at is not None:
            simulation.broke(f"I32 delivery {notice.delivery} was recorded as sent, and is sent again")
        if notice.event == "cleared" and (notice.alert, "raised") not in part.sent:
            simulation.sometimes("an alert was cleared before it was sent")
        if not simulation.healed:
            chance = part.dice.random()
            if chance < 0.2:
                raise NotSent("the pager is off")
            if chance < 0.3:
                await asyncio.sleep(2)
            await asyncio.sleep(part.dice.random() * 0.3)
        part.sent[notice.alert, notice.event] = notice.delivery


class Outbox(Part):
    name = "outbox"
    share = 0.12

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.sent: dict[tuple[int, str], str] = {}
        """By alert and event, the delivery that the channel took."""

    def settings(self) -> dict[str, Any]:
        return {
            "watch_s": 0.8,
            "alert_back_off_s": 0.2,
            "alert_back_off_max_s": 0.8,
            "alert_tries_max": 1000,
        }

    def spawned(self, simulation: Simulation, process: Process) -> None:
        process._channels = [Pager(simulation, process, self)]

    def waits_for(self, simulation: Simulation) -> Iterator[str]:
        for what, query in WAITS.items():
            count = simulation.connection.execute(query).get
            if count:
                yield f"{count} {what}"

    def endings(self, simulation: Simulation) -> Iterator[str]:
        execute = simulation.connection.execute
        rows = execute("SELECT id, alert_id, event, sent_at, attempts FROM deliveries").fetchall()
        for delivery, alert, event, sent_at, attempts in rows:
            if sent_at is not None and self.sent.get((alert, event)) is None:
                yield f"I32 {delivery} counts as sent after {attempts} attempts, and the channel did not take it"
        failed = [
            run
            for run in simulation.checker.runs.values()
            if run.parent_id is None and run.state in ("failed", "undone")
        ]
        counted = execute("SELECT coalesce(sum(times), 0) FROM alerts WHERE key LIKE 'run failed:%'").get
        # Alerts that were cleared are removed after a while, as runs are.
        if counted > len(failed) or (counted < len(failed) and not simulation.parts.plays("retention")):
            yield f"I32 {len(failed)} runs of {program.program.name} failed, and alerts count {counted}"
        for run in simulation.checker.runs.values():
            if run.parent_id is None and run.state in ("failed", "undone"):
                simulation.sometimes("a failed run was reported")


WAITS = {
    "failures were never looked at": "SELECT count(*) FROM failures",
    "alerts were never routed": "SELECT count(*) FROM alerts WHERE routed = 0 OR (routed = 1 AND cleared_at IS NOT NULL)",
    "alerts were never logged": "SELECT count(*) FROM alerts WHERE logged = 0",
    "deliveries were never sent": "SELECT count(*) FROM deliveries WHERE sent_at IS NULL AND given_up_at IS NULL",
}


@mutant("a failure becomes an alert", within=30, part="outbox")
def failures_are_not_reported(stack: ExitStack) -> None:
    code(stack, alerts, "_failed_run", lambda note: None)


@mutant("an alert counts a failure once", within=60, part="outbox")
def failures_are_reported_twice(stack: ExitStack) -> None:
    sql(
        stack,
        "raise_alerts",
        "VALUES (store_now(), ?1, ?2, ?3, ?4, ?5, ?6, ?7, store_now())",
        "VALUES (store_now(), ?1, ?2, ?3, ?4, ?5, ?6 + 1, ?7, store_now())",
    )


@mutant("a delivery that failed is sent again", within=60, part="outbox")
def failed_deliveries_are_given_up(stack: ExitStack) -> None:
    sql(stack, "end_delivery", "WHEN ?3 IS NULL THEN store_now() END", "WHEN 1 THEN store_now() END")

"""`agents`: which processes work on this store, and how each is doing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

import click

from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import command, opened
from holdfast.model import LeaderLease
from holdfast.supervisor.health import NodeHealth, NodeState
from holdfast.terminal import output, wording

GLYPHS = {
    NodeState.IDLE: "○",
    NodeState.BUSY: "●",
    NodeState.DRAINING: "◌",
    NodeState.STALLED: "!",
    NodeState.OFFLINE: "✗",
}
COLOURS = {
    NodeState.IDLE: "bright_black",
    NodeState.BUSY: "cyan",
    NodeState.DRAINING: "yellow",
    NodeState.STALLED: "red",
    NodeState.OFFLINE: "bright_black",
}


@command()
@click.option("--all", "everything", is_flag=True, help="List also the processes that have left.")
def agents(everything: bool, store: str, as_json: bool) -> None:
    """List the processes that work on the store, and how each is doing.

    \b
    holdfast agents --json

    A process is idle, busy, draining, stalled (its event loop is blocked) or offline (its lease ran out). `success` is
    how many of its attempts in the last five minutes succeeded.
    """
    found, leader, now = run_quickly(_examined(store, everything))
    if as_json:
        leads = None if leader is None else leader.node
        output.print_json([health_object(health, leads) for health in found])
    elif not found:
        output.say("no process works on this store: start `holdfast up FILE` or `holdfast agent FILE`")
    else:
        _print(found, leader, now)


async def _examined(url: str, everything: bool) -> tuple[list[NodeHealth], LeaderLease | None, float]:
    async with opened(url) as hf:
        seen = await hf.desk.agents.list(hf.who, everything=everything)
    return seen.nodes, seen.lease, seen.now


def health_object(health: NodeHealth, leader: str | None) -> output.Object:
    node, rate = health.node, health.success_rate
    return {
        "id": node.id,
        "host": node.host,
        "pid": node.pid,
        "state": str(health.state),
        "roles": node.roles.split(","),
        "pool": health.pool,
        "pool_strength": health.strength,
        "leads": node.id == leader,
        "files": health.offers.get("files", []),
        "namespaces": health.offers.get("namespaces", []),
        "labels": health.offers.get("labels", []),
        "workflows": health.offers.get("workflows", []),
        "steps": health.offers.get("steps", []),
        "origins": origins(health),
        "capacity": node.capacity,
        "steps_held": health.steps,
        "runs_owned": health.runs,
        "succeeded_lately": health.succeeded,
        "failed_lately": health.failed,
        "success_rate": None if rate is None else round(rate, 4),
        "silent_s": round(health.silent_s, 3),
        "started_at": output.moment(node.started_at),
        "lease_until": output.moment(node.lease_until),
        "left_at": output.moment(node.retired_at),
    }


def origins(health: NodeHealth) -> list[str]:
    """Return the applications that the node's code comes from."""
    return sorted({source[0] for source in health.offers.get("sources", [])})


def _print(found: Sequence[NodeHealth], leader: LeaderLease | None, now: float) -> None:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415  only people need it
    from rich.table import Table  # noqa: PLC0415  only people need it

    from holdfast.terminal.screen import FILE_WIDTH, Screen, Text  # noqa: PLC0415  only people need it

    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    pooled = any(health.pool for health in found)
    for title in ("process", "state", "roles", *(["pool"] if pooled else [])):
        shown.add_column(title, no_wrap=True)
    for title in ("steps", "runs", "success", "up"):
        shown.add_column(title, justify="right", no_wrap=True)
    shown.add_column("can do", style="bright_black", no_wrap=True, overflow="ellipsis")
    for health in found:
        node = health.node
        shown.add_row(
            f"{node.host} {node.pid}",
            Text(f"{GLYPHS[health.state]} {health.state}", style=COLOURS[health.state]),
            node.roles.replace(",", " "),
            *([health.pool or ""] if pooled else []),
            f"{health.steps:,}/{node.capacity:,}" if "agent" in node.roles else "",
            f"{health.runs:,}" if "scheduler" in node.roles else "",
            _success(health),
            wording.span((node.retired_at or now) - node.started_at),
            _abilities(health, leader, now),
        )
    screen = Screen()
    if not screen.is_terminal:
        screen.width = FILE_WIDTH
    screen.print(shown)


def _success(health: NodeHealth) -> str:
    rate = health.success_rate
    return "" if rate is None else f"{rate:.0%} of {health.succeeded + health.failed:,}"


def _abilities(health: NodeHealth, leader: LeaderLease | None, now: float) -> str:
    node, offers = health.node, health.offers
    if node.retired_at is not None:
        return f"left {wording.span(now - node.retired_at)} ago"
    if health.state is NodeState.OFFLINE:
        return f"its lease ran out {wording.span(now - node.lease_until)} ago"
    if health.state is NodeState.STALLED:
        return f"its event loop has been blocked for {wording.span(health.silent_s)}"
    able = [
        wording.counted(len(offers[kind]), kind[:-1]) for kind in ("workflows", "steps") if offers.get(kind)
    ]
    if health.strength is not None:
        pool = health.strength
        able.append(
            f"{pool.get('at_work', 0)} of {wording.counted(pool.get('wanted', 0), 'agent')}, "
            f"{pool.get('least')} to {pool.get('most')}"
        )
    if leader is not None and leader.node == node.id and leader.since is not None:
        able.append(f"has led for {wording.span(now - leader.since)}")
    able += offers.get("labels", ())
    # The origin of a lone file is its path.
    able += [f"code of {PurePath(origin).name}" for origin in origins(health)]
    return ", ".join(able)

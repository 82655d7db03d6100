"""`doctor`: shows the health of a store as a list of facts, and for each what to do next if something is to be done."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.addresses import shown_address
from holdfast.client import Holdfast
from holdfast.commands.errors import DONE, ENDED_OTHERWISE
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import command, opened
from holdfast.model import (
    Breaker,
    BreakerState,
    Declaration,
    Hold,
    LeaderLease,
    NodeRow,
    Poison,
    RunState,
    StepRow,
    StepState,
)
from holdfast.store.reads import RunFilter
from holdfast.terminal import output, wording
from holdfast.terminal.lines import print_words

PENDING_MAX = 500
"""How many pending runs are read to find the oldest."""
ACTIVE_MAX = 200
"""How many active runs, the newest, are searched for steps that wait for an agent."""
WORKFLOWS_MAX = 1000
"""How many declared workflows are listed."""
WAITS_LONG_S = 60.0
"""A run or step that nobody has taken up for longer than this is worth a look."""
REPORT = "keep a copy of the store and report it: this should not be possible"
MOVES = {
    "I4": "`holdfast why RUN` says what each waits for; `holdfast hold RUN` and `holdfast release RUN` wake it",
    "I10": "a Supervisor reclaims these steps: is one running? `holdfast supervisor` starts one",
    "I10b": "a Supervisor frees these runs: is one running? `holdfast supervisor` starts one",
    "I26": "somebody wrote to the database by hand: `holdfast show RUN` shows what is there; `holdfast cancel RUN --force` ends it",
}
"""What an operator can do about a broken invariant, by its name."""


class Fact(NamedTuple):
    name: str
    value: str
    ok: bool = True
    """False if it is worth a look. Only invariants decide the exit code."""
    move: str = ""


class Invariant(NamedTuple):
    name: str
    meaning: str
    broken: int


class Diagnosis(NamedTuple):
    facts: list[Fact]
    invariants: list[Invariant]
    document: output.Object


@command(needs_database=True)
def doctor(store: str, as_json: bool) -> int:
    """Check the store's invariants and its health.

    \b
    holdfast doctor --store postgresql://holdfast@db.example/holdfast

    The exit code is 1 if an invariant is broken.
    """
    health = run_quickly(_examine(store))
    if as_json:
        output.print_json(health.document)
    else:
        _print(health)
    return ENDED_OTHERWISE if any(invariant.broken for invariant in health.invariants) else DONE


async def _examine(url: str) -> Diagnosis:
    async with opened(url) as hf:
        now = await hf.store.now()
        nodes = [one.node for one in (await hf.desk.agents.list(hf.who)).nodes]
        alive = [node for node in nodes if node.lease_until > now]
        runs = output.by_state(await hf.store.reads.runs_by_state(hf.namespace))
        leader = await hf.store.leader.leader()
        invariants = [Invariant(*row) for row in await hf.store.reads.doctor()]
        pending_s = await _oldest_pending(hf, now)
        ready = await _oldest_ready(hf, now)
        gates = await hf.gates.breakers(), await hf.gates.holds()
        poison = await hf.quarantine()
        declared = await hf.store.workflows.workflows(WORKFLOWS_MAX, hf.namespace)
        schema = hf.store.schema
    leads = leader is not None and leader.expires_at > now
    facts = [
        Fact("store", f"{shown_address(url)}, schema {schema}"),
        _nodes(nodes, alive),
        _leader(leader, nodes, now) if leads and leader else _leaderless(alive, runs),
        Fact("runs", ", ".join(f"{count:,} {state}" for state, count in runs.items()) or "none"),
        _code(declared),
        _pending(runs.get(RunState.PENDING, 0), pending_s, alive),
        _ready(ready, alive, now),
    ]
    facts += [
        Fact(
            state,
            f"{wording.counted(runs[state], 'run')} {'waits' if runs[state] == 1 else 'wait'} for a person",
            False,
            f"`holdfast ps --state {state}`",
        )
        for state in (RunState.STUCK, RunState.HELD)
        if runs.get(state)
    ]
    facts += _gates(*gates)
    if poison:
        facts.append(_quarantine(poison, now))
    document = {
        "store": shown_address(url),
        "schema": schema,
        "nodes": [
            {
                "id": node.id,
                "host": node.host,
                "pid": node.pid,
                "roles": node.roles.split(","),
                "alive": node in alive,
            }
            for node in nodes
        ],
        "workflows": [
            {
                "name": one.name,
                "version": one.version,
                "origin": one.origin,
                "declared_at": output.moment(one.last_at),
            }
            for one in declared
        ],
        "leader": leader.node if leads and leader else None,
        "leadership": leader_object(leader) if leads and leader else None,
        "runs": runs,
        "breakers": {row.name: str(row.state) for row in gates[0]},
        "holds": len(gates[1]),
        "oldest_pending_s": None if pending_s is None else round(pending_s, 3),
        "oldest_ready_s": None if ready is None else round(now - ready.ready_at, 3),
        "quarantine": {one.fingerprint: one.steps for one in poison},
        "invariants": [
            {"name": one.name, "meaning": one.meaning, "broken": one.broken, "ok": not one.broken}
            | ({"move": MOVES.get(one.name, REPORT)} if one.broken else {})
            for one in invariants
        ],
        "ok": not any(one.broken for one in invariants),
    }
    return Diagnosis(facts, invariants, document)


async def _oldest_pending(hf: Holdfast, now: float) -> float | None:
    """Return how long the oldest pending run has waited. It looks only at the newest PENDING_MAX."""
    pending = await hf.store.reads.runs(
        RunFilter(states=(RunState.PENDING,), limit=PENDING_MAX, namespace=hf.namespace)
    )
    return now - pending[-1].created_at if pending else None


async def _oldest_ready(hf: Holdfast, now: float) -> StepRow | None:
    """Return the step that has waited longest for an agent, among those of the newest ACTIVE_MAX runs."""
    oldest: StepRow | None = None
    for run in await hf.store.reads.runs(
        RunFilter(states=(RunState.RUNNING, RunState.UNDOING), limit=ACTIVE_MAX, namespace=hf.namespace)
    ):
        for step in await hf.store.reads.steps(run.id, limit=PENDING_MAX):
            waits = step.state is StepState.READY and step.ready_at <= now
            if waits and (oldest is None or step.ready_at < oldest.ready_at):
                oldest = step
    return oldest


def _nodes(nodes: list[NodeRow], alive: list[NodeRow]) -> Fact:
    value = f"{len(alive)} alive"
    roles = {role: sum(role in node.roles for node in alive) for role in ("scheduler", "agent", "supervisor")}
    if alive:
        value += f" ({', '.join(wording.counted(count, role) for role, count in roles.items())})"
    dead = len(nodes) - len(alive)
    if dead:
        return Fact(
            "nodes",
            f"{value}, {dead} dead",
            False,
            "a Supervisor reclaims what they had: is one running? `holdfast supervisor` starts one",
        )
    return Fact("nodes", value)


def _leader(leader: LeaderLease, nodes: list[NodeRow], now: float) -> Fact:
    node = next((node for node in nodes if node.id == leader.node), None)
    value = f"{node.host} pid {node.pid}" if node else leader.node
    if leader.since is not None:
        value += f", for {wording.span(now - leader.since)}"
    value += f", in epoch {leader.epoch}; its lease lasts another {wording.span(leader.expires_at - now)}"
    if leader.vacant_s is not None:
        what = "lost" if leader.predecessor else "left"
        value += f"; the one before was {what}, and for {wording.span(leader.vacant_s)} nobody led"
    return Fact("leader", value)


def leader_object(leader: LeaderLease) -> output.Object:
    """Return who leads, since when, and for how long nobody led before."""
    return {
        "node": leader.node,
        "epoch": leader.epoch,
        "since": output.moment(leader.since),
        "expires_at": output.moment(leader.expires_at),
        "vacant_s": None if leader.vacant_s is None else round(leader.vacant_s, 3),
        "predecessor": leader.predecessor,
    }


def _leaderless(alive: list[NodeRow], runs: dict[str, int]) -> Fact:
    busy = alive or any(runs.get(state) for state in (RunState.PENDING, RunState.RUNNING, RunState.UNDOING))
    move = "nobody reclaims what is lost: start `holdfast supervisor`, or `holdfast up FILE`" if busy else ""
    return Fact("leader", "none", not busy, move)


def _code(declared: list[Declaration]) -> Fact:
    """Say how many workflows are declared, and which applications they come from."""
    origins = sorted({one.origin for one in declared})
    value = (
        f"{wording.counted(len(declared), 'workflow')} of {', '.join(origins)}"
        if declared
        else "no workflow declared"
    )
    return Fact("code", value)


def _pending(count: int, oldest_s: float | None, alive: list[NodeRow]) -> Fact:
    if oldest_s is None:
        return Fact("pending", "no run waits for a scheduler")
    value = f"{wording.counted(count, 'run')}, the oldest for {wording.span(oldest_s)}"
    if not any("scheduler" in node.roles for node in alive):
        return Fact(
            "pending",
            value,
            False,
            "no scheduler is alive: start `holdfast up FILE` or `holdfast scheduler FILE`",
        )
    move = "`holdfast why RUN` says why" if oldest_s > WAITS_LONG_S else ""
    return Fact("pending", value, not move, move)


def _ready(oldest: StepRow | None, alive: list[NodeRow], now: float) -> Fact:
    if oldest is None:
        return Fact("ready", "no step waits for an agent")
    waited_s = now - oldest.ready_at
    value = f"step {oldest.key} of {oldest.run_id} has been waiting for an agent for {wording.span(waited_s)}"
    if not any("agent" in node.roles for node in alive):
        return Fact(
            "ready", value, False, "no agent is alive: start `holdfast up FILE` or `holdfast agent FILE`"
        )
    move = f"`holdfast why {oldest.run_id}` says why" if waited_s > WAITS_LONG_S else ""
    return Fact("ready", value, not move, move)


def _gates(breakers: list[Breaker], holds: list[Hold]) -> list[Fact]:
    """Say which breakers and holds keep steps from beginning."""
    shut = [row.name for row in breakers if row.state is not BreakerState.CLOSED]
    found = []
    if shut:
        value = f"{', '.join(shut)} {'is' if len(shut) == 1 else 'are'} not closed: steps wait"
        found.append(Fact("breakers", value, False, "`holdfast breakers` says why"))
    if holds:
        value = f"{wording.counted(len(holds), 'hold')} of operators: steps wait"
        found.append(Fact("holds", value, False, "`holdfast holds` lists them"))
    return found


def _quarantine(poison: list[Poison], now: float) -> Fact:
    count = wording.counted(sum(one.steps for one in poison), "step")
    alike = wording.counted(len(poison), "fingerprint")
    value = f"{count} of {alike}, the oldest for {wording.span(now - poison[0].since)}"
    return Fact("quarantine", value, False, "`holdfast quarantine` lists what to release, skip or fail")


def _print(health: Diagnosis) -> None:
    for fact in health.facts:
        _line(
            "✓" if fact.ok else "!", "green" if fact.ok else "yellow", f"{fact.name}: {fact.value}", fact.move
        )
    print_words()
    for invariant in health.invariants:
        if invariant.broken:
            words = f"{invariant.name} is broken in {wording.counted(invariant.broken, 'row')}: {invariant.meaning}"
            _line("✗", "red", words, MOVES.get(invariant.name, REPORT))
        else:
            _line("✓", "green", f"{invariant.name} {invariant.meaning}", "")


def _line(glyph: str, colour: str, words: str, move: str) -> None:
    print_words(f"{glyph} ", colour, end=False)
    print_words(words)
    if move:
        print_words(f"  {move}", dim=True)

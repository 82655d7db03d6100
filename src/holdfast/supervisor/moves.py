"""What would move a run, and what else may be done to it now: each as a button, as a command and as a request. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from holdfast.lifecycle import RUN_ENDED
from holdfast.model import (
    CANCEL,
    UNDO_PREFIX,
    AskRow,
    AskState,
    Breaker,
    BreakerState,
    Hold,
    HoldScope,
    RunState,
    StepKind,
    StepRow,
    StepState,
    undone_key,
)
from holdfast.namespaces import ALL
from holdfast.supervisor.facts import Facts
from holdfast.supervisor.phrases import command
from holdfast.supervisor.why import foremost, gate_of
from holdfast.wire.paths import path_of


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """Something that can be done."""

    verb: str
    """For example `retry`, `quarantine release` or `breakers reset`."""
    label: str
    """What a button says. It ends with `…` if more must be said."""
    command: str
    allowed: bool = True
    """False if whoever asks may not do it."""
    danger: bool = False
    """True if there is no way back."""
    path: str = ""
    """Where a server takes it, as a POST."""
    body: dict[str, Any] = {}


class _Seen(NamedTuple):
    facts: Facts
    shown: Callable[[str], str]

    @property
    def run_id(self) -> str:
        return self.shown(self.facts.run.id)


class Moves(msgspec.Struct, frozen=True):
    moves: list[Move]
    """What would move the run, the likeliest first."""
    acts: list[Move]
    """What else may be done to it now."""


def moves(facts: Facts, shown: Callable[[str], str] = str) -> Moves:
    """Return what may be done to a run now. `shown` returns a name as the reader sees it."""
    run, seen = facts.run, _Seen(facts, shown)
    if run.state in RUN_ENDED:
        return _ended(seen)
    found: list[Move] = []
    if run.state is RunState.HELD:
        found.append(_act(seen, "release", "Release"))
    elif run.state is RunState.STUCK:
        found += _stuck(seen)
    else:
        found += _waiting(seen)
    return Moves(found, [one for one in _acts(seen) if one.verb not in {each.verb for each in found}])


def _act(
    seen: _Seen, verb: str, label: str, *words: str, danger: bool = False, body: dict[str, Any] | None = None
) -> Move:
    """Return an act on the run itself."""
    return Move(
        verb=verb,
        label=label,
        command=_command(verb, seen.run_id, *words),
        danger=danger,
        path=f"/v1/runs/{path_of(seen.run_id)}/{verb}",
        body=body or {},
    )


def _command(*words: str) -> str:
    return command(*words).strip("`")


def _ended(seen: _Seen) -> Moves:
    run = seen.facts.run
    found = []
    if run.state is not RunState.SUCCEEDED and seen.facts.retried is None and run.parent_id is None:
        found.append(_act(seen, "retry", "Retry"))
    return Moves(found, [_act(seen, "fork", "Fork…")])


def _stuck(seen: _Seen) -> list[Move]:
    poison = next((step for step in seen.facts.steps if step.quarantined), None)
    if poison is not None:
        return _in_quarantine(poison, seen)
    found = [_act(seen, "retry", "Try again")]
    gave_up = {}
    for step in seen.facts.steps:
        if step.key.startswith(UNDO_PREFIX):
            gave_up[undone_key(step.key)[0]] = step
    keys = [key for key, step in gave_up.items() if step.state is StepState.FAILED]
    if keys:
        body = {"step": keys[0]}
        found.append(_act(seen, "skip", "Count as done by hand…", keys[0], danger=True, body=body))
        found.append(_stop(seen))
    return found


def _stop(seen: _Seen) -> Move:
    return _act(seen, "cancel", "Stop undoing…", "--force", danger=True, body={"force": True})


def _in_quarantine(step: StepRow, seen: _Seen) -> list[Move]:
    entry = next((one for one in seen.facts.quarantined if one.n == step.n), None)
    if entry is None:
        return [_act(seen, "retry", "Try again")]
    return [
        Move(
            verb=f"quarantine {verb}",
            label=label,
            command=_command("quarantine", verb, entry.fingerprint),
            danger=verb != "release",
            path=f"/v1/quarantine/{entry.fingerprint}/{verb}",
        )
        for verb, label in (("release", "Try again"), ("skip", "Go on without it…"), ("fail", "Let it fail…"))
    ]


def _waiting(seen: _Seen) -> list[Move]:
    """Return what would move an open run: the end of what its foremost step waits for."""
    step = foremost(seen.facts)
    if step is None:
        return []
    if step.quarantined:
        return _in_quarantine(step, seen)
    if step.kind is StepKind.SIGNAL:
        return [_signal(seen, step, "signal", "Send signal…")]
    if step.kind is StepKind.ASK:
        asks = (one.row for one in seen.facts.asks)
        return [answer_move(row) for row in asks if row.n == step.n and row.state is AskState.OPEN]
    if step.kind is StepKind.CALLBACK:
        return [_call_back(seen, step)]
    if step.kind is StepKind.SERVE:
        return [_signal(seen, step, "update", "Call update…")]
    if step.kind is not StepKind.CALL or step.state is not StepState.READY:
        return []
    gate = gate_of(step, seen.facts.run, seen.facts.lanes, seen.facts.holds, seen.facts.breakers)
    if gate is not None:
        return [gate_move(gate, seen.shown)]
    return [_act(seen, "retry", "Try now")] if step.ready_at > seen.facts.now else []


def _signal(seen: _Seen, step: StepRow, verb: str, label: str) -> Move:
    declared = seen.facts.signals_declared
    known = {} if declared is None else declared.data if verb == "signal" else declared.updates
    data = known.get(step.name, " --data JSON")
    return Move(
        verb=verb,
        label=label,
        command=f"{_command(verb, seen.run_id, step.name)}{data}",
        path=f"/v1/runs/{path_of(seen.run_id)}/{verb}s",
        body={"name": step.name},
    )


def _call_back(seen: _Seen, step: StepRow) -> Move:
    return Move(
        verb="callback",
        label="Answer for it…",
        command=f"{_command('callback', seen.run_id, step.key)} --data JSON",
        path=f"/v1/runs/{path_of(seen.run_id)}/callback",
        body={"step": step.key},
    )


def answer_move(row: AskRow) -> Move:
    """Return what answers a question. Its form says what more the request needs."""
    return Move(
        verb="answer",
        label="Answer…",
        command=f"{_command('answer', row.id)} --data JSON",
        path=f"/v1/asks/{path_of(row.id)}/answer",
    )


def gate_move(gate: Hold | Breaker, shown: Callable[[str], str] = str) -> Move:
    """Return what opens a gate."""
    if isinstance(gate, Breaker):
        return Move(
            verb="breakers reset",
            label="Try it now" if gate.state is not BreakerState.CLOSED else "Reset",
            command=_command("breakers", "reset", shown(gate.name)),
            path=f"/v1/breakers/{path_of(shown(gate.name))}/reset",
        )
    options = (
        ["--all", "--namespace", ALL]
        if gate.scope is HoldScope.ALL
        else [f"--{gate.scope}", shown(gate.value)]
    )
    return Move(
        verb="release hold",
        label="Release",
        command=_command("release", *options),
        path="/v1/holds/release",
        body={"scope": str(gate.scope), "value": shown(gate.value)},
    )


def _acts(seen: _Seen) -> list[Move]:
    run = seen.facts.run
    found = []
    if run.state in {RunState.PENDING, RunState.RUNNING, RunState.UNDOING}:
        found.append(_act(seen, "hold", "Hold"))
    found.append(_act(seen, "fork", "Fork…"))
    is_undoing = RunState.UNDOING in {run.state, run.resume} or (
        run.state is RunState.STUCK and run.resume is None
    )
    if is_undoing:
        found.append(_stop(seen))
    else:
        again = any(row.name == CANCEL for row in seen.facts.signals)
        words = ("--force",) if again else ()
        body = {"force": True} if again else {}
        found.append(_act(seen, "cancel", "Cancel…", *words, danger=True, body=body))
    return found

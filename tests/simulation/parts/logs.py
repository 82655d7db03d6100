"""Steps that log. What an attempt logged is kept with it, within the bound, and is there as soon as its end is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import Retry, here, step
from holdfast.agent import logs as agent_logs
from holdfast.log_buffer import LogBuffer
from holdfast.model import LogLine, Outcome
from holdfast.store.batch import WriteBatch
from holdfast.store.operations import HandBack, RetryStep
from tests.simulation import program
from tests.simulation.ledger import ledger
from tests.simulation.mutants import code, mutant
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.simulation import Simulation

log = logging.getLogger("simulated")
log.propagate = False
log.addHandler(logging.NullHandler())

_lines = msgspec.json.Decoder(list[LogLine])
Place = tuple[str, int, int]
"""(run, n, attempt)."""


def say(text: str) -> None:
    """Log a line. The simulation has switched logging off, and nobody else runs meanwhile."""
    disabled = logging.root.manager.disable
    logging.disable(logging.NOTSET)
    try:
        log.warning(text)
    finally:
        logging.disable(disabled)


@step(retry=Retry(attempts=3, delay=0.1, max_delay=0.4), timeout=2.5)
async def chat(tag: int, how: str) -> int:
    """Log some lines before and after the effect."""
    part = ledger.simulation.parts.find("logs")
    assert isinstance(part, Logs)
    part.log_some(ledger.simulation)
    done = await program._do(tag, how)
    part.log_some(ledger.simulation)
    await asyncio.sleep(part.dice.choice((0.0, 0.0, 0.3)))
    part.log_some(ledger.simulation)
    return done


@chat.undo(retry=Retry(attempts=6, delay=0.1, max_delay=0.3))
async def unchat(done: int | None, tag: int, how: str) -> None:
    await program._undo(done, tag, how)


program.STEPS["chat"] = chat
program.UNDOABLE.add("chat")


def I39_logs_stay_with_their_attempt(checker: Checker, commit: Commit) -> Iterable[str]:
    """When an agent reports the end of an attempt, all that the attempt has logged is in the store with that: the first
    and the last lines, if it is more than the bound. Nothing is kept that no attempt has logged."""
    part = checker.world.parts.find("logs")
    assert isinstance(part, Logs)
    if "logs" not in commit.tables and not part.logged:
        return
    for place in [place for place in part.logged if place not in part.over]:
        step = checker.connection.execute(
            "SELECT state, attempt FROM steps WHERE run_id = ? AND n = ?", place[:2]
        ).get
        if step is None or (step[0] == "running" and step[1] == place[2]):
            continue
        part.over.add(place)
        if commit.verb == "commit" and _was_reported(commit, place):
            yield from part.compare(checker, place)


def _was_reported(commit: Commit, place: Place) -> bool:
    """True if the agent that ran this attempt has written its end."""
    before = next(
        (
            before
            for _, before, _ in commit.steps
            if before is not None and (before.run_id, before.n) == place[:2]
        ),
        None,
    )
    if before is None or before.state != "running" or before.attempt != place[2]:
        return False
    reports = [
        op
        for op in (
            *commit.asked["ops"],
            *(o for op in commit.asked["ops"] for o in getattr(op, "outcomes", ())),
        )
        if isinstance(op, Outcome | RetryStep | HandBack)
    ]
    return any((op.run_id, op.n, op.fence) == (before.run_id, before.n, before.fence) for op in reports)


class Logs(Part):
    name = "logs"
    share = 0.08
    known = (chat, unchat)
    checks = (I39_logs_stay_with_their_attempt,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.logged: dict[Place, list[str]] = {}
        self.over: set[Place] = set()

    def settings(self) -> dict[str, Any]:
        return {
            "logs_max_bytes": self.dice.choice((4096, 8192, 65536)),
            "beat_s": self.dice.choice((0.1, 0.7)),
        }

    def steps(self) -> tuple[str, ...]:
        return ("chat",) * 4

    def log_some(self, simulation: Simulation) -> None:
        run_id, key = here.run_id, here.key.split("::", 1)[1]
        place = run_id, simulation.checker.keys[run_id, key], here.attempt
        lines = self.logged.setdefault(place, [])
        for _ in range(self.dice.choice((0, 1, 2, 20))):
            lines.append(
                f"{run_id} {place[1]} {here.attempt} {len(lines)} {'x' * self.dice.choice((0, 5, 300))}"
            )
            say(lines[-1])

    def compare(self, checker: Checker, place: Place) -> Iterable[str]:
        """Compare what an attempt has logged with what is kept of it."""
        rows: list[tuple[int, int, bytes]] = checker.connection.execute(
            "SELECT first_line, lines, body FROM logs WHERE run_id = ? AND n = ? AND attempt = ? AND twin = 0 "
            "ORDER BY first_line",
            place,
        ).fetchall()
        kept = {
            first + i: line.message for first, _, body in rows for i, line in enumerate(_lines.decode(body))
        }
        said = self.logged[place]
        size, most = sum(len(body) for _, _, body in rows), checker.config.logs_max_bytes
        if size > most + len(rows):
            yield f"{size} bytes of what {place} logged are kept, of at most {most}"
        if any(number >= len(said) or said[number] != line for number, line in kept.items()):
            yield f"{place} logged {said[:3]}, and {list(kept.values())[:3]} are kept"
        whole = sum(len(line) + 100 for line in said) < most // 2
        missing = [number for number in range(len(said)) if number not in kept]
        if missing and (whole or missing[0] == 0 or missing[-1] == len(said) - 1):
            yield f"lines {missing} of the {len(said)} that {place} logged are not kept"
        if missing:
            checker.world.sometimes("the middle of what a step logged was left out")
        elif said:
            checker.world.sometimes("all that a step logged was kept")


@mutant("what an attempt logged is written with its end", within=60, part="logs")
def logs_of_outcomes_are_lost(stack: ExitStack) -> None:
    real = WriteBatch._record

    def record(self: Any, run_id: str, outcome: Any) -> None:
        real(self, run_id, msgspec.structs.replace(outcome, logs=()))

    code(stack, WriteBatch, "_record", record)


@mutant("the last lines are kept", within=60, part="logs")
def last_lines_are_lost(stack: ExitStack) -> None:
    def close(self: Any) -> list[Any]:
        parts: list[Any] = self.take()
        self.closed = True
        return parts[:-1]

    code(stack, LogBuffer, "close", close)


@mutant("what is logged belongs to its attempt", within=60, part="logs")
def logs_belong_to_the_first_attempt(stack: ExitStack) -> None:
    class First(LogBuffer):
        def __init__(self, attempt: int, max_bytes: int, *, twin: bool = False) -> None:
            super().__init__(1, max_bytes, twin=twin)

    code(stack, agent_logs, "LogBuffer", First)


@mutant("what is kept of a step's logs is bounded", within=60, part="logs")
def logs_have_no_bound(stack: ExitStack) -> None:
    code(stack, LogBuffer, "_next_number", lambda self: self._number + 1)

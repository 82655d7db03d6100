"""Callers who start runs within transactions of their own, which they commit or roll back. A run exists if its
transaction was committed, and then it ends like any other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from holdfast.errors import Conflict, StoreError
from holdfast.store.sqlite.connections import Connections
from holdfast.store.sqlite.database import SqliteDatabase
from holdfast.store.transaction import transaction_of
from tests.simulation import program
from tests.simulation.mutants import code, mutant
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from holdfast.testing.world import Process
    from tests.simulation.simulation import Simulation

PLAN: program.Plan = ["seq", [["do", "work", 1, "quick"], ["do", "book", 2, "ok"]]]
OTHER: program.Plan = ["seq", [["do", "work", 3, "quick"]]]


class Transactions(Part):
    name = "transactions"
    share = 0.08

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._committed: dict[str, program.Plan] = {}
        """The runs whose transactions were committed, with their plans."""
        self._rolled_back: set[str] = set()
        self._at: dict[str, float] = {}
        """When they were started, by the clock of the store."""
        self._wrong: list[str] = []

    def begin(self, simulation: Simulation) -> None:
        for number in range(self.dice.randint(1, 4)):
            simulation.drive(self._start_some(simulation, f"w{number}"))

    async def _start_some(self, simulation: Simulation, run_id: str) -> None:
        """Start a run once or several times, as a caller does whose request is repeated."""
        dice = self.dice
        for _ in range(dice.randint(1, 3)):
            await asyncio.sleep(0.1 + dice.random() * 1.5)
            working = simulation.working
            if working:
                plan = OTHER if dice.random() < 0.2 else PLAN
                self._start(simulation, dice.choice(working), run_id, plan, commits=dice.random() < 0.6)

    def _start(
        self, simulation: Simulation, process: Process, run_id: str, plan: program.Plan, *, commits: bool
    ) -> None:
        """Begin a transaction, start a run in it, and end the transaction. No other code runs in between: the
        simulation has one connection."""
        connection = simulation.connection
        raw, _ = program.program.shape.checked((json.dumps(plan),), {}, 100_000)
        new = process._new_run(program.program.using(id=run_id), raw)
        if run_id in simulation.pruned:
            return
        is_known = run_id in self._committed
        connection.execute("BEGIN IMMEDIATE")
        try:
            with patch.object(Connections, "is_at", lambda self, path: True):
                _finish(process.store.batches.start_within(transaction_of(connection), new))
        except Conflict:
            if not is_known or self._committed[run_id] == plan:
                self._wrong.append(f"G1 {run_id} was refused within a transaction, and nobody has started it")
            simulation.sometimes("a start within a transaction was refused")
            connection.execute("ROLLBACK")
            simulation.rolled_back()
            return
        except StoreError:
            connection.execute("ROLLBACK")
            simulation.rolled_back()
            return
        if is_known and self._committed[run_id] != plan:
            self._wrong.append(f"G1 {run_id} was started within a transaction with another input")
        if commits:
            connection.execute("COMMIT")
            if not is_known:
                self._committed[run_id], self._at[run_id] = plan, simulation.store_now()
                simulation.committed(process, "start_within", {})
                simulation.sometimes("a run was started within a transaction")
            else:
                simulation.rolled_back()  # nothing was changed
        else:
            connection.execute("ROLLBACK")
            simulation.rolled_back()
            self._rolled_back.add(run_id)
            simulation.sometimes("a transaction that had started a run was rolled back")

    def endings(self, simulation: Simulation) -> Iterator[str]:
        yield from self._wrong
        runs = simulation.checker.runs
        for run_id in self._rolled_back - self._committed.keys():
            if run_id in runs:
                yield f"G1 {run_id} exists, and its transaction was rolled back"
        for run_id, plan in self._committed.items():
            run = runs.get(run_id)
            if run is None:
                yield f"G1 {run_id} was started within a transaction, and is lost"
            elif abs(run.created_at - self._at[run_id]) > 0.001:
                yield f"G1 {run_id} was made {run.created_at - self._at[run_id]:.3f} s after its transaction"
            elif run.state == "succeeded":
                result = json.loads(json.loads(run.output or b"null"))
                if not program.matches(result, program.expected_result(plan)):
                    yield f"G2 run {run_id} returned {result}"


def _finish(starting: Any) -> None:
    """Run a coroutine that does not wait to its end."""
    try:
        starting.send(None)
    except StopIteration:
        return
    raise AssertionError("a start within a transaction waited, and its transaction is open")


@mutant("a start within a transaction is refused if the input differs", within=60, part="transactions")
def conflicts_within_transactions_are_ignored(stack: ExitStack) -> None:
    real = SqliteDatabase.start_within

    async def start_within(self: Any, transaction: Any, run: Any) -> str:
        try:
            return await real(self, transaction, run)
        except Conflict:
            return str(run.id)

    code(stack, SqliteDatabase, "start_within", start_within)


@mutant("a start within a transaction is undone with it", within=60, part="transactions")
def starts_end_the_callers_transaction(stack: ExitStack) -> None:
    real = SqliteDatabase._execute_within

    async def execute_within(self: Any, connection: Any, ask: Any) -> Any:
        started = await real(self, connection, ask)
        connection.execute("COMMIT")
        connection.execute("BEGIN IMMEDIATE")
        return started

    code(stack, SqliteDatabase, "_execute_within", execute_within)

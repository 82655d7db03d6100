"""Many signals: runs that wait again and again, and senders who send each signal several times."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from holdfast.decider.mailbox import Mailbox
from holdfast.model import SignalRow
from holdfast.scheduler.owned_run import Owned
from tests.simulation import program
from tests.simulation.mutants import code, mutant, sql
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.simulation import Simulation


def I36_read_once(checker: Checker, commit: Commit) -> Iterable[str]:
    """A signal is read by one wait, and the same key is the same signal."""
    for _, before, after in commit.signals:
        if before is None and after is not None and after.payload.startswith(b'"key ') and not commit.retried:
            same = checker.connection.execute(
                "SELECT count(*) FROM signals WHERE run_id = ? AND name = ? AND payload = ?",
                (after.run_id, after.name, after.payload),
            ).get
            if same != 1:
                yield f"{after.run_id} has {same} signals with the key of {after}"
    for _, before, after in commit.steps:
        if (
            after is None
            or after.kind != "signal"
            or not after.delivered_seq
            or after.run_id in commit.retried
        ):
            continue
        if before is None or before.delivered_seq != after.delivered_seq:
            readers = checker.connection.execute(
                "SELECT count(*) FROM steps WHERE run_id = ? AND kind = 'signal' AND delivered_seq = ?",
                (after.run_id, after.delivered_seq),
            ).get
            if readers != 1:
                yield f"{readers} waits of {after.run_id} read signal {after.delivered_seq}"


class Mail(Part):
    name = "mail"
    share = 0.1
    checks = (I36_read_once,)

    def kinds(self) -> tuple[str, ...]:
        return ("wait",) * 6 + ("send",) * 3

    def begin(self, simulation: Simulation) -> None:
        for run_id, plan in simulation.plans.items():
            for i in range(program.signals_awaited(plan)):
                for _ in range(self.dice.randint(0, 2)):
                    simulation.drive(simulation._send(run_id, f"key {i}"))


@mutant("a signal is read by one wait", within=60, part="mail")
def signals_are_read_again(stack: ExitStack) -> None:
    def wait(self: Any, wait: Any) -> None:
        unread = self._unread.get(wait.name)
        while unread:
            seq, payload = unread[0]
            problem = self._answer(wait, seq, payload)
            if problem is None:
                return
            unread.popleft()
            self.set_aside.append((seq, problem))
        self._readers.setdefault(wait.name, deque()).append(wait)

    code(stack, Mailbox, "wait", wait)


@mutant("a signal that a scheduler reads twice is delivered once", within=60, part="mail")
def signals_are_delivered_twice(stack: ExitStack) -> None:
    real = Owned.arrive

    def arrive(self: Any, arrival: Any) -> bool:
        if isinstance(arrival, SignalRow):
            self.inbox.append(arrival)
            return True
        return real(self, arrival)

    code(stack, Owned, "arrive", arrive)
    sql(stack, "deliver_signals", "AND +delivered_seq IS NULL", "")


@mutant("the same key is the same signal", within=60, part="mail")
def keys_of_signals_are_ignored(stack: ExitStack) -> None:
    for verb in ("send_signal", "send_signals"):
        sql(stack, verb, "?2, ?3", "?2, iif(?2 = 'note', ?3 || lower(hex(randomblob(4))), ?3)")

"""What all rules share: the model and both stores, how all three are asked the same, and how their answers are
compared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, NamedTuple, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

from holdfast.model import LogPart
from holdfast.store.operations import Op
from tests.differential.spec import Spec
from tests.differential.subjects import Postgres, Sqlite, Subject, expected, seen

WORKFLOWS = (("shop.order", "1"), ("shop.refund", "1"))
NAMESPACES = ("default", "other")
STEPS = {1: ("charge", "bank"), 2: ("ship", "post")}
"""The step's name and its dependency, by lane."""
LANES = tuple(STEPS)
UNDOS = {2: "unship"}
"""The names of the undos, by lane."""
LOSSES_MAX = 1
ALL = 1000
KEPT_GRANTS = 12

T = TypeVar("T")
Draw = Callable[[Any], Any]
Ask = Callable[[Subject], Coroutine[Any, Any, Any]]
Make = Callable[[Subject | None], Op]
"""Makes an operation with the times and signal numbers of a store, or of the model if the store is None."""

small = st.integers(0, 7)
logged_parts = st.lists(
    st.tuples(st.integers(1, 2), st.integers(0, 2), st.integers(0, 9), st.integers(1, 2)), max_size=2
)
"""(attempt, part, first line, lines) of what is logged."""


def parts(logged: list[tuple[int, int, int, int]], at: float, *, twin: bool = False) -> list[LogPart]:
    return [
        LogPart(attempt, twin, part, first, 10 * first, lines, at, b"[%d]" % lines)
        for attempt, part, first, lines in logged
    ]


nodes = st.sampled_from(("a", "b", "c", "d"))


class Grant(NamedTuple):
    """A run (n is 0) or a step that a node has claimed. It may have lost it since."""

    node: str
    run_id: str
    n: int
    fence: int


def differing(found: Any, wanted: Any) -> Any:
    """Return what a store has and what the model has, where they differ."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        keys = found.keys() | wanted.keys()
        return {
            key: differing(found.get(key), wanted.get(key))
            for key in keys
            if found.get(key) != wanted.get(key)
        }
    return found, wanted


def unlike(ones: list[Any], others: list[Any]) -> str:
    """Return what only SQLite has, and what only PostgreSQL has."""
    return f"in SQLite {[o for o in ones if o not in others]}, in PostgreSQL {[o for o in others if o not in ones]}"


class Asking(RuleBasedStateMachine):
    postgres: ClassVar[Postgres]
    runner: ClassVar[asyncio.Runner]

    def __init__(self) -> None:
        super().__init__()
        self.spec = Spec()
        self.postgres.empty()
        sqlite = Sqlite(self.spec)
        self.subjects: list[Subject] = [sqlite, self.postgres]
        self._do(sqlite.open())
        self.grants: list[Grant] = []
        self.twins: list[Grant] = []
        """The same for twins."""
        self.epochs = [1]
        self.outbox_epochs = [1]
        self.made = 0
        self.last: tuple[str, list[Make]] | None = None
        for node in ("a", "b"):
            self._register(node, 3.5)
        for lane, (name, depends) in STEPS.items():
            self.spec.lanes[lane] = name, depends
            self.spec.undoable = set(UNDOS)
            self._same([lane], self._makes_lane(name, UNDOS.get(lane), depends))

    @staticmethod
    def _makes_lane(name: str, undo: str | None, depends: str) -> Ask:
        return lambda subject: subject.store.schedulers.number_lanes([(name, (), undo, depends)])

    def teardown(self) -> None:
        self._do(self.subjects[0].store.close())

    # --- asking all three -------------------------------------------------------------------------------------------

    def _do(self, asked: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(asked)

    def _alike(self, what: str, ask: Ask, *, ordered: bool = True) -> None:
        """Check that both stores give the same answer. The model does not have this verb, because it only reads rows
        that are compared anyway."""
        answers = []
        for subject in self.subjects:
            answer = seen(subject, self.spec, self._do(ask(subject)))
            answers.append(answer if ordered else sorted(answer, key=repr))
        assert answers[0] == answers[1], f"{what}: SQLite answers {answers[0]!r}, PostgreSQL {answers[1]!r}"

    def _same(self, wanted: Any, ask: Ask) -> None:
        """Check that both stores give the answer of the model."""
        for subject in self.subjects:
            answer = self._do(ask(subject))
            assert answer == wanted, f"{type(subject).__name__} answers {answer!r}, the model {wanted!r}"

    @invariant()
    def rows_are_the_same(self) -> None:
        wanted, whole = expected(self.spec), []
        for subject in self.subjects:
            tables = subject.tables()
            found = subject.rows(self.spec, tables)
            for table, rows in wanted.items():
                assert found[table] == rows, (
                    f"{type(subject).__name__}: {table}: {differing(found[table], rows)}"
                )
            whole.append(subject.whole_rows(self.spec, tables))
        for table, rows in whole[0].items():
            assert rows == whole[1][table], f"{table}: {unlike(rows, whole[1][table])}"

    def _register(self, node: str, lease_h: float) -> None:
        self.spec.register(node, lease_h)
        for subject in self.subjects:
            subject.register(self.spec, node, lease_h)

    def _tick(self) -> None:
        """Move the time, so that no two operations happen at the same instant."""
        self.spec.now += 1e-6

    def _grant(self, *grants: Grant) -> None:
        self.grants = [*self.grants, *grants][-KEPT_GRANTS:]

    def _some_runs(self, data: st.DataObject) -> list[str] | None:
        """Draw the runs to which a node is restricted, or None if it works on all."""
        known = st.lists(st.sampled_from([*self._runs(), "unknown"]), unique=True, max_size=3)
        return data.draw(st.one_of(st.none(), st.none(), known))

    def _runs(self) -> list[str]:
        return list(self.spec.runs)

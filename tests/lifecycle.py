"""A watch on every change of state of a run or a step in a SQLite store. It compares the changes with the tables of
`holdfast.lifecycle`."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import apsw

from holdfast.lifecycle import RUN_TRANSITIONS, STEP_TRANSITIONS
from holdfast.store.sqlite.verbs import STATEMENTS

Change = tuple[str, str, str | None, str]
"""(statement, table, old state, new state). The old state of a new row is None."""

ALLOWED: frozenset[Change] = frozenset(
    (statement, table, source, move.target)
    for table, moves in (("runs", RUN_TRANSITIONS), ("steps", STEP_TRANSITIONS))
    for move in moves
    for statement in move.statements
    for source in (move.sources or [None])
)
_VERBS = {sql: str(verb) for verb, sql in STATEMENTS.items()}
_watching: WeakKeyDictionary[apsw.Connection, list[Watch]] = WeakKeyDictionary()
"""By connection, the watch on it. SQLite compiles every statement again after a function was added to a connection, so
it is added once, and calls the watch that is there now."""
_TRIGGERS = """
CREATE TEMP TRIGGER IF NOT EXISTS {table}_made AFTER INSERT ON main.{table}
BEGIN SELECT state_changed('{table}', NULL, NEW.state); END;
CREATE TEMP TRIGGER IF NOT EXISTS {table}_moved AFTER UPDATE OF state ON main.{table} WHEN OLD.state IS NOT NEW.state
BEGIN SELECT state_changed('{table}', OLD.state, NEW.state); END;
"""


class Watch:
    """Collects the changes of state on one connection, with the statement that made each of them."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.seen: set[Change] = set()
        self._sql = ""
        watch = _watching.setdefault(connection, [])
        if not watch:

            def state_changed(*change: Any) -> None:
                watch[0]._changed(*change)

            connection.create_scalar_function("state_changed", state_changed, 3)
            for table in ("runs", "steps"):
                connection.execute(_TRIGGERS.format(table=table))
        watch[:] = [self]
        connection.set_exec_trace(self._begins)

    def _begins(self, _cursor: object, sql: str, _bindings: object) -> bool:
        self._sql = sql
        return True

    def _changed(self, table: str, source: str | None, target: str) -> None:
        verb = _VERBS.get(self._sql)  # None for SQL of a test, or for a statement that a mutant changed
        if verb is not None:
            self.seen.add((verb, table, source, target))

    @property
    def forbidden(self) -> set[Change]:
        """Return the changes that the tables do not allow."""
        return self.seen - ALLOWED

"""The two dialects, as the differential tests drive them: with a clock that can be moved, and with all rows in one form.

SQLite's clock is injected. PostgreSQL's is its own: time passes there by moving every stored time back, which is the same
for everything that compares a stored time with the clock. The clock moves by whole hours and every span is a number of hours
and a half, so that the seconds a test takes do not matter and nothing ends in the instant somebody looks.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from typing import Any

import psycopg
from psycopg.rows import dict_row

from holdfast.environment import Environment
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import UNDO
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.protocol import Store
from holdfast.store.sqlite.store import SqliteStore
from tests.differential.spec import Run, Spec, Step

HOUR = 3600.0
EPOCH = 1_000_000.0
"""Where the model's hours begin, in hours since 1970: never before the epoch, whatever is moved back."""
TIMES = {
    "runs": ("deadline", "created_at", "started_at", "finished_at"),
    "steps": ("ready_at", "complete_by", "issued_at", "started_at", "finished_at"),
    "attempts": ("started_at", "finished_at"),
    "signals": ("sent_at",),
    "nodes": ("started_at", "lease_until", "retired_at"),
    "leases": ("expires_at",),
    "journal": ("at",),
    "alerts": ("at", "last_at", "cleared_at"),
}
TABLES = (*TIMES, "failures")
RUN_TIMES = ("deadline", "created_at", "started_at", "finished_at")
STEP_TIMES = ("ready_at", "complete_by", "issued_at", "started_at", "finished_at")

NEVER_AWAY = 10_000_000

Rows = dict[str, Any]


class ModelClock(Environment):
    """SQLite's clock in these tests: the model's."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec

    def now(self) -> float:
        return (EPOCH + self.spec.now) * HOUR


class Subject(ABC):
    store: Store

    @abstractmethod
    def at(self, spec: Spec, hours: float) -> float:
        """An instant of the model on this store's clock."""

    @abstractmethod
    def advance(self, hours: float) -> None: ...

    @abstractmethod
    def register(self, spec: Spec, node: str, lease_h: float) -> None: ...

    @abstractmethod
    def tables(self) -> dict[str, list[Rows]]: ...

    def rows(self, spec: Spec) -> Rows:
        """Everything that can be seen, in the form of `expected`."""
        tables = self.tables()
        now = self.at(spec, spec.now)
        ended = {row["id"] for row in tables["runs"] if row["state"] in RUN_ENDED}
        return {
            "runs": {row["id"]: _picked(row, Run._fields, RUN_TIMES, now) for row in tables["runs"]},
            "steps": {
                (row["run_id"], row["n"]): _picked(row, Step._fields, STEP_TIMES, now)
                for row in tables["steps"]
            },
            "signals": [
                _signal(row, ended)
                for row in sorted(tables["signals"], key=lambda row: (row["run_id"], row["id"]))
            ],
            "attempts": _counted(
                (row["run_id"], row["n"], row["attempt"], row["ending"], row["agent"])
                for row in tables["attempts"]
            ),
            "nodes": {
                row["id"]: (_hours(row["lease_until"], now), row["retired_at"] is not None)
                for row in tables["nodes"]
            },
            "leases": {
                row["name"]: (row["holder"], row["epoch"], _hours(row["expires_at"], now))
                for row in tables["leases"]
            },
            "failures": _counted((row["run_id"], row["n"]) for row in tables["failures"]),
            "journal": _counted(
                (row["actor"], row["verb"], row["run_id"]) for row in tables["journal"] if row["run_id"]
            ),
            "stuck": {
                row["run_id"]
                for row in tables["alerts"]
                if row["kind"] == "run stuck" and row["cleared_at"] is None
            },
        }


def expected(spec: Spec) -> Rows:
    """What the model says can be seen."""
    ended = {run.id for run in spec.runs.values() if run.state in RUN_ENDED}
    return {
        "runs": {
            run.id: _picked(run._asdict(), Run._fields, RUN_TIMES, spec.now, 1.0)
            for run in spec.runs.values()
        },
        "steps": {
            key: _picked(step._asdict(), Step._fields, STEP_TIMES, spec.now, 1.0)
            for key, step in spec.steps.items()
        },
        "signals": [
            _signal(signal._asdict(), ended)
            for signal in sorted(spec.signals.values(), key=lambda signal: signal.run_id)
        ],
        "attempts": _counted(spec.attempts),
        "nodes": {
            name: (_hours(node.lease_until, spec.now, 1.0), node.retired) for name, node in spec.nodes.items()
        },
        "leases": {
            name: (lease.holder, lease.epoch, _hours(lease.expires_at, spec.now, 1.0))
            for name, lease in spec.leases.items()
        },
        "failures": _counted(spec.failures),
        "journal": _counted(spec.journal),
        "stuck": spec.stuck & set(spec.runs),
    }


def _picked(
    row: Rows, fields: tuple[str, ...], times: tuple[str, ...], now: float, hour: float = HOUR
) -> Rows:
    picked = {}
    for field in fields:
        value = row[field]
        if field in times:
            value = _hours(value, now, hour)
        elif field == "error":
            value = _error(value)
        elif isinstance(value, memoryview):
            value = bytes(value)
        picked[field] = value
    return picked


def _hours(at: float | None, now: float, hour: float = HOUR) -> int | None:
    """How far away, in half hours. What is never due stays so, however much time passes."""
    if at is None:
        return None
    away = round(2 * (at - now) / hour)
    return min(away, NEVER_AWAY)


def _error(text: str | None) -> str | None:
    """Errors that the store itself writes are named by how the attempt ended, or by their type."""
    if text is None or not text.startswith("{"):
        return text
    told = json.loads(text)
    return str(told.get("ending") or told["type"])


def _signal(row: Rows, ended: set[str]) -> tuple[Any, ...]:
    """Whether what an ended run never took in is marked at once or by the leader's next pass makes no difference."""
    seq = row["delivered_seq"] or None if row["run_id"] in ended else row["delivered_seq"]
    internal = row["name"].startswith("$")
    payload = b"" if internal else bytes(row["payload"])
    return row["run_id"], row["name"], "" if row["name"] == UNDO else row["key"], payload, seq


def _counted(rows: Iterable[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in rows)


class Sqlite(Subject):
    def __init__(self, spec: Spec) -> None:
        from holdfast.config import DEFAULT

        self.store: SqliteStore = SqliteStore("sqlite://:memory:", ModelClock(spec), DEFAULT)

    def at(self, spec: Spec, hours: float) -> float:
        return (EPOCH + hours) * HOUR

    def advance(self, hours: float) -> None:
        """The model's clock is this store's."""

    def _execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[Rows]:
        connection = self.store._database._writer
        assert connection is not None
        cursor = connection.execute(sql, values)
        found = []
        for row in cursor:
            names = [name for name, _ in cursor.get_description()]
            found.append(dict(zip(names, row, strict=True)))
        return found

    def register(self, spec: Spec, node: str, lease_h: float) -> None:
        now = self.at(spec, spec.now)
        self._execute(
            "INSERT INTO nodes (id, host, pid, roles, offers, capacity, started_at, lease_until)"
            " VALUES (?, 'here', 1, '', '{}', 1, ?, ?)",
            (node, now, now + lease_h * HOUR),
        )

    def tables(self) -> dict[str, list[Rows]]:
        return {table: self._execute(f"SELECT * FROM {table}") for table in TABLES}


class Postgres(Subject):
    def __init__(self, url: str) -> None:
        from holdfast.config import DEFAULT

        self.store: PostgresStore = PostgresStore(url, Environment(), DEFAULT)
        self._sql = psycopg.connect(
            url, autocommit=True, row_factory=dict_row, options="-c search_path=holdfast"
        )

    def at(self, spec: Spec, hours: float) -> float:
        return time.time() + (hours - spec.now) * HOUR

    def advance(self, hours: float) -> None:
        moves = [
            f"UPDATE {table} SET "
            + ", ".join(
                f"{column} = {column} - CASE WHEN {column} < '3000-01-01' THEN interval '{hours} hours'"
                " ELSE interval '0' END"
                for column in columns
            )
            for table, columns in TIMES.items()
        ]
        self._sql.execute("; ".join(moves).encode())

    def register(self, spec: Spec, node: str, lease_h: float) -> None:
        self._sql.execute(
            "INSERT INTO nodes (id, host, pid, roles, offers, capacity, lease_until)"
            " VALUES (%s, 'here', 1, '', '{}', 1, clock_timestamp() + make_interval(secs => %s))",
            (node, lease_h * HOUR),
        )

    def tables(self) -> dict[str, list[Rows]]:
        found = {}
        for table in TABLES:
            rows = self._sql.execute(f"SELECT * FROM {table}".encode()).fetchall()
            for row in rows:
                for column in TIMES.get(table, ()):
                    if row[column] is not None:
                        row[column] = row[column].timestamp()
            found[table] = rows
        return found

    def empty(self) -> None:
        self._sql.execute(f"TRUNCATE {', '.join(TABLES)} RESTART IDENTITY".encode())

    def close(self) -> None:
        self._sql.close()

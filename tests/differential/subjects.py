"""The two dialects as the differential tests use them: with a clock that can be moved, and with all rows in the same
form.

SQLite gets its clock from the test. PostgreSQL has its own clock, so time passes there by moving every stored time
back. That has the same effect on everything that compares a stored time with the clock. The clock moves by whole hours,
and every span is a number of hours and a half. So the seconds that a test takes do not matter, and nothing ends at the
instant when somebody looks.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Iterable
from functools import cached_property
from typing import Any, ClassVar, cast

import apsw
import msgspec
import psycopg
from psycopg.rows import dict_row

from holdfast.environment import Environment
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import UNDO, UPDATE_PREFIX, Breaker, Declaration
from holdfast.store import open_store
from holdfast.store.database import Noun, StoreCall
from holdfast.store.origins import Offers
from holdfast.store.sqlite.database import SqliteDatabase
from holdfast.store.store import Store
from holdfast.store.workflows import declare
from tests.differential.spec import Alert, Delivery, Listed, Logged, Run, Spec, Step, Twin
from tests.differential.spec.acts import Act, Planned
from tests.differential.spec.retention import CODED
from tests.differential.spec.rows import CONFLICT
from tests.lifecycle import Watch

HOUR = 3600.0
EPOCH = 1_000_000.0
"""Where the model's hours begin, in hours since 1970. It is so late that no time is moved back to before 1970."""
TIMES = {
    "runs": ("deadline", "created_at", "started_at", "finished_at"),
    "steps": ("ready_at", "complete_by", "issued_at", "started_at", "finished_at"),
    "attempts": ("started_at", "finished_at", "ready_at"),
    "logs": ("at",),
    "signals": ("sent_at", "replied_at"),
    "nodes": ("started_at", "lease_until", "retired_at", "gone_at"),
    "leases": ("expires_at", "since", "renewed_at"),
    "journal": ("at",),
    "alerts": ("at", "last_at", "cleared_at", "sent_at"),
    "deliveries": ("next_try_at", "sent_at", "given_up_at"),
    "breakers": ("window_at", "told_at", "opened_at", "open_until"),
    "holds": ("at",),
    "quarantine": ("at",),
    "twins": ("made_at", "started_at", "ended_at"),
    "durations": ("last_at",),
    "workflows": ("first_at", "last_at"),
    "acts": ("lease_until", "created_at", "begun_at", "ended_at"),
}
TABLES = (*TIMES, "failures", "lanes", "joins", "inherited", "act_runs")
ALL_TIMES = frozenset(column for columns in TIMES.values() for column in columns)
SPANS = ("vacant_s",)
"""Columns with measured seconds."""

NEVER_AWAY = 900_000
"""In half hours. A time that is further away than this means never, or always."""
BREAKER = Breaker.__struct_fields__
ONE_SIDED = {"spent"}
"""Columns that only one dialect has or needs."""

LOWEST_INSTANT = 1e9
"""A larger number is an instant, in seconds since 1970. A smaller one is a span or a count."""

Rows = dict[str, Any]
Tables = dict[str, list[Rows]]


class ModelClock(Environment):
    """The clock of SQLite in these tests, which is the clock of the model."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec

    def now(self) -> float:
        return (EPOCH + self.spec.now) * HOUR


class Asked:
    """A store, or one of its nouns, that notes which verbs it is asked."""

    times: ClassVar[Counter[str]] = Counter()

    def __init__(self, asked: Any) -> None:
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._asked, name)
        if isinstance(found, Noun):
            return Asked(found)
        self.times[name] += 1
        return found


class Subject(ABC):
    store: Store

    @abstractmethod
    def at(self, spec: Spec, hours: float) -> float:
        """Return an instant of the model on this store's clock."""

    @abstractmethod
    def advance(self, hours: float) -> None: ...

    @abstractmethod
    def register(self, spec: Spec, node: str, lease_h: float) -> None: ...

    @abstractmethod
    async def declare(self, one: Declaration) -> None: ...

    @abstractmethod
    def tables(self) -> Tables: ...

    def rows(self, spec: Spec, tables: Tables) -> Rows:
        """Return everything that can be seen, in the form of `expected`."""
        now = self.at(spec, spec.now)
        ended = {row["id"] for row in tables["runs"] if row["state"] in RUN_ENDED}
        return {
            "runs": {row["id"]: _picked(row, Run._fields, now) for row in tables["runs"]},
            "steps": {(row["run_id"], row["n"]): _picked(row, Step._fields, now) for row in tables["steps"]},
            "signals": [
                _signal(row, ended)
                for row in sorted(tables["signals"], key=lambda row: (row["run_id"], row["id"]))
            ],
            "attempts": _counted(
                (row["run_id"], row["n"], row["attempt"], row["ending"], row["agent"])
                for row in tables["attempts"]
            ),
            "logs": {
                (row["run_id"], row["n"], row["attempt"], int(row["twin"]), row["part"]): _picked(
                    row, Logged._fields, now
                )
                for row in tables["logs"]
            },
            "nodes": {
                row["id"]: (_hours(row["lease_until"], now), row["retired_at"] is not None)
                for row in tables["nodes"]
            },
            "leases": {
                row["name"]: (row["holder"], row["epoch"], _hours(row["expires_at"], now))
                for row in tables["leases"]
            },
            "failures": _counted((row["run_id"], row["n"]) for row in tables["failures"]),
            "journal": _counted((row["actor"], row["verb"], row["run_id"]) for row in tables["journal"]),
            "breakers": {row["name"]: _picked(row, BREAKER, now) for row in tables["breakers"]},
            "holds": {(row["scope"], row["value"]): _hours(row["at"], now) for row in tables["holds"]},
            "quarantine": {
                (row["run_id"], row["n"]): _picked(row, Listed._fields, now) for row in tables["quarantine"]
            },
            "twins": {(row["run_id"], row["n"]): _picked(row, Twin._fields, now) for row in tables["twins"]},
            "durations": {
                (row["name"], row["bucket"]): (row["count"], _hours(row["last_at"], now))
                for row in tables["durations"]
            },
            "workflows": {
                (row["name"], row["version"]): (
                    row["digest"],
                    _hours(row["first_at"], now),
                    _hours(row["last_at"], now),
                )
                for row in tables["workflows"]
            },
            "acts": {row["id"]: _picked(row, Act._fields, now) for row in tables["acts"]},
            "act_runs": {
                (row["act_id"], row["run_id"]): _picked(row, Planned._fields, now)
                for row in tables["act_runs"]
            },
            "inherited": {
                (row["run_id"], row["key"]): (row["effect"], row["child"]) for row in tables["inherited"]
            },
            "joins": {(row["waiter_id"], row["waiter_n"]): row["run_id"] for row in tables["joins"]},
            "alerts": [_picked(row, Alert._fields, now) for row in _by_id(tables["alerts"])],
            "deliveries": {
                row["id"]: _picked(row, Delivery._fields[1:], now) for row in tables["deliveries"]
            },
        }

    def whole_rows(self, spec: Spec, tables: Tables) -> Tables:
        """Return all columns of all tables, to compare the dialects with each other. Ids of rows become places in the
        order, because a sequence may skip numbers."""
        now = self.at(spec, spec.now)
        ended = {row["id"] for row in tables["runs"] if row["state"] in RUN_ENDED}
        alerts = {row["id"]: place for place, row in enumerate(_by_id(tables["alerts"]))}
        for row in tables["deliveries"]:
            row["alert_id"] = alerts[row["alert_id"]]
        for row in tables["signals"]:
            if row["run_id"] in ended:
                row["delivered_seq"] = row["delivered_seq"] or None
            if row["name"] == UNDO:
                row["key"] = ""
        for row in tables["journal"]:
            if row["verb"] == "clear":
                row["note"] = "alert"
        for table in ("signals", "alerts", "journal", "failures"):
            tables[table] = [{**row, "id": 0} for row in tables[table]]
        return {
            table: sorted(
                (_picked(row, tuple(sorted(row.keys() - ONE_SIDED)), now) for row in rows), key=repr
            )
            for table, rows in tables.items()
        }


def expected(spec: Spec) -> Rows:
    """Return what can be seen according to the model."""
    ended = {run.id for run in spec.runs.values() if run.state in RUN_ENDED}
    return {
        "runs": {run.id: _picked(run._asdict(), Run._fields, spec.now, 1.0) for run in spec.runs.values()},
        "steps": {
            key: _picked(step._asdict(), Step._fields, spec.now, 1.0) for key, step in spec.steps.items()
        },
        "signals": [
            _signal(signal._asdict(), ended)
            for signal in sorted(spec.signals.values(), key=lambda signal: signal.run_id)
        ],
        "attempts": _counted(spec.attempts),
        "logs": {
            key: _picked(one._asdict(), Logged._fields, spec.now, 1.0) for key, one in spec.logs.items()
        },
        "nodes": {
            name: (_hours(node.lease_until, spec.now, 1.0), node.retired) for name, node in spec.nodes.items()
        },
        "leases": {
            name: (lease.holder, lease.epoch, _hours(lease.expires_at, spec.now, 1.0))
            for name, lease in spec.leases.items()
        },
        "failures": _counted(spec.failures),
        "journal": _counted(row[:3] for row in spec.journal),
        "breakers": {
            name: _picked(msgspec.structs.asdict(one), BREAKER, spec.now, 1.0)
            for name, one in spec.breakers.items()
        },
        "holds": {key: _hours(at, spec.now, 1.0) for key, at in spec.holds.items()},
        "quarantine": {
            key: _picked(one._asdict(), Listed._fields, spec.now, 1.0) for key, one in spec.quarantine.items()
        },
        "twins": {
            key: _picked(one._asdict(), Twin._fields, spec.now, 1.0) for key, one in spec.twins.items()
        },
        "durations": {
            key: (count, _hours(last_at, spec.now, 1.0)) for key, (count, last_at) in spec.durations.items()
        },
        "workflows": {
            key: (digest, _hours(first_at, spec.now, 1.0), _hours(last_at, spec.now, 1.0))
            for key, (digest, first_at, last_at) in spec.workflows.items()
        },
        "acts": {key: _picked(one._asdict(), Act._fields, spec.now, 1.0) for key, one in spec.acts.items()},
        "act_runs": {
            key: _picked(one._asdict(), Planned._fields, spec.now, 1.0) for key, one in spec.act_runs.items()
        },
        "inherited": spec.inherited,
        "joins": spec.joins,
        "alerts": [_picked(one._asdict(), Alert._fields, spec.now, 1.0) for one in spec.alerts.values()],
        "deliveries": {
            name: _picked(one._asdict(), Delivery._fields[1:], spec.now, 1.0)
            for name, one in spec.deliveries.items()
        },
    }


def seen(subject: Subject, spec: Spec, answer: Any) -> Any:
    """Return the answer of a store in a form that can be compared with the other one's. Instants are replaced by how
    far away they are, and ids of rows are left out."""
    return _seen(answer, subject.at(spec, spec.now))


def _seen(answer: Any, now: float) -> Any:
    if isinstance(answer, float) and answer > LOWEST_INSTANT:
        return _hours(answer, now)
    if isinstance(answer, msgspec.Struct):
        return {
            field: _seen_field(field, value, now) for field, value in msgspec.structs.asdict(answer).items()
        }
    if isinstance(answer, dict):
        return {key: _seen(value, now) for key, value in answer.items()}
    if isinstance(answer, tuple) and hasattr(answer, "_asdict"):
        return {field: _seen_field(field, value, now) for field, value in answer._asdict().items()}
    if isinstance(answer, list | tuple):
        return [_seen(one, now) for one in answer]
    return answer


def _seen_field(field: str, value: Any, now: float) -> Any:
    if field in {"id", "alert_id"} and isinstance(value, int):
        return "a number"
    if field == "window_at" and value is not None and value < LOWEST_INSTANT:
        return -NEVER_AWAY
    if field in SPANS and value is not None:
        return round(2 * value / HOUR)
    return _seen(value, now)


def _by_id(rows: Iterable[Rows]) -> list[Rows]:
    return sorted(rows, key=lambda row: row["id"])


def _picked(row: Rows, fields: tuple[str, ...], now: float, hour: float = HOUR) -> Rows:
    picked: Rows = {}
    for field in fields:
        value = row[field]
        if field in ALL_TIMES:
            value = _hours(value, now, hour)
        elif field in SPANS and value is not None:
            value = round(2 * value / hour)
        elif field in {"error", "note"}:
            value = _error(value)
        elif isinstance(value, memoryview):
            value = bytes(value)
        elif isinstance(value, bool):
            value = int(value)
        picked[field] = value
    return picked


async def half_hours(seconds: Awaitable[float | None]) -> int | None:
    """Return this many seconds in half hours: the clock of one store is real."""
    return _hours(await seconds, 0.0)


def _hours(at: float | None, now: float, hour: float = HOUR) -> int | None:
    """Return how far away a time is, in half hours. A time that is never due stays so, however much time passes."""
    if at is None:
        return None
    away = round(2 * (at - now) / hour)
    return max(-NEVER_AWAY, min(away, NEVER_AWAY))


def _error(text: str | None) -> str | None:
    """Return how the attempt ended, or the type of the error, for errors that the store itself writes."""
    if text is None or not text.startswith("{"):
        return text
    failure = json.loads(text)
    if failure["type"] in ("holdfast.errors.Conflict", "holdfast.errors.UnknownRun"):
        return CONFLICT  # the ending `failed` is not written, because it is the default
    if "by_n" in failure:
        return text
    return str(failure.get("ending") or failure["type"])


def _signal(row: Rows, ended: set[str]) -> tuple[Any, ...]:
    """Return a signal for the comparison. It does not matter whether signals of ended runs are marked at once or by the
    leader later."""
    seq = row["delivered_seq"] or None if row["run_id"] in ended else row["delivered_seq"]
    internal = row["name"].startswith("$") and not row["name"].startswith(UPDATE_PREFIX)
    payload = b"" if internal else bytes(row["payload"])
    key = "" if row["name"] == UNDO else row["key"]
    reply = None if row["reply"] is None else bytes(row["reply"])
    return row["run_id"], row["name"], key, payload, seq, row["set_aside"], row["answer"], reply


def _counted(rows: Iterable[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in rows)


def _offers(node: str) -> str:
    """Return the offers of a node. Some nodes have code: the first workflow of the model."""
    return json.dumps({"workflows": ["shop.order@1"]} if node in CODED else {})


def _code(node: str) -> str:
    return node if node in CODED else ""


async def _declare(store: Store, one: Declaration) -> None:
    """Declare a workflow as the registration of a node does, but without a node."""
    await store.database.write(
        StoreCall("declare", (), (), {}),
        lambda session: declare(session, store.database.processes, "", Offers(), [one]),
    )


class Sqlite(Subject):
    def __init__(self, spec: Spec) -> None:
        self._store = open_store("sqlite://:memory:", ModelClock(spec))
        self.store = cast("Store", Asked(self._store))

    def at(self, spec: Spec, hours: float) -> float:
        return (EPOCH + hours) * HOUR

    def advance(self, hours: float) -> None:
        """Do nothing, because this store uses the clock of the model."""

    @cached_property
    def _connection(self) -> apsw.Connection:
        assert isinstance(self._store.database, SqliteDatabase)
        writer: apsw.Connection = self._store.database.connections.writer
        return writer

    async def open(self) -> None:
        await self.store.open()
        self._watch = Watch(self._connection)

    def _execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[Rows]:
        cursor = self._connection.execute(sql, values)
        found = []
        for row in cursor:
            names = [name for name, _ in cursor.get_description()]
            found.append(dict(zip(names, row, strict=True)))
        return found

    def register(self, spec: Spec, node: str, lease_h: float) -> None:
        now = self.at(spec, spec.now)
        self._execute(
            "INSERT INTO nodes (id, host, pid, roles, offers, capacity, started_at, lease_until, code)"
            " VALUES (?, 'here', 1, '', ?, 1, ?, ?, ?)",
            (node, _offers(node), now, now + lease_h * HOUR, _code(node)),
        )

    async def declare(self, one: Declaration) -> None:
        await _declare(self._store, one)

    def tables(self) -> Tables:
        assert not self._watch.forbidden, (
            "a statement changed a state in a way that lifecycle.py does not have"
        )
        return {table: self._execute(f"SELECT * FROM {table}") for table in TABLES}


class Postgres(Subject):
    def __init__(self, url: str) -> None:
        self._store = open_store(url, Environment())
        self.store = cast("Store", Asked(self._store))
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
            "INSERT INTO nodes (id, host, pid, roles, offers, capacity, lease_until, code)"
            " VALUES (%s, 'here', 1, '', %s, 1, clock_timestamp() + make_interval(secs => %s), %s)",
            (node, _offers(node), lease_h * HOUR, _code(node)),
        )

    async def declare(self, one: Declaration) -> None:
        await _declare(self._store, one)

    def tables(self) -> Tables:
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
        self._sql.execute(f"TRUNCATE {', '.join(TABLES)} RESTART IDENTITY CASCADE".encode())

    def close(self) -> None:
        self._sql.close()

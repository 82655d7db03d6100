"""The schema of a SQLite file: whether the file is ours, its version, and its migration to this version."""

from __future__ import annotations

import apsw

from holdfast.errors import SchemaMismatch
from holdfast.store.migrations import (
    Applied,
    Migration,
    demand_current,
    demand_nobody,
    judge,
    may_run_beside_nodes,
    read_migrations,
)
from holdfast.store.sqlite.verbs import STATEMENTS
from holdfast.store.verbs import Verb

APPLICATION_ID = int.from_bytes(b"Hold", "big")
"""A number in the file's header, from which `file` and other programs see that the file is Holdfast's."""


def known() -> list[Migration]:
    return read_migrations(__package__ or "")


def applied(connection: apsw.Connection) -> list[Applied]:
    # This is a statement, because it sees a table that another process has just made. The library's table_exists() may
    # not.
    if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'migrations'").get:
        return []
    return [
        (version, checksum, name)
        for version, checksum, name in connection.execute(STATEMENTS[Verb.applied_migrations])
    ]


def is_empty(connection: apsw.Connection) -> bool:
    return not connection.execute("SELECT count(*) FROM sqlite_schema").get


def demand_ours(connection: apsw.Connection, what: str) -> None:
    """Raise if another program made the file. Called before anything in it is changed."""
    if connection.pragma("application_id") != APPLICATION_ID and not is_empty(connection):
        raise SchemaMismatch(f"{what} was made by another program: name another file")


def check(connection: apsw.Connection, what: str) -> None:
    """Raise if this version cannot use the file. An empty file passes, because it is migrated next."""
    demand_ours(connection, what)
    if not is_empty(connection):
        demand_current(applied(connection), known(), what)


def migrate(connection: apsw.Connection, what: str) -> tuple[int, int]:
    """Run the missing migrations in one transaction. It has the write lock, so that two processes do not run them both.
    Return the version before and the version now."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        demand_ours(connection, what)
        done = applied(connection)
        pending = judge(done, known(), what)
        if pending and done and not may_run_beside_nodes(pending):
            demand_nobody(connection.execute(STATEMENTS[Verb.nodes_in_the_way]).fetchall(), what)
        if pending:
            connection.execute(STATEMENTS[Verb.make_migrations])
            connection.pragma("application_id", APPLICATION_ID)
        for migration in pending:
            connection.execute(migration.sql)
            connection.execute(
                STATEMENTS[Verb.record_migration], (migration.version, migration.name, migration.checksum)
            )
            connection.pragma("user_version", migration.version)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return len(done), len(known())

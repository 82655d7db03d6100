"""Whose file this is, at which version, and how it is brought to this one."""

from __future__ import annotations

import apsw

from holdfast.errors import SchemaMismatch
from holdfast.store.migrations import Migration, demand_current, demand_nobody, judge, read_migrations
from holdfast.store.sqlite.verbs import STATEMENTS
from holdfast.store.verbs import Verb

APPLICATION_ID = int.from_bytes(b"Hold", "big")
"""Stands in the file's header, so that `file` and other programs can tell whose it is."""


def known() -> list[Migration]:
    return read_migrations(__package__ or "")


def applied(connection: apsw.Connection) -> list[tuple[int, str]]:
    # Asked by a statement, which sees what another process just made; the library's own table_exists() may not.
    if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'migrations'").get:
        return []
    return [
        (version, checksum) for version, checksum in connection.execute(STATEMENTS[Verb.applied_migrations])
    ]


def is_empty(connection: apsw.Connection) -> bool:
    return not connection.execute("SELECT count(*) FROM sqlite_schema").get


def demand_ours(connection: apsw.Connection, what: str) -> None:
    """Refuse a file that another program made, before anything in it is changed."""
    if connection.pragma("application_id") != APPLICATION_ID and not is_empty(connection):
        raise SchemaMismatch(f"{what} was made by another program: name another file")


def check(connection: apsw.Connection, what: str) -> None:
    """Refuse what this version cannot use. An empty file passes: it is migrated next."""
    demand_ours(connection, what)
    if not is_empty(connection):
        demand_current(applied(connection), known(), what)


def migrate(connection: apsw.Connection, what: str) -> tuple[int, int]:
    """Run what is missing, in one transaction under the write lock, so that two processes do not both."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        demand_ours(connection, what)
        done = applied(connection)
        pending = judge(done, known(), what)
        if pending and done:
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

"""Migrations: forward-only, numbered, with checksums. This module reads them and compares versions. The dialects run
them.

A migration whose name begins with `add_` only expands: it adds tables, columns with defaults, indexes, types,
functions, and triggers that no statement of an older node fails by. Nodes that do not know it go on beside it, so an upgrade need not stop anybody. Others need a store that nobody
uses, and come with a new minor version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from holdfast.errors import SchemaMismatch

EXPANDS = "add_"
"""The name of a migration that only expands begins with this."""

Applied = tuple[int, str, str]
"""The number, the checksum and the name of a migration that a database has."""


class Migration(NamedTuple):
    version: int
    name: str
    sql: str
    checksum: str


def read_migrations(package: str) -> list[Migration]:
    """Return the migrations of a dialect in order. Raise if their numbers have gaps."""
    found = []
    for file in sorted(files(package).joinpath("migrations").iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            sql = file.read_text("utf-8")
            found.append(Migration(int(number), name, sql, hashlib.sha256(sql.encode()).hexdigest()[:16]))
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"{package}: migrations must be numbered 1, 2, 3 … without gaps")
    return found


def judge(applied: list[Applied], known: list[Migration], what: str) -> list[Migration]:
    """Return the migrations that are still to run. Raise SchemaMismatch if this version cannot use the database. It can
    use one that is one step newer, if that step only expands."""
    for version, checksum, name in applied:
        if version == len(known) + 1 and name.startswith(EXPANDS):
            continue
        if version > len(known):
            raise SchemaMismatch(
                f"{what} is at schema {version}, this version of Holdfast knows {len(known)}: "
                "install a newer Holdfast, or use another database"
            )
        if known[version - 1].checksum != checksum:
            raise SchemaMismatch(
                f"{what} was made by another build of Holdfast (schema {version} differs): use another database"
            )
    return known[len(applied) :]


def demand_current(applied: list[Applied], known: list[Migration], what: str) -> None:
    """Raise unless the database has this version's schema, or is one step newer."""
    if pending := judge(applied, known, what):
        at = len(applied)
        state = "has no Holdfast tables yet" if at == 0 else f"is at schema {at}"
        raise SchemaMismatch(
            f"{what} {state}, this version needs {pending[-1].version}: run `holdfast migrate`"
            + (" while no node is running" if at and not may_run_beside_nodes(pending) else "")
        )


def may_run_beside_nodes(pending: Sequence[Migration]) -> bool:
    """True if these migrations disturb no node that does not know them: it is one, and it only expands."""
    return len(pending) == 1 and pending[0].name.startswith(EXPANDS)


def demand_nobody(nodes: Sequence[Sequence[Any]], what: str) -> None:
    """Raise if there are nodes that use the schema which is to be changed. They are (host, pid, seconds until the lease
    ends)."""
    if not nodes:
        return
    named = ", ".join(f"{host} pid {pid}" for host, pid, _ in nodes[:3])
    more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
    last_s = max(left_s for _, _, left_s in nodes)
    raise SchemaMismatch(
        f"{what} is in use by {named}{more}: stop them, then run `holdfast migrate` again; one that was killed counts for "
        f"another {last_s:.0f} s"
    )

"""`python -m tests.mutation.sound SOURCE MODULE` checks that a mutant is a program: its module can be imported, and the
databases accept its statements. It also checks that this source is what is imported."""

import asyncio
import importlib
import os
import re
import sys
from pathlib import Path
from uuid import uuid4

import apsw
import psycopg

import holdfast
from holdfast.environment import Environment
from holdfast.store import open_store
from holdfast.store.postgres.session import HOP_PARTS, hop_of
from holdfast.store.postgres.verbs import STATEMENTS as POSTGRES
from holdfast.store.sqlite import schema
from holdfast.store.sqlite.clock import Clock
from holdfast.store.sqlite.verbs import STATEMENTS as SQLITE

READS_OR_WRITES = re.compile(r"(?:WITH|SELECT|INSERT|UPDATE|DELETE)\b")
"""Statements that PostgreSQL can prepare."""


def main(source: str, module: str) -> None:
    found = Path(holdfast.__file__).parents[1]
    assert found == Path(source), f"{found} is imported instead of {source}"
    if module:
        importlib.import_module(module)
        return
    prepare_on_sqlite()
    prepare_on_postgres(os.environ["HOLDFAST_TEST_PG"])


def prepare_on_sqlite() -> None:
    connection = apsw.Connection(":memory:")
    Clock(Environment(), is_shared=False).serve(connection)
    schema.migrate(connection, "the database")
    for verb, sql in SQLITE.items():
        try:
            count = max((int(number or 1) for number in re.findall(r"\?(\d*)", sql)), default=0)
            connection.execute(f"EXPLAIN {sql}", (None,) * count).fetchall()
        except apsw.Error as refused:
            raise SystemExit(f"{verb}: {refused}") from None


def prepare_on_postgres(url: str) -> None:
    name = f"holdfast_{uuid4().hex[:16]}"
    parts = {verb for verb, _ in HOP_PARTS}
    alone = {verb: sql for verb, sql in POSTGRES.items() if verb not in parts and READS_OR_WRITES.match(sql)}
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"'.encode())
        try:
            address = re.sub(r"/[^/?]*(?=\?|$)", f"/{name}", url)
            asyncio.run(_migrate(address))
            with psycopg.connect(address, autocommit=True) as session:
                for verb, sql in {**alone, "hop": hop_of(*(True for _ in HOP_PARTS))}.items():
                    try:
                        session.execute(f'PREPARE "{verb}" AS {sql}'.encode())
                    except psycopg.Error as refused:
                        raise SystemExit(f"{verb}: {str(refused).splitlines()[0]}") from None
        finally:
            server.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


async def _migrate(address: str) -> None:
    store = open_store(address, Environment())
    await store.migrate()
    await store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

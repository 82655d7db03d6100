"""What the driver need not ask a PostgreSQL server on each new connection."""

from __future__ import annotations

from typing import Any

import asyncpg
import psycopg
import pytest

from holdfast import Holdfast
from holdfast.store.postgres.connections import ARRAYS
from tests.roles import flows

OWN_FROM = 16384
"""The lowest number of a type that a user made, such as those of Holdfast's schema."""


def test_the_arrays_that_the_driver_gets_are_those_of_the_server(pg_store_url: str) -> None:
    """A wrong number would make the driver read bytes as something that they are not."""
    with psycopg.connect(pg_store_url) as session:
        found = session.execute(
            "SELECT typname, typarray::bigint, oid::bigint FROM pg_type"
            " WHERE typnamespace = 'pg_catalog'::regnamespace AND typname = ANY (%s)",
            [list(ARRAYS)],
        )
        assert {name: numbers for name, *numbers in found} == {name: [*two] for name, two in ARRAYS.items()}


async def test_no_connection_asks_what_an_array_is(
    pg_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question takes three statements, and one of them costs the server more than most of ours."""
    asked: list[int] = []
    real = asyncpg.Connection._introspect_types  # type: ignore[attr-defined]

    async def noticed(connection: Any, types: Any, timeout: Any) -> Any:
        asked.extend(types)
        return await real(connection, types, timeout)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", noticed)
    async with Holdfast(pg_store_url) as hf:
        run = await hf.start(flows.chain, 3)
        await run.result(60)
        assert [info.id for info in await hf.runs(state="succeeded")] == [run.id]
    assert [number for number in asked if number < OWN_FROM] == []
    assert asked, "the driver asks in another way now"

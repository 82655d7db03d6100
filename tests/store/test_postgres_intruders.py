"""Holdfast never calls functions that somebody has created in the database's public schema."""

from __future__ import annotations

import re

import asyncpg
import psycopg

from holdfast import Holdfast
from holdfast.store.postgres.connections import SAFE_PATH
from tests.roles import event_flows, flows, test_gathers, when_flows
from tests.roles.conftest import FAST
from tests.roles.test_events import waits

TRAPS = {
    **{f"unnest({kind}[])": ("TABLE (value " + kind + ")", "QUERY SELECT * FROM pg_catalog.unnest($1)")
       for kind in ("int", "text", "bytea", "float8", "bigint")},
    **{f"cardinality({kind}[])": ("int", "pg_catalog.cardinality($1)")
       for kind in ("int", "text", "bytea", "float8", "bigint")},
    "make_interval(secs float8)": ("interval", "pg_catalog.make_interval(secs => $1)"),
    "to_timestamp(numeric)": ("timestamptz", "pg_catalog.to_timestamp($1::float8)"),
    "pg_notify(varchar, varchar)": ("text", "''"),
    "pg_advisory_lock(int)": ("text", "''"),
    "length(varchar)": ("int", "pg_catalog.length($1::text)"),
}  # fmt: skip
"""Functions that fit our calls better than the server's own ones, which take any type or more arguments. The value is
what each returns."""
IS_CALL = re.compile(r"(?<![\w.])[a-z_]+\((?:\$\d+::\w+\[\],)?")
"""A function without its schema before it. Several arrays in one `unnest` are a part of the language."""
LANGUAGE = frozenset(["coalesce(", "greatest(", "least(", "nullif(", "extract(", "u(", "chain("])
"""What looks like a call. The last two name columns."""


async def _set_traps(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE public.trapped (name text)")
    await connection.execute("GRANT INSERT ON public.trapped TO PUBLIC")
    for head, (gives, value) in TRAPS.items():
        body = f"BEGIN INSERT INTO public.trapped VALUES ('{head}'); RETURN {value}; END"
        await connection.execute(
            f"CREATE FUNCTION public.{head} RETURNS {gives} LANGUAGE plpgsql AS $${body}$$"
        )
    await connection.close()


async def _trapped(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    found = [row[0] for row in await connection.fetch("SELECT DISTINCT name FROM public.trapped")]
    await connection.close()
    return found


async def test_functions_in_public_that_fit_better_are_not_called(pg_url: str) -> None:
    """This covers everything from the first migration to the end of runs, with steps, signals, children, undo and
    operators."""
    await _set_traps(pg_url)
    assert await _trapped(pg_url) == []
    async with Holdfast(pg_url, config=FAST) as hf:
        assert await (await hf.start(flows.chain.using(timeout=60, tags={"a": "b"}), 3)).result(20) == 3
        assert await (await hf.start(flows.parent, 2)).result(20) == 5
        assert await (await hf.start(flows.wide, 5)).result(20) == 5
        assert await (await hf.start(flows.retried, "trapped", 1)).result(20)
        waits = await hf.start(flows.waits_for_payment.using(id="waits"), 60.0)
        await waits.hold()
        await waits.release()
        await flows.paid.send("waits", flows.Parcel("Oslo", 3))
        await waits.result(20)
        held = await hf.start(flows.waits_for_payment.using(id="cancelled"), 60.0)
        await held.cancel()
        await hf.runs()
        await hf.store.reads.doctor()
    assert await _trapped(pg_url) == []


async def test_such_functions_are_not_called_on_the_connection_of_a_caller(pg_url: str) -> None:
    """The caller's search path contains `public`."""
    await _set_traps(pg_url)
    async with Holdfast(pg_url, config=FAST) as hf:
        connection = await asyncpg.connect(pg_url)
        async with connection.transaction():
            run = await hf.within(connection).start(flows.chain.using(id="a", timeout=60), 2)
            await hf.within(connection).start(flows.chain.using(id="a", timeout=60), 2)
        await connection.close()
        assert await run.result(20) == 2
        with psycopg.connect(pg_url) as plain, plain.transaction():
            run = await hf.within(plain).start(flows.chain.using(id="b", timeout=60), 3)
        assert await run.result(20) == 3
    assert await _trapped(pg_url) == []


async def test_no_event_calls_them_on_the_connection_of_a_caller(pg_url: str) -> None:
    """Whatever it does there: it starts runs, also those that gather their starts, wakes one, and completes an occasion. Each
    function in these statements is named with its schema, so no other can fit better."""
    await _set_traps(pg_url)
    said: list[str] = []
    async with Holdfast(pg_url, config=FAST) as hf:
        waiting = await hf.start(event_flows.collect.using(id="r1"), "order-42")
        await waits(hf, "r1")
        connection = await asyncpg.connect(pg_url)
        connection.add_query_logger(lambda record: said.append(record.query))
        within = hf.within(connection)
        async with connection.transaction():
            await within.emit("order.changed", {"id": "o1", "cents": 1}, id="1")
            await within.emit("payment.received", {"cents": 9}, subject="order-42")
            await within.emit("doc.changed", {"id": "a", "text": "b"})
            await within.emit("page.seen", 1)
            await within.emit("file.arrived", "a", subject="d1")
            await within.emit("file.arrived", "b", subject="d1")
            await within.emit("rates.published", {"eur": 3}, subject="d1")
            await within.start(test_gathers.crawl, "a", [1, 2, 3])
            await within.start(flows.chain.using(id="a", timeout=60), 2)
        await connection.close()
        assert await waiting.result(20) == 9
        assert await hf.run("digest@when:d1", when_flows.report).result(20) == "digest d1: 3.0 ['a', 'b']"
    assert len(said) > 50
    assert await _trapped(pg_url) == []
    ours = [
        sql for sql in said if "typeinfo_tree" not in sql and "set_config('jit'" not in sql
    ]  # the driver's own
    calls = {call for sql in ours for call in IS_CALL.findall(sql) if not call.endswith(",")}
    assert calls - LANGUAGE == set()


async def test_every_session_looks_names_up_in_the_servers_own_schema(pg_url: str) -> None:
    """That includes the heart's session, whatever the settings of the role or the database say."""
    admin = await asyncpg.connect(pg_url)
    name = await admin.fetchval("SELECT current_database()")
    await admin.execute(f'ALTER DATABASE "{name}" SET search_path = public, holdfast')
    await admin.execute("CREATE TABLE public.paths (path text)")
    await admin.execute(
        "CREATE FUNCTION public.note_path() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO public.paths VALUES (current_setting('search_path')); RETURN NEW; END $$"
    )
    async with Holdfast(pg_url, config=FAST) as hf:
        for table in ("runs", "steps", "signals", "nodes", "leases", "lanes"):
            await admin.execute(
                f"CREATE TRIGGER note BEFORE INSERT OR UPDATE ON holdfast.{table} "
                "FOR EACH ROW EXECUTE FUNCTION public.note_path()"
            )
        await (await hf.start(flows.parent, 2)).result(20)
        await hf.node.heartbeat.renew()
        renewed = await admin.fetchval("SELECT count(*) FROM public.paths")
        assert renewed > 5
    assert [row[0] for row in await admin.fetch("SELECT DISTINCT path FROM public.paths")] == [SAFE_PATH]
    await admin.close()

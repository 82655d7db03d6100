"""A deploy that migrates the store stops nobody: nodes of the version before go on beside those of the next."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from holdfast import Holdfast, workflow
from holdfast.environment import Environment
from holdfast.errors import SchemaMismatch
from holdfast.store import open_store
from holdfast.store.migrations import EXPANDS, Migration, read_migrations
from tests.roles import flows
from tests.roles.conftest import FAST

PACKAGES = ["holdfast.store.sqlite", "holdfast.store.postgres"]
ADDS = "ALTER TABLE {}steps ADD COLUMN extra integer NOT NULL DEFAULT 0;CREATE INDEX steps_extra ON {}steps (extra)"
Version = Callable[..., AbstractContextManager[None]]


@workflow
async def sums(numbers: list[int]) -> list[int]:
    return [await flows.add(number) for number in numbers]


@pytest.fixture
def version(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Version:
    """Return a function: as long as its context is open, this process is of a version that knows these migrations, too."""
    is_sqlite = store_url.startswith("sqlite")
    module = "sqlite.schema" if is_sqlite else "postgres.database"
    known = read_migrations(PACKAGES[0] if is_sqlite else PACKAGES[1])

    @contextmanager
    def of(*more: str) -> Iterator[None]:
        found = list(known)
        for name in more:
            prefix = "" if is_sqlite else "holdfast."
            sql = ADDS.replace("extra", f"extra_{name}").format(prefix, prefix)
            found.append(Migration(len(found) + 1, name, sql.replace("integer", "INTEGER"), name))
        with monkeypatch.context() as patch:
            patch.setattr(f"holdfast.store.{module}.read_migrations", lambda package: found)
            yield

    return of


async def test_a_node_goes_on_while_the_store_becomes_one_step_newer(
    store_url: str, version: Version
) -> None:
    """The next version migrates while nodes run. They finish what they have and start more, new ones of the old version
    can come, and both versions work on the same runs."""
    async with Holdfast(store_url, config=FAST) as old:
        before = await old.start(sums.using(id="before"), [1, 2])
        with version("add_extra"):
            store = open_store(store_url, Environment())
            at, now = await store.migrate()
            await store.close()
            assert now == at + 1
            async with Holdfast(store_url, config=FAST) as new:
                assert await (await new.start(sums.using(id="new"), [3])).result(30) == [4]
                assert await (await old.start(sums.using(id="old"), [5])).result(30) == [6]
        assert await before.result(30) == [2, 3]
        async with Holdfast(store_url, config=FAST, roles=()) as late:
            assert await late.run("new").result(30) == [4]


async def test_two_steps_newer_is_too_new(store_url: str, version: Version) -> None:
    """The message says what to install."""
    with version("add_extra", "add_more"):
        store = open_store(store_url, Environment())
        await store.migrate()
        await store.close()
    with pytest.raises(SchemaMismatch, match="install a newer Holdfast"):
        async with Holdfast(store_url):
            pass
    with version("add_extra"):
        async with Holdfast(store_url, roles=()) as hf:
            assert await hf.runs() == []


async def test_a_step_that_does_not_only_expand_needs_a_store_that_nobody_uses(
    store_url: str, version: Version
) -> None:
    """It is refused while a node lives, and a node that does not know it refuses the store."""
    async with Holdfast(store_url, config=FAST):
        with version("changes"):
            store = open_store(store_url, Environment())
            with pytest.raises(SchemaMismatch, match="is in use by"):
                await store.migrate()
            await store.close()
    with version("changes"):
        store = open_store(store_url, Environment())
        await store.migrate()
        await store.close()
    with pytest.raises(SchemaMismatch, match="install a newer Holdfast"):
        async with Holdfast(store_url):
            pass


HARMLESS_TRIGGERS = {
    "audit_unchanged": "no version has a statement that changes a row of the journal",
    "audit_stays": "store/test_audit.py::test_what_older_nodes_prune_by_does_not_fail",
}
"""Triggers of migrations that expand, and why older nodes go on beside them: a reason, or the test that shows it."""


@pytest.mark.parametrize("package", PACKAGES)
def test_migrations_that_say_that_they_expand_do(package: str) -> None:
    """They add, with defaults, and change, rename and remove nothing. A trigger on what older nodes write stands in a list."""
    for migration in read_migrations(package):
        if migration.name.startswith(EXPANDS):
            triggers = re.compile(r"CREATE TRIGGER (\w+) BEFORE (?:UPDATE|DELETE) ON ")
            assert set(triggers.findall(migration.sql)) <= HARMLESS_TRIGGERS.keys(), migration.name
            words = set(
                re.findall(
                    r"\b(DROP|RENAME|UPDATE|DELETE|TRUNCATE|ALTER COLUMN|SET NOT NULL)\b",
                    triggers.sub("", migration.sql),
                )
            )
            assert not words, f"{migration.name}: {words}"
            for line in re.findall(r"ADD COLUMN [^,;]*", migration.sql):
                assert "NOT NULL" not in line or "DEFAULT" in line, f"{migration.name}: {line}"

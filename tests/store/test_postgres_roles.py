"""The rights in docs/security.md are enough, and no more than enough."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast import Holdfast, Run
from holdfast.errors import StoreError
from holdfast.store import open_store
from tests.roles import flows
from tests.roles.conftest import FAST
from tests.store.made import ENVIRONMENT

PAGE = Path(__file__).parents[2] / "docs/security.md"
ROLES = {
    found["role"]: found["sql"]
    for found in re.finditer(
        r"^```sql role=(?P<role>\w+)\n(?P<sql>.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
}


class Roles:
    """The roles of that page, under other names, because roles belong to the whole server."""

    def __init__(self, url: str) -> None:
        self._url, parts = url, urlsplit(url)
        self._database = parts.path.lstrip("/")
        self._names = {role: f"holdfast_{role}_{self._database[-8:]}" for role in ROLES}
        place = parts.netloc.rpartition("@")[2]
        self.urls = {
            role: parts._replace(netloc=f"{name}@{place}").geturl() for role, name in self._names.items()
        }

    def make(self, role: str) -> None:
        """Create a role as the page says, as the superuser."""
        sql = ROLES[role].replace("DATABASE shop", f'DATABASE "{self._database}"')
        self._run(sql.replace(f"holdfast_{role}", self._names[role]))

    def drop(self) -> None:
        self._run("DROP SCHEMA IF EXISTS holdfast CASCADE")
        for name in self._names.values():
            self._run(
                f"DO $$ BEGIN IF EXISTS (SELECT FROM pg_roles WHERE rolname = '{name}') THEN "
                f"DROP OWNED BY {name}; DROP ROLE {name}; END IF; END $$"
            )

    def _run(self, sql: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(sql.encode())


@pytest.fixture
def roles(pg_url: str) -> Iterator[Roles]:
    found = Roles(pg_url)
    try:
        yield found
    finally:
        found.drop()


async def _migrated(roles: Roles) -> None:
    roles.make("owner")
    store = open_store(roles.urls["owner"], ENVIRONMENT)
    await store.migrate()
    await store.close()
    roles.make("works")
    roles.make("looks")


async def test_a_role_with_rights_on_the_rows_does_all_that_nodes_do(roles: Roles) -> None:
    """It neither owns the schema nor may create anything."""
    await _migrated(roles)
    async with Holdfast(roles.urls["works"], config=FAST) as hf:
        assert await (await hf.start(flows.parent, 2)).result(20) == 5
        assert await (await hf.start(flows.retried, "roles", 1)).result(20) == 2
        run = await hf.start(flows.waits_for_payment.using(id="waits"), 60.0)
        await flows.paid.send("waits", flows.Parcel("Oslo", 3))
        assert await run.result(20) == "Oslo 3"
        await hf.gates.hold(workflow="none")
        assert [name for name, _, rows in await hf.store.reads.doctor() if rows] == []
        pruned = await hf.store.retention.prune(
            None,
            actor="test",
            state="succeeded",
            before=await hf.store.now() + 1,
            after=(0.0, ""),
            runs_max=10,
            rows_max=1000,
        )
        assert pruned.runs > 0


async def test_a_role_that_only_looks_can_look(roles: Roles) -> None:
    """If it tries to do more, it gets an error that says so."""
    await _migrated(roles)
    async with Holdfast(roles.urls["works"], config=FAST) as hf:
        await (await hf.start(flows.chain.using(id="seen"), 2)).result(20)
    async with Holdfast(roles.urls["looks"], roles=()) as looks:
        run: Run[int] = looks.run("seen")
        assert await run.result(5) == 2
        assert len(await run.steps()) == 2
        assert "succeeded" in await run.why()
        assert [row.id for row in await looks.runs()] == ["seen"]
        assert [name for name, _, rows in await looks.store.reads.doctor() if rows] == []
        with pytest.raises(StoreError, match="the database user may not do this: permission denied"):
            await looks.gates.hold(workflow="none")
        with pytest.raises(StoreError, match="permission denied"):
            await looks.start(flows.chain, 2)

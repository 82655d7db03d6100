"""Fixtures for the whole suite: both stores, and one PostgreSQL for all processes of a test session."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from holdfast.workflow import outside
from tests import postgres

LONG = re.compile(
    r"""tests/commands/.*\[.*postgres
    | tests/http/test_(guard|runs|streams)\.py::.*\[postgres
    | tests/chaos/test_outage\.py::.*\[(sqlite|postgres-prober)
    | tests/chaos/test_(leaders|twins)\.py::.*\[sqlite
    | tests/chaos/test_processes\.py::test_(rolling.*\[sqlite|stopped.*\[postgres)
    | tests/chaos/test_network\.py::test_forgotten
    | tests/chaos/test_servers\.py::test_a_full_disk_under_postgresql
    | tests/chaos/test_reconnection\.py::.*(restart\ of\ 20?\ s|failover|longer)
    | tests/store/test_postgres_interleavings\.py::test_all_operations
    | tests/roles/test_hedge_pays\.py
    | tests/simulation/test_coverage\.py::test_300
    | tests/commands/test_errors\.py::test_a_disk_that_fills
    | tests/commands/test_pool\.py::test_agents_that_do_not_stay
    | tests/chaos/test_twins\.py
    | tests/chaos/test_unwritable\.py::.*-caller
    | tests/chaos/test_processes\.py::test_a_stopped
    | tests/roles/test_children\.py::test_a_crash_anywhere.*\[postgres
    | tests/roles/test_undo_everywhere\.py::.*\[postgres.*(confirm|car|hotel|deposit|withdraw|-[01]\])
    | tests/roles/test_retry\.py::test_a_crash_anywhere_in_a_retry.*\[postgres
    | tests/roles/test_quarantine\.py::test_(a_crash_anywhere|an_undo|a_step_that_kills.*(segv|exit)).*\[postgres
    | tests/roles/test_leavings\.py::.*\[postgres
    | tests/testing/test_crashes\.py::test_what_is_not_done_again.*(-3\]|gallery|monthly|sells_for_good|tries)""",
    re.VERBOSE,
)
"""Tests that `make test` leaves to `make every`: claims about a layer above the stores, on the other store, and
scenarios that take many seconds. `make chaos` runs the scenarios of `tests/chaos` for longer."""
SERVER_FOLDER = pytest.StashKey[Path]()
CLEANUP = pytest.StashKey[ExitStack]()


def pytest_configure(config: pytest.Config) -> None:
    """Create the server's folder in the main process for the session. The server starts when a test first needs it."""
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        config.stash[SERVER_FOLDER] = Path(worker["postgres_folder"])
    else:
        config.stash[CLEANUP] = ExitStack()
        config.stash[SERVER_FOLDER] = config.stash[CLEANUP].enter_context(postgres.locked_folder(hasty=True))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if LONG.match(item.nodeid):
            item.add_marker(pytest.mark.long)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Give the session's shared folder to an xdist worker."""
    node.workerinput["postgres_folder"] = str(node.config.stash[SERVER_FOLDER])  # type: ignore[attr-defined]


def pytest_unconfigure(config: pytest.Config) -> None:
    if CLEANUP in config.stash:
        config.stash[CLEANUP].close()


@pytest.fixture(scope="session")
def pg_server(pytestconfig: pytest.Config) -> postgres.Server:
    """The session's PostgreSQL."""
    return postgres.given_server() or postgres.join(pytestconfig.stash[SERVER_FOLDER])


@pytest.fixture(scope="session")
def pg_database(pg_server: postgres.Server) -> Iterator[str]:
    """The address of a database that only this process of the test session uses."""
    name = f"holdfast_{uuid4().hex[:16]}"
    with psycopg.connect(pg_server.url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    yield pg_server.database_url(name)
    with psycopg.connect(pg_server.url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


@pytest.fixture
def pg_url(pg_database: str) -> Iterator[str]:
    """The address of an empty PostgreSQL database. It is emptied after the test, which is ten times faster than making
    a new one."""
    yield pg_database
    with psycopg.connect(pg_database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        connection.execute("SET client_min_messages = warning")
        connection.execute("DROP SCHEMA IF EXISTS holdfast CASCADE")
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store, once per dialect."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/holdfast.db"
    return str(request.getfixturevalue("pg_url"))


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    """A test closes every Holdfast that it opened: an open one is where the signals of later tests would go."""
    yield
    left = outside.current()
    while (one := outside.current()) is not None:
        outside.leave(one)
    assert left is None, f"this test left a Holdfast open: {left}"

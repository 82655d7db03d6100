"""Fixtures for the whole suite: both stores, and one PostgreSQL for all processes of a test session."""

import asyncio
import compileall
import gc
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from hypothesis import settings

import holdfast
from holdfast.environment import Environment
from holdfast.scheduler import block_watch
from holdfast.store import open_store
from holdfast.workflow import outside
from tests import neighbours, postgres

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
    | tests/roles/test_schedule_years\.py::test_a_virtual_year
    | tests/testing/test_years\.py::test_a_virtual_year
    | tests/unit/test_times\.py::.*right_in_all_zones
    | tests/roles/test_hedge_pays\.py
    | tests/roles/test_adaptive_limits\.py::.*(\[fails\]|for_good)
    | tests/chaos/test_(limits|schedules)\.py::.*\[sqlite
    | tests/chaos/test_rates\.py
    | tests/pages/test_browser\.py::(?!test_smoke)
    | tests/pages/test_(budgets|company)\.py
    | tests/pages/test_(sessions|pages)\.py::.*\[postgres
    | tests/simulation/test_coverage\.py::test_300
    | tests/commands/test_errors\.py::test_a_disk_that_fills
    | tests/commands/test_pool\.py::test_agents_that_do_not_stay
    | tests/chaos/test_twins\.py
    | tests/chaos/test_unwritable\.py::.*-caller
    | tests/chaos/test_processes\.py::test_a_stopped
    | tests/roles/test_children\.py::test_a_crash_anywhere.*\[postgres
    | tests/roles/test_undo_everywhere\.py::.*\[postgres.*(confirm|car|hotel|deposit|withdraw|-[01]\])
    | tests/roles/test_changed_code\.py::.*\[postgres-(?!a\ bug|the\ same|saved)
    | tests/roles/test_(bugs|maps|markers|saga_children)\.py::test_a.*crash.*\[postgres
    | tests/roles/test_fork\.py::test_a_fork_survives_a_crash.*\[postgres
    | tests/roles/test_started\.py::test_exactly_one_run.*\[postgres
    | tests/remote/test_(commands|same_claims)\.py::.*\[postgres
    | tests/remote/test_(agents|client)\.py::test_faults_on_the_way.*\[postgres
    | tests/roles/test_retry\.py::test_a_crash_anywhere_in_a_retry.*\[postgres
    | tests/roles/test_quarantine\.py::test_(a_crash_anywhere|an_undo|a_step_that_kills.*(segv|exit)).*\[postgres
    | tests/roles/test_leavings\.py::.*\[postgres
    | tests/testing/test_crashes\.py::test_what_is_not_done_again.*(-3\]|gallery|monthly|sells_for_good|tries)""",
    re.VERBOSE,
)
"""Tests that `make test` leaves to `make every`: claims about a layer above the stores, on the other store, and
scenarios that take many seconds. `make chaos` runs the scenarios of `tests/chaos` for longer."""
MEMORY = Path("/dev/shm")
"""A file system in memory, for the folders of the tests. A commit does not wait for a disk there. What a killed process
has written survives it all the same."""
ROOM_BYTES = 4 << 30
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")  # how long an example takes is no claim
SERVER_FOLDER = pytest.StashKey[Path]()
CLEANUP = pytest.StashKey[ExitStack]()


def pytest_configure(config: pytest.Config) -> None:
    """Create the server's folder in the main process for the session. The server starts when a test first needs it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so a shell starts what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        config.stash[SERVER_FOLDER] = Path(worker["postgres_folder"])
    else:
        config.stash[CLEANUP] = ExitStack()
        memory = MEMORY if has_room(MEMORY) else None
        folder = postgres.locked_folder(hasty=True, within=memory)
        config.stash[SERVER_FOLDER] = config.stash[CLEANUP].enter_context(folder)
        if memory is not None:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))
        # What pytest compiles for itself no other process can use, and those that tests start keep nothing compiled.
        compileall.compile_dir(Path(holdfast.__file__).parent, quiet=1)


def has_room(folder: Path) -> bool:
    """True if the files of all tests that run at once have room there, with much to spare."""
    return folder.is_dir() and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > ROOM_BYTES


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if LONG.match(item.nodeid):
            item.add_marker(pytest.mark.long)
    items[:] = spread(items)


def pytest_collection_finish() -> None:
    """Take the modules and the tests, which stay to the end, out of what the garbage collector looks at. Otherwise each
    full collection looks at millions of objects, and some tests ask for one."""
    gc.collect()
    gc.freeze()


def spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests with those of `tests/chaos` between the other files: each of them keeps several processes busy, so
    they should not run at the same time."""
    files: dict[str, list[pytest.Item]] = {}
    heavy: list[pytest.Item] = []
    for item in items:
        if item.nodeid.startswith("tests/chaos/"):
            heavy.append(item)
        else:
            files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    places = sum(not file.startswith("tests/unit/") for file in files)  # those come last, and are short
    order: list[pytest.Item] = []
    for place, tests in enumerate(files.values()):
        due = len(heavy) * (place + 1) // max(places, 1)
        order += heavy[len(heavy) * place // max(places, 1) : due]
        order += tests
    return order if files else heavy


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Give the session's shared folder to an xdist worker."""
    node.workerinput["postgres_folder"] = str(node.config.stash[SERVER_FOLDER])  # type: ignore[attr-defined]


def pytest_unconfigure(config: pytest.Config) -> None:
    if CLEANUP in config.stash:
        config.stash[CLEANUP].close()


@pytest.fixture(scope="session", autouse=True)
def code_is_compiled_anew() -> None:
    """Tests write a program, run it, and write another one into the same file. If both have the same size and the same
    second, Python takes the compiled form of the first for the second. So nothing that tests write is kept compiled."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


@pytest.fixture(scope="session")
def pg_server(pytestconfig: pytest.Config) -> postgres.Server:
    """The session's PostgreSQL."""
    return postgres.given_server() or postgres.join(pytestconfig.stash[SERVER_FOLDER])


@pytest.fixture(scope="session")
def pg_migrated(pg_server: postgres.Server) -> Iterator[str]:
    """The name of a database that has the tables of the store, and nothing in them. It is only copied."""
    with new_database(pg_server) as name:
        with ThreadPoolExecutor() as apart:  # where no event loop is
            apart.submit(asyncio.run, migrate(pg_server.database_url(name))).result()
        yield name


async def migrate(url: str) -> None:
    store = open_store(url, Environment())
    await store.migrate()
    await store.close()


@contextmanager
def new_database(server: postgres.Server, like: str = "template1") -> Iterator[str]:
    """Make a database and drop it again. Copying the files of another one takes a fifth of the time of making tables."""
    name = f"holdfast_{uuid4().hex[:16]}"
    with psycopg.connect(server.url, autocommit=True) as session:
        strategy = "STRATEGY file_copy" if session.info.server_version >= 150000 else ""
        session.execute(f'CREATE DATABASE "{name}" TEMPLATE "{like}" {strategy}'.encode())
    yield name
    with psycopg.connect(server.url, autocommit=True) as session:
        session.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


@pytest.fixture
def pg_url(pg_server: postgres.Server) -> Iterator[str]:
    """The address of an empty PostgreSQL database."""
    with new_database(pg_server) as name:
        yield pg_server.database_url(name)


@pytest.fixture
def pg_store_url(pg_server: postgres.Server, pg_migrated: str) -> Iterator[str]:
    """The address of a PostgreSQL database with an empty store."""
    with new_database(pg_server, pg_migrated) as name:
        yield pg_server.database_url(name)


@pytest.fixture(scope="session")
def sqlite_migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that has the tables of the store, and nothing in them. It is only copied."""
    file = tmp_path_factory.mktemp("migrated") / "holdfast.db"
    with ThreadPoolExecutor() as apart:  # where no event loop is
        apart.submit(asyncio.run, migrate(f"sqlite:///{file}")).result()
    return file


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store, once per dialect. The tables are already there: making them takes long."""
    if request.param == "sqlite":
        shutil.copyfile(request.getfixturevalue("sqlite_migrated"), tmp_path / "holdfast.db")
        return f"sqlite:///{tmp_path}/holdfast.db"
    return str(request.getfixturevalue("pg_store_url"))


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database without tables, once per dialect."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/holdfast.db"
    return str(request.getfixturevalue("pg_url"))


@pytest.fixture(scope="module", autouse=True)
def only_what_is_used(request: pytest.FixtureRequest) -> Iterator[None]:
    """A node publishes everything that its process has declared. While the tests of a module run, that is what this
    module and those that it imports have declared, as if it were alone in the process."""
    with neighbours.put_away(neighbours.unused_by(request.module)):
        yield


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    """A test closes every Holdfast that it opened: an open one is where the signals of later tests would go, and its thread
    would watch their code."""
    before = set(threading.enumerate())
    yield
    left = outside.current()
    while (one := outside.current()) is not None:
        outside.leave(one)
    assert left is None, f"this test left a Holdfast open: {left}"
    for thread in set(threading.enumerate()) - before:
        if thread.name == block_watch.NAME:
            thread.join(10)
            assert not thread.is_alive(), "this test left a node that watches this process"

"""The connections to one SQLite file, and the one way to write to it.

Two connections: one writes, one reads, so that reading never waits for a commit. Statements run in the event loop's
own thread, because they touch only the page cache; what waits for the disk, the commit, runs in a thread through
`environment.blocking`. An asyncio lock keeps the writing connection to one transaction, and one thread, at a time.
Moving the write-ahead log into the file takes much longer than a commit, and is done beside them (`_move_log`).

A database in memory has a single connection, for which reading takes the same lock.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import apsw

from holdfast.addresses import shown_address
from holdfast.environment import Environment
from holdfast.errors import StoreFull, StoreGone, StoreUnreachable, StoreUnsupported
from holdfast.store.sqlite import filesystem
from holdfast.store.sqlite.faults import explain, explained

log = logging.getLogger("holdfast.store")

T = TypeVar("T")

OLDEST_LIBRARY = 3_051_003
"""Older ones can corrupt a database when its write-ahead log is reset."""
PAGE_BYTES = 8192
"""Rows with their payloads are some hundred bytes to some kilobytes: with 1,500 bytes 8 KiB is a quarter faster than 4,
with 50 it is the same."""
CACHE_KIB = 64 * 1024
"""Holds what recent hops touch: the tail of `steps` and the inner pages of its indexes."""
CHECKPOINT_PAGES = 4000
"""With this much in the write-ahead log it is moved into the file: 32 MiB, so that pages that change in many commits
are moved once, and a restart has little to read."""
LOG_KEPT_BYTES = 64 * 1024 * 1024
"""A log that a long reader made grow is cut back to this."""
STATEMENTS_KEPT = 512
"""The most that apsw keeps prepared. It keeps the last ones that were used, however often each: with fewer, a busy node
compiles its rarer statements again at every use."""
BUSY_S = 10.0
"""How long another process may keep the file's write lock before this one gives up."""
RETRY_S = 0.0005
"""First wait for another process's transaction; grows to four times this. A commit takes about a millisecond, a try
some microseconds: longer waits would leave the file idle when several processes write all the time."""
LONG_READS_MAX = 4
"""Long queries at a time: each has a thread and a connection."""
IN_MEMORY = ":memory:"


def path_of(url: str) -> str:
    """`sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite://:memory:` as SQLite names them."""
    rest = unquote(url.removeprefix("sqlite:"))
    name = rest[3:] if rest.startswith("///") else rest.removeprefix("//")
    if name == IN_MEMORY:
        return name
    if not rest.startswith("///") or not name or name.endswith("/"):
        raise StoreUnsupported(
            f"{shown_address(url)!r} names no file: use sqlite:///file.db or sqlite:////folder/file.db"
        )
    return name


class Connections:
    def __init__(self, path: str, environment: Environment) -> None:
        if apsw.SQLITE_VERSION_NUMBER < OLDEST_LIBRARY:
            raise StoreUnsupported(
                f"SQLite {apsw.sqlite_lib_version()} can corrupt a database in WAL mode: install apsw 3.54 or newer"
            )
        self.in_memory = path == IN_MEMORY
        self.path = path if self.in_memory else str(Path(path).absolute())
        self.what = "the database in memory" if self.in_memory else f"the database {path}"
        self._environment = environment
        self.writer: Any = None
        self._reader: apsw.Connection | None = None
        self._lock = asyncio.Lock()
        self._long_reads = asyncio.Semaphore(LONG_READS_MAX)
        self._log_pages = 0
        self._moving: asyncio.Future[None] | None = None
        self._seen_version = 0
        self._identity: tuple[int, int] | None = None
        """Which file was opened, whatever stands at its path later."""
        self.on_changed: Callable[[apsw.Connection], object] | None = None
        """Called when another connection has committed, before anything is read or written."""
        self.on_connected: Callable[[apsw.Connection], object] = lambda connection: None
        """Called with every new connection."""
        self.changed_elsewhere = False
        """Another connection has committed since this was last set to False."""

    @property
    def is_open(self) -> bool:
        return self.writer is not None

    def is_at(self, path: str) -> bool:
        """Whether a connection to `path` is one to this database."""
        return not self.in_memory and bool(path) and Path(path).samefile(self.path)

    # --- opening ------------------------------------------------------------------------------------------------

    async def open(self, check: Callable[[apsw.Connection], None]) -> None:
        """Connect. `check` sees the connection before anything is changed, and may refuse."""
        await self._to_the_end(lambda: self.open_now(check))

    def open_now(self, check: Callable[[apsw.Connection], None] = lambda connection: None) -> None:
        """As `open`, in the caller's thread."""
        if not self.in_memory:
            self._make_file()
            if (kind := filesystem.network_file_system_of(self.path)) is not None:
                log.warning(
                    "%s is on a network file system (%s), where SQLite's locks do not hold and data can be lost: use a local "
                    "disk, or PostgreSQL",
                    self.what,
                    kind,
                )
        with explained(self.what):
            writer = apsw.Connection(self.path, statementcachesize=STATEMENTS_KEPT)
        try:
            with explained(self.what):
                writer.set_busy_timeout(int(BUSY_S * 1000))
                check(writer)
                self._set_up(writer)
                writer.set_busy_timeout(0)
                if self.in_memory:
                    self._reader = writer
                else:
                    self._reader = self._connect_reader()
        except BaseException:
            writer.close()
            raise
        self.writer = writer
        self._identity = self._found()
        self._look_around(writer)
        self.changed_elsewhere = False

    def _make_file(self) -> None:
        """A new file is for its owner alone. An old one is not touched: closing it here would drop SQLite's locks."""
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            self._demand_safe()
        except FileNotFoundError:
            folder = Path(self.path).parent
            raise StoreUnreachable(
                f"cannot open {self.what}: the folder {folder} does not exist: create it or name another file"
            ) from None
        except OSError as error:
            reason = error.strerror or "it failed"
            if isinstance(error, PermissionError):
                raise StoreUnreachable(
                    f"cannot create {self.what}: {reason}: choose a folder you may write"
                ) from None
            raise StoreFull(
                f"cannot create {self.what}: {reason}: make room or choose another folder"
            ) from None

    def _demand_safe(self) -> None:
        """Whoever writes the file decides what runs here. And SQLite would make the target of a link that leads nowhere, for
        everybody to read."""
        try:
            found = Path(self.path).stat()
        except FileNotFoundError:
            raise StoreUnreachable(
                f"cannot open {self.what}: it is a link to {Path(self.path).readlink()}, which does not exist: create that file's "
                "folder and name the file itself"
            ) from None
        except OSError as error:
            raise StoreUnreachable(f"cannot open {self.what}: {error.strerror}: check its folder") from None
        if stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IWOTH:
            if found.st_uid != os.geteuid():
                raise StoreUnsupported(
                    f"{self.what} belongs to another user and everybody may write it, so anybody could have this process run "
                    f"steps: name another file, or make it yours and run `chmod 600 {self.path}`"
                )
            log.warning(
                "everybody may write %s, and so start and change runs: `chmod 600 %s` ends that",
                self.what,
                self.path,
            )

    def _set_up(self, connection: apsw.Connection) -> None:
        connection.pragma("page_size", PAGE_BYTES)  # takes effect in a new file only
        if not self.in_memory and connection.pragma("journal_mode") != "wal":
            connection.pragma("journal_mode", "WAL")
        connection.pragma("synchronous", "FULL")
        connection.pragma("cache_size", -CACHE_KIB)
        connection.pragma("temp_store", "MEMORY")
        connection.pragma("journal_size_limit", LOG_KEPT_BYTES)
        if not self.in_memory:
            # Instead of SQLite's own, which moves the log within a commit.
            connection.set_wal_hook(self._note_log)
        self._prepare(connection)

    def _prepare(self, connection: apsw.Connection) -> None:
        """A statement keeps its plan whatever is bound to it. Otherwise one with a range (`ready_at <= ?`) is compiled again
        every time it is used, which takes three to fifteen times as long as running it; and every plan here is meant."""
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self.on_connected(connection)

    def _connect_reader(self) -> apsw.Connection:
        reader = apsw.Connection(
            self.path, flags=apsw.SQLITE_OPEN_READWRITE, statementcachesize=STATEMENTS_KEPT
        )
        reader.set_busy_timeout(
            int(BUSY_S * 1000)
        )  # readers wait only while another process recovers the log
        reader.pragma("query_only", 1)
        reader.pragma("cache_size", -CACHE_KIB)
        self._prepare(reader)
        return reader

    async def close(self) -> None:
        if self._moving is not None:
            await asyncio.wait([self._moving])
        async with self._lock:
            connections = [one for one in (self._reader, self.writer) if one is not None]
            self._reader = self.writer = None
            for connection in connections:
                await self._to_the_end(connection.close)  # the last one to close moves the log into the file

    def _found(self) -> tuple[int, int] | None:
        """What stands at the path now; None, if nothing does. Where that cannot be asked, as far as anybody knows the same."""
        try:
            found = os.stat(self.path)  # noqa: PTH116  asked with every commit: a third of the time that Path takes
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            return self._identity
        return found.st_dev, found.st_ino

    def demand_same_file(self) -> None:
        """A file that was deleted can be written for as long as it is open, and everything in it is lost when it is closed."""
        if self.in_memory or (found := self._found()) == self._identity:
            return
        became = "deleted or moved away" if found is None else "replaced by another file"
        raise StoreGone(
            f"{self.what} was {became} while this process had it open: nothing that is written to it now would be kept; put the "
            "file back, or name another, and start again"
        )

    # --- reading ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[apsw.Connection]:
        """A connection to read from, as of the last commit. Do not await inside."""
        if self._reader is None:
            raise StoreUnreachable(f"{self.what} is not open")
        if not self.in_memory:
            self.demand_same_file()
            with explained(self.what):
                yield self._reader
            return
        async with self._lock:
            with explained(self.what):
                yield self._reader

    async def read_long(self, read: Callable[[apsw.Connection], T]) -> T:
        """Run a query that may take seconds, on a connection and in a thread of its own."""
        if self.in_memory:
            async with self.reading() as connection:
                return read(connection)

        def apart() -> T:
            with explained(self.what):
                connection = self._connect_reader()
                try:
                    return read(connection)
                finally:
                    connection.close()

        async with self._long_reads:
            return await self._environment.blocking(apart)

    # --- writing ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[apsw.Connection]:
        """One write transaction, committed at the end of the block, undone by an exception. Do not await inside."""
        async with self._lock:
            if self.writer is None:
                raise StoreUnreachable(f"{self.what} is not open")
            connection = self.writer
            before = connection.total_changes()
            await self._begin(connection)
            try:
                with explained(self.what):
                    yield connection
            except BaseException:
                self._undo(connection)
                raise
            if connection.total_changes() == before:
                self._undo(connection)  # nothing to make durable
                return
            try:
                with explained(self.what):
                    await self._to_the_end(lambda: connection.execute("COMMIT"))
                self.demand_same_file()
            finally:
                self._undo(connection)  # a commit that failed leaves its transaction open
        if self._log_pages >= CHECKPOINT_PAGES and (self._moving is None or self._moving.done()):
            self._moving = asyncio.ensure_future(self._move_log())

    def _note_log(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """Called by SQLite with each commit."""
        self._log_pages = pages
        return apsw.SQLITE_OK

    async def _move_log(self) -> None:
        """First most of it, while others go on writing; then, between two transactions, the little they wrote meanwhile.
        A log that was moved entirely begins anew with the next transaction: else it would grow for ever."""
        try:
            await self._environment.blocking(self._move_apart)
            async with self._lock:
                if self.writer is not None:
                    writer = self.writer
                    await self._to_the_end(lambda: writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE))
        except apsw.BusyError:
            pass  # another process is at it
        except apsw.Error as error:
            log.warning("%s: its log cannot be moved into the file: %s", self.what, error)
        finally:
            self._log_pages = 0  # until the next commit says how much there is

    def _move_apart(self) -> None:
        connection = apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        finally:
            connection.close()

    async def exclusively(self, call: Callable[[apsw.Connection], T]) -> T:
        """Run a call that brings its own transaction, in a thread, with the writing connection to itself."""
        async with self._lock:
            if self.writer is None:
                raise StoreUnreachable(f"{self.what} is not open")
            connection = self.writer
            connection.set_busy_timeout(int(BUSY_S * 1000))
            try:
                with explained(self.what):
                    return await self._to_the_end(lambda: call(connection))
            finally:
                connection.set_busy_timeout(0)

    async def _begin(self, connection: apsw.Connection) -> None:
        wait_s, waited_s = RETRY_S, 0.0
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except apsw.BusyError as error:
                if waited_s >= BUSY_S:
                    raise explain(self.what, error) from error
            except apsw.Error as error:
                raise explain(self.what, error) from error
            else:
                self._look_around(connection)
                return
            pause_s = wait_s * (0.5 + self._environment.random.random())
            await self._environment.sleep(pause_s)
            waited_s += pause_s
            wait_s = min(wait_s * 1.5, RETRY_S * 4)

    @staticmethod
    def _undo(connection: apsw.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    async def _to_the_end(self, call: Callable[[], T]) -> T:
        """Block in a thread, and stay until it is done even when cancelled: the thread uses the connection."""
        done = asyncio.ensure_future(self._environment.blocking(call))
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            while not done.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([done])
            if not done.cancelled():
                done.exception()  # the caller is gone and will not ask what became of it
            raise

    # --- noticing what other processes wrote --------------------------------------------------------------------

    def _look_around(self, connection: apsw.Connection) -> None:
        version = connection.execute(
            "PRAGMA data_version"
        ).get  # apsw's data_version() counts our own commits too
        if version != self._seen_version:
            self._seen_version = version
            self.changed_elsewhere = True
            if self.on_changed is not None:
                self.on_changed(connection)

    def look_around(self) -> bool:
        """Whether another connection has committed since the last look. Asked on the writing connection, because its
        own commits do not count there; while that is busy, every transaction looks as it begins."""
        self.demand_same_file()
        if self.writer is not None and not self._lock.locked():
            with explained(self.what):
                self._look_around(self.writer)
        changed, self.changed_elsewhere = self.changed_elsewhere, False
        return changed

"""The connections to one SQLite file, and the only way to write to it.

There are two connections, one to write and one to read, so that reading never waits for a commit. Statements run in the
event loop's own thread, because they use only the page cache. A commit waits for the disk, so it runs in another
thread, through `environment.blocking`. An asyncio lock makes sure that only one transaction, and one thread, uses the
writing connection at a time. Moving the write-ahead log into the file takes much longer than a commit, so it is done
beside the commits (`_move_log`).

A database in memory has a single connection. There, reading takes the same lock.
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

import apsw

from holdfast.environment import Environment
from holdfast.errors import StoreFull, StoreGone, StoreUnreachable, StoreUnsupported
from holdfast.store.sqlite import filesystem, forks
from holdfast.store.sqlite.address import IN_MEMORY
from holdfast.store.sqlite.faults import explain, explained

log = logging.getLogger("holdfast.store")

T = TypeVar("T")

OLDEST_LIBRARY = 3_051_003
"""Older versions of SQLite can corrupt a database when they reset its write-ahead log."""
PAGE_BYTES = 8192
"""Rows with their payloads have some hundred bytes to some kilobytes. With rows of 1,500 bytes, pages of 8 KiB are a
quarter faster than pages of 4 KiB. With rows of 50 bytes there is no difference."""
CACHE_KIB = 64 * 1024
"""Enough for what recent hops use: the end of `steps` and the inner pages of its indexes."""
CHECKPOINT_PAGES = 4000
"""The write-ahead log is moved into the file when it has this many pages. These are 32 MiB: enough that a page which
changes in many commits is moved once, and so little that a restart has not much to read."""
LOG_KEPT_BYTES = 64 * 1024 * 1024
"""A log that has grown because somebody read for long is cut to this size."""
STATEMENTS_KEPT = 512
"""How many prepared statements apsw keeps, at most. It puts a statement into the next place of a ring after each use, so
it keeps those of this many last uses, and has each of them once. With fewer, a busy node compiles its rarer statements
again at every use."""
BESIDE = ("-wal", "-shm", "-journal", "-nodes")
"""What the names of files beside a database end with."""
BUSY_S = 10.0
"""How long this process waits for another one that has the file's write lock, before it gives up."""
RETRY_S = 0.0005
"""How long to wait for another process's transaction before the second try. The wait grows to four times this. A commit
takes about a millisecond, and a try some microseconds. With longer waits the file would be idle while several processes
want to write."""
LONG_READS_MAX = 4
"""How many long queries run at a time. Each has its own thread and connection."""


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
        """Device and inode of the file that was opened. Another file may be at its path later."""
        self.on_changed: Callable[[apsw.Connection], object] | None = None
        """Called when another connection has committed, before anything else is read or written."""
        self.on_connected: Callable[[apsw.Connection], object] = lambda connection: None
        """Called with every new connection."""
        self.changed_elsewhere = False
        """Another connection has committed since this was last set to False."""

    @property
    def is_open(self) -> bool:
        return self.writer is not None

    def is_at(self, path: str) -> bool:
        """True if `path` is the file of this database."""
        return not self.in_memory and bool(path) and Path(path).samefile(self.path)

    # --- opening ------------------------------------------------------------------------------------------------

    async def open(self, check: Callable[[apsw.Connection], None]) -> None:
        """Connect. `check` gets the connection before anything is changed, and may raise."""
        await self._to_the_end(lambda: self.open_now(check))

    def open_now(self, check: Callable[[apsw.Connection], None] = lambda connection: None) -> None:
        """Do the same as `open`, in the caller's thread."""
        if not self.in_memory:
            self._make_file()
            if (kind := filesystem.network_file_system_of(self.path)) is not None:
                log.warning(
                    "%s is on a network file system (%s), where SQLite's locks do not hold and data can be lost: use a local "
                    "disk, or PostgreSQL",
                    self.what,
                    kind,
                )
            self._identity = self._found()
            self._note_open()
        try:
            with explained(self.what):
                writer = self._connect(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        except BaseException:
            self._note_closed()
            raise
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
            self._note_closed()
            raise
        self.writer = writer
        self._look_around(writer)
        self.changed_elsewhere = False

    def _note_open(self) -> None:
        """Raise if this process may not open the file, because it was forked from one that had it open."""
        if self._identity is not None:
            forks.demand_not_inherited(self._identity, self.what)
            forks.note_open(self._identity)

    def _note_closed(self) -> None:
        if self._identity is not None:
            forks.note_closed(self._identity)

    def _make_file(self) -> None:
        """Create the file if it is new, readable and writable for its owner alone. An existing file is not opened here,
        because closing it would drop SQLite's locks."""
        try:
            self._demand_nothing_beside()
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

    def _demand_nothing_beside(self) -> None:
        """Raise if somebody else has put a file beside the database that would be used with it: a log, which SQLite would read
        into the database, or the folder of locks. Where everybody may create files, such as in /tmp, anybody could."""
        for path in dict.fromkeys((self.path, os.path.realpath(self.path))):
            if not Path(path).parent.stat().st_mode & stat.S_IWOTH:
                continue
            trusted = (None, 0, os.geteuid(), _owner(path))
            for beside in (f"{path}{end}" for end in BESIDE):
                if _owner(beside) not in trusted:
                    raise StoreUnsupported(
                        f"{beside} belongs to another user, who could decide what is in {self.what}: name a database in a folder "
                        "where nobody else can create files"
                    )

    def _demand_safe(self) -> None:
        """Raise if other users may write the file, because they could decide what this process runs. If the file is
        ours, only warn.

        Also raise if the path is a link to a file that does not exist. SQLite would create that file, readable for
        everybody.
        """
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
        connection.pragma("page_size", PAGE_BYTES)  # this has an effect only in a new file
        if not self.in_memory:
            self._log_ahead(connection)
        connection.pragma("synchronous", "FULL")
        connection.pragma("cache_size", -CACHE_KIB)
        connection.pragma("temp_store", "MEMORY")
        connection.pragma("journal_size_limit", LOG_KEPT_BYTES)
        if not self.in_memory:
            # This replaces SQLite's own hook, which moves the log within a commit.
            connection.set_wal_hook(self._note_log)
        self._prepare(connection)

    def _log_ahead(self, connection: apsw.Connection) -> None:
        """Make the file use a write-ahead log. When several processes do this to a new file at once, SQLite refuses one of
        them without a wait, since each could wait for the other. That one waits for its turn to write, and looks again."""
        for may_be_refused in (True, True, True, False):
            if connection.pragma("journal_mode") == "wal":
                return
            try:
                connection.pragma("journal_mode", "WAL")
            except apsw.BusyError:
                if not may_be_refused:
                    raise
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")

    def _prepare(self, connection: apsw.Connection) -> None:
        """Make statements keep their plans, whatever values they get. Otherwise SQLite compiles a statement with a
        range, such as `ready_at <= ?`, again at every use. That takes three to fifteen times as long as running it, and
        our statements name their indexes anyway."""
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self.on_connected(connection)

    def _connect(self, flags: int) -> apsw.Connection:
        return apsw.Connection(self.path, flags=flags, statementcachesize=STATEMENTS_KEPT)

    def _connect_reader(self) -> apsw.Connection:
        reader = self._connect(apsw.SQLITE_OPEN_READWRITE)
        # Readers wait only while another process recovers the log.
        reader.set_busy_timeout(int(BUSY_S * 1000))
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
                await self._to_the_end(
                    connection.close
                )  # the last connection to close moves the log into the file
            if connections:
                self._note_closed()

    def _found(self) -> tuple[int, int] | None:
        """Return device and inode of the file that is at the path now, or None if there is none. If the system cannot
        say, assume that it is the same file."""
        try:
            found = os.stat(self.path)  # noqa: PTH116  called with every commit, and takes a third of the time of Path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            return self._identity
        return found.st_dev, found.st_ino

    def demand_same_file(self) -> None:
        """Raise if the file was deleted or replaced. A deleted file can be written while it is open, and is lost when
        it is closed."""
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
        """Give a connection that reads what the last commit left. Do not await inside."""
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
        """Run a query that may take seconds, with its own connection and in its own thread."""
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
        """Open a write transaction. It is committed at the end of the block, and rolled back by an exception. Do not
        await inside."""
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
                self._roll_back(connection)
                raise
            if connection.total_changes() == before:
                self._roll_back(connection)  # there is nothing to make durable
                return
            try:
                with explained(self.what):
                    await self._to_the_end(lambda: connection.execute("COMMIT"))
                self.demand_same_file()
            finally:
                self._roll_back(connection)  # a commit that failed leaves its transaction open
        if self._log_pages >= CHECKPOINT_PAGES and (self._moving is None or self._moving.done()):
            self._moving = asyncio.ensure_future(self._move_log())

    def _note_log(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """Note the size of the log. SQLite calls this with each commit."""
        self._log_pages = pages
        return apsw.SQLITE_OK

    async def _move_log(self) -> None:
        """Move the write-ahead log into the file: first most of it, while others go on writing, and then, between two
        transactions, the little that they wrote meanwhile. A log that was moved entirely begins anew with the next
        transaction. Otherwise it would grow for ever."""
        try:
            await self._environment.blocking(self._move_apart)
            async with self._lock:
                if self.writer is not None:
                    writer = self.writer
                    await self._to_the_end(lambda: writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE))
        except apsw.BusyError:
            pass  # another process is moving it
        except apsw.Error as error:
            log.warning("%s: its log cannot be moved into the file: %s", self.what, error)
        finally:
            self._log_pages = 0  # the next commit notes the true size

    def _move_apart(self) -> None:
        connection = apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        finally:
            connection.close()

    async def exclusively(self, call: Callable[[apsw.Connection], T]) -> T:
        """Run `call` in a thread. It has the writing connection for itself, and opens its own transaction."""
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
    def _roll_back(connection: apsw.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    async def _to_the_end(self, call: Callable[[], T]) -> T:
        """Run a blocking call in a thread. Wait until it has ended even when cancelled, because the thread uses the
        connection."""
        done = asyncio.ensure_future(self._environment.blocking(call))
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            while not done.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([done])
            if not done.cancelled():
                done.exception()  # the caller is gone, and nobody else would retrieve the error
            raise

    # --- noticing what other processes wrote --------------------------------------------------------------------

    def _look_around(self, connection: apsw.Connection) -> None:
        # apsw's data_version() counts our own commits, too.
        version = connection.execute("PRAGMA data_version").get
        if version != self._seen_version:
            self._seen_version = version
            self.changed_elsewhere = True
            if self.on_changed is not None:
                self.on_changed(connection)

    def look_around(self) -> bool:
        """True if another connection has committed since the last look.

        This asks the writing connection, because there its own commits do not count. It does not ask while that
        connection is in use, because every transaction looks when it begins.
        """
        self.demand_same_file()
        if self.writer is not None and not self._lock.locked():
            with explained(self.what):
                self._look_around(self.writer)
        changed, self.changed_elsewhere = self.changed_elsewhere, False
        return changed


def _owner(path: str) -> int | None:
    """Return who owns what is at this path. None if there is nothing."""
    try:
        return Path(path).lstat().st_uid
    except FileNotFoundError:
        return None

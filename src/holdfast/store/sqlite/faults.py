"""Turns errors of SQLite into messages that an operator can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from holdfast.errors import StoreError, StoreFull, StoreUnreachable, StoreUnsupported


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn errors of the library into errors of the store. `what` names the database."""
    try:
        yield
    except apsw.Error as error:
        raise explain(what, error) from error


def explain(what: str, error: apsw.Error) -> StoreError:
    # The first process creates the file of shared memory, and there was no room for it.
    no_room_to_share = getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
    if isinstance(error, apsw.FullError) or no_room_to_share:
        return StoreFull(f"the disk under {what} is full: make room, nothing that was accepted is lost")
    if isinstance(error, apsw.ReadOnlyError):
        return StoreFull(f"{what} is read-only: make the file and its folder writable for this user")
    if isinstance(error, apsw.CantOpenError):
        return StoreUnreachable(
            f"cannot open {what}: check that the file and its folder can be read and written"
        )
    if isinstance(error, apsw.NotADBError):
        return StoreUnsupported(f"{what} is not a SQLite database: name another file")
    if isinstance(error, apsw.CorruptError):
        return StoreError(f"{what} is damaged ({error}): stop all nodes and restore a backup")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreUnreachable(
            f"{what} is locked by another process: look for one that keeps a transaction open"
        )
    if isinstance(error, apsw.IOError):
        return StoreUnreachable(f"reading or writing {what} failed ({error}): check the disk")
    return StoreError(f"{what} refused a statement: {error}")

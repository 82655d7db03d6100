"""Turns errors of SQLite into messages that an operator can act on."""

from __future__ import annotations

from collections.abc import Callable

import apsw

from holdfast.errors import StoreError, StoreFull, StoreUnreachable, StoreUnsupported

LibraryError = apsw.Error
"""What the library raises, whatever went wrong."""


class explained:  # noqa: N801  it reads as a verb, like other context managers
    """Turn errors of the library into errors of the store. `what` names the database, and `noticed` is called with each
    error. Every call to the store passes here, so it is a class: that costs a third of a generator."""

    __slots__ = ("_noticed", "_what")

    def __init__(self, what: str, noticed: Callable[[Exception], None] | None = None) -> None:
        self._what, self._noticed = what, noticed

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, apsw.Error):
            if self._noticed is not None:
                self._noticed(error)
            raise explain(self._what, error) from error


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

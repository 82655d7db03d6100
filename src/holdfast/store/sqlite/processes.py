"""Which processes are alive on this host. Each node has a lock on its own file, which the kernel releases when the
process ends.

The files are in a folder beside the database. A lock shows nothing about other hosts, and need not: hosts cannot share
a SQLite file. Without a lock (for a database in memory, or if somebody removed the folder) only the lease counts.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from urllib.parse import quote

from holdfast.errors import StoreUnreachable


class LockedProcesses:
    def __init__(self, database: str | None) -> None:
        self._folder = None if database is None else Path(f"{database}-nodes")
        self._descriptors: dict[str, int] = {}

    @property
    def are_visible(self) -> bool:
        return self._folder is not None

    def _file(self, node: str) -> Path | None:
        return None if self._folder is None else self._folder / quote(node, safe="")

    def take(self, node: str) -> None:
        """Take the node's lock. This process has it until it lets go or ends."""
        file = self._file(node)
        if file is None or node in self._descriptors:
            return
        try:
            file.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(file, os.O_CREAT | os.O_RDWR, 0o600)  # not inherited by child processes
        except OSError as error:
            raise StoreUnreachable(f"cannot write {file}: {error.strerror}: check the folder") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise StoreUnreachable(
                f"another process runs as node {node}: a node's id is for one process"
            ) from error
        self._descriptors[node] = descriptor

    def is_gone(self, node: str) -> bool:
        """True if no process has the node's lock. This tries a shared lock, so that two processes that ask at the same
        time do not take each other for the node."""
        file = self._file(node)
        if file is None or node in self._descriptors:
            return False
        try:
            descriptor = os.open(file, os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    def let_go(self, node: str) -> None:
        """Release the lock, if it is ours, and remove its file."""
        file = self._file(node)
        if file is not None:
            file.unlink(missing_ok=True)
        if (descriptor := self._descriptors.pop(node, None)) is not None:
            os.close(descriptor)

    def let_all_go(self) -> None:
        for node in list(self._descriptors):
            os.close(self._descriptors.pop(node))

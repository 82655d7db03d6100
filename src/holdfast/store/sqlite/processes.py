"""Who is alive on this host: each node holds a lock on a file of its own, which the kernel frees when its process ends.

The files stand in a folder beside the database. A lock says nothing about other hosts, nor does it need to: SQLite's
file cannot be shared between hosts. Without a lock (a database in memory, a folder somebody removed) only the lease counts.
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
        self._held: dict[str, int] = {}

    @property
    def are_visible(self) -> bool:
        return self._folder is not None

    def _file(self, node: str) -> Path | None:
        return None if self._folder is None else self._folder / quote(node, safe="")

    def take(self, node: str) -> None:
        """Hold the node's lock until it is let go or this process ends."""
        file = self._file(node)
        if file is None or node in self._held:
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
        self._held[node] = descriptor

    def is_gone(self, node: str) -> bool:
        """Whether nobody holds the node's lock. A shared lock asks, so that two who ask do not deceive one another."""
        file = self._file(node)
        if file is None or node in self._held:
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
        """Give the lock back, if it is ours, and remove its file."""
        file = self._file(node)
        if file is not None:
            file.unlink(missing_ok=True)
        if (descriptor := self._held.pop(node, None)) is not None:
            os.close(descriptor)

    def let_all_go(self) -> None:
        for node in list(self._held):
            os.close(self._held.pop(node))

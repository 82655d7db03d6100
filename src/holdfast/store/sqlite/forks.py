"""Which SQLite files the process that this one was forked from had open.

SQLite keeps for each open file, in the memory of the process, who has which lock. A fork gets a copy of that, but not the
locks themselves, which belong to the process. A connection that the fork opens to the same file believes the copy: it
may wait for ever for a lock that nobody there will release, or read and write without the lock that it seems to have. So
a fork must not open such a file at all.
"""

from __future__ import annotations

import os
from collections import Counter

from holdfast.errors import StoreUnsupported

Identity = tuple[int, int]
"""Device and inode of a file."""

_open: Counter[Identity] = Counter()
_open_before_fork: set[Identity] = set()


def note_open(file: Identity) -> None:
    _open[file] += 1


def note_closed(file: Identity) -> None:
    _open[file] -= 1


def demand_not_inherited(file: Identity, what: str) -> None:
    """Raise if this process was forked while the file was open."""
    if file in _open_before_fork:
        raise StoreUnsupported(
            f"cannot open {what}: this process was forked from one that had it open, and SQLite does not work in both: open "
            "Holdfast only after the fork, start processes by multiprocessing's 'spawn' or 'forkserver', or use PostgreSQL"
        )


def _note_fork() -> None:
    _open_before_fork.update(file for file, times in _open.items() if times > 0)
    _open.clear()


os.register_at_fork(after_in_child=_note_fork)

"""Starts new Python interpreters beside this one: for hearts, isolated steps and the agents of a pool.

They find the modules that this process finds. With `-P` they find none that are only in the folder in which they start:
somebody who may write there must not get a `msgspec.py` executed.
"""

from __future__ import annotations

import sys
from pathlib import Path


def python(*arguments: str) -> list[str]:
    """Return the command that starts an interpreter with these arguments."""
    return [sys.executable, "-P", *arguments]


def module_path() -> list[str]:
    """Return the folders where this process finds its modules, for a process that may work in another folder."""
    return [entry or str(Path.cwd()) for entry in sys.path]

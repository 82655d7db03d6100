"""Fresh interpreters beside this one: hearts, isolated steps, agents of a pool.

They find the modules this process finds, and none that only lie in the folder they are started in (`-P`): whoever may write there
must not get a `msgspec.py` of theirs executed.
"""

from __future__ import annotations

import sys
from pathlib import Path


def python(*arguments: str) -> list[str]:
    """The command that starts one."""
    return [sys.executable, "-P", *arguments]


def module_path() -> list[str]:
    """Where this process finds its modules, for one that may work in another folder."""
    return [entry or str(Path.cwd()) for entry in sys.path]

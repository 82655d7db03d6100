"""Watches the files of an application, to notice that its code has changed. It looks when its caller asks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

FILES_MAX = 5_000
"""At most this many files are looked at."""
SKIPPED = {"__pycache__", "node_modules", "site-packages"}
"""Folders with these names are not looked through."""


def roots(places: Sequence[str]) -> list[Path]:
    """Return the folders that contain these files and modules, without importing any of them."""
    found = []
    for place in places:
        if place.endswith(".py") or "/" in place:
            found.append(Path(place).resolve().parent)
        else:
            spec = PathFinder.find_spec(place.partition(".")[0], [str(Path.cwd()), *sys.path])
            if spec is not None and spec.submodule_search_locations:
                found += [Path(folder) for folder in spec.submodule_search_locations]
            elif spec is not None and spec.origin:
                found.append(Path(spec.origin).parent)
    return sorted(set(found))


def file_versions(folders: Sequence[Path]) -> dict[str, tuple[int, int]]:
    """Return for each Python file in these folders (when it was changed, its size)."""
    found: dict[str, tuple[int, int]] = {}
    for folder in folders:
        for file in _python_files(str(folder)):
            if len(found) >= FILES_MAX:
                return found
            try:
                stat = Path(file).stat()
            except OSError:
                continue  # it is being removed right now, which the next look notices
            found[file] = stat.st_mtime_ns, stat.st_size
    return found


def _python_files(folder: str) -> Iterator[str]:
    for here, folders, files in os.walk(folder):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = sorted(one for one in folders if one not in SKIPPED and not one.startswith("."))
        yield from (f"{here}{os.sep}{file}" for file in sorted(files) if file.endswith(".py"))


class CodeWatch:
    """Says once that the code has changed. It waits until nothing changes between two looks, because a deployment
    copies many files."""

    def __init__(self, places: Sequence[str]) -> None:
        self._folders = roots(places)
        self._known = self._last = file_versions(self._folders)

    def look(self) -> str | None:
        """Return a file that has changed; None if none has, or if files are still changing."""
        now = file_versions(self._folders)
        still, self._last = now == self._last, now
        if not still or now == self._known:
            return None
        changed = sorted(
            file for file in now.keys() | self._known.keys() if now.get(file) != self._known.get(file)
        )
        self._known = now
        return changed[0]

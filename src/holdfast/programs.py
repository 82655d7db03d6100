"""What a program is called. The one that is run is `__main__` here, and a module in every process that imports it: names that are
recorded must be the same in both.

Only looks: at names and files. Imports nothing of the author's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

MAIN = frozenset({"__main__", "__mp_main__"})
"""What Python calls the program itself; the second name is the one it has in processes of `multiprocessing`."""
NOBODY = "__main__"
"""The module of what is written into a session and stands in no file that anybody could import."""


def called(names: Mapping[str, Any]) -> str:
    """The dotted module that a program with these global names would be if it were imported."""
    started = getattr(names.get("__spec__"), "name", None)  # `python -m billing.app`
    if isinstance(started, str) and started not in MAIN:
        return started
    file = program_file(names)
    if file is not None:
        return dotted(file)
    found = notebook(names)
    return NOBODY if found is None else found.stem


def name_of(cls: type) -> str:
    """The qualified name under which a class is matched and recorded."""
    module = cls.__module__
    if module in MAIN and module in sys.modules:
        module = called(vars(sys.modules[module]))
    return f"{module}.{cls.__qualname__}"


def loaded_module(name: str) -> ModuleType | None:
    """The module of this name, if it is loaded here: as the program itself, or imported."""
    for main in MAIN:
        if main in sys.modules and called(vars(sys.modules[main])) == name:
            return sys.modules[main]
    return sys.modules.get(name)


def program_file(names: Mapping[str, Any]) -> str | None:
    file = names.get("__file__")
    if not isinstance(file, str) and sys.flags.interactive and sys.argv[0].endswith(".py"):
        file = sys.argv[0]  # `python -i app.py`: after the file was run, the prompt goes on in its names
    return file if isinstance(file, str) else None


def notebook(names: Mapping[str, Any]) -> Path | None:
    """The notebook, where its kernel was told which one it is."""
    told = names.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME")
    return Path(told).absolute() if isinstance(told, str) and told.endswith(".ipynb") else None


@lru_cache(maxsize=1024)
def dotted(file: str) -> str:
    """The module that a file is: `billing.app` in a package, which `__init__.py` files show, otherwise its stem."""
    path = Path(file).absolute()
    packages = list(_packages(path))
    if path.stem == "__main__" and not packages:
        packages = [path.parent.name]  # `python -m folder` calls it so
    if path.stem != "__init__" or not packages:
        packages.append(path.stem)
    return ".".join(packages)


def package_root(file: Path) -> Path:
    """The folder from which `dotted(file)` is imported."""
    return file.parents[len(list(_packages(file)))]


def _packages(path: Path) -> Iterator[str]:
    found: list[str] = []
    for folder in path.parents:
        if not folder.name.isidentifier() or not (folder / "__init__.py").is_file():
            break
        found.append(folder.name)
    yield from reversed(found)

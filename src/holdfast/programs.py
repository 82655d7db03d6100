"""The module name of a program. The program that Python runs is `__main__` in its own process, and a module with a name
in every process that imports it. Names that are recorded must be the same in both.

These functions only look at names and files. They import none of the author's code.
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
"""The names that Python gives to the program itself. It has the second one in processes of `multiprocessing`."""
NO_MODULE = "__main__"
"""The module of code that was typed into a session. It is in no file that anybody could import."""


def module_name(names: Mapping[str, Any]) -> str:
    """Return the dotted name of the module that a program with these global names would be if it were imported."""
    started = getattr(names.get("__spec__"), "name", None)  # `python -m billing.app`
    if isinstance(started, str) and started not in MAIN:
        return started
    file = program_file(names)
    if file is not None:
        return dotted(file)
    found = notebook(names)
    return NO_MODULE if found is None else found.stem


def name_of(cls: type) -> str:
    """Return the qualified name under which a class is matched and recorded."""
    module = cls.__module__
    if module in MAIN and module in sys.modules:
        module = module_name(vars(sys.modules[module]))
    return f"{module}.{cls.__qualname__}"


def loaded_module(name: str) -> ModuleType | None:
    """Return the module of this name if it is loaded here, as the program itself or as an import."""
    for main in MAIN:
        if main in sys.modules and module_name(vars(sys.modules[main])) == name:
            return sys.modules[main]
    return sys.modules.get(name)


def program_file(names: Mapping[str, Any]) -> str | None:
    file = names.get("__file__")
    if not isinstance(file, str) and sys.flags.interactive and sys.argv[0].endswith(".py"):
        file = sys.argv[0]  # `python -i app.py`: the prompt has the names of the file that ran before
    return file if isinstance(file, str) else None


def notebook(names: Mapping[str, Any]) -> Path | None:
    """Return the file of the notebook, if its kernel knows it."""
    file = names.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME")
    return Path(file).absolute() if isinstance(file, str) and file.endswith(".ipynb") else None


@lru_cache(maxsize=1024)
def dotted(file: str) -> str:
    """Return the module name of a file: `billing.app` in a package, which `__init__.py` files show, otherwise its
    stem."""
    path = Path(file).absolute()
    packages = list(_packages(path))
    if path.stem == "__main__" and not packages:
        packages = [path.parent.name]  # its name after `python -m folder`
    if path.stem != "__init__" or not packages:
        packages.append(path.stem)
    return ".".join(packages)


def package_root(file: Path) -> Path:
    """Return the folder from which `dotted(file)` is imported."""
    return file.parents[len(list(_packages(file)))]


def _packages(path: Path) -> Iterator[str]:
    found: list[str] = []
    for folder in path.parents:
        if not folder.name.isidentifier() or not (folder / "__init__.py").is_file():
            break
        found.append(folder.name)
    yield from reversed(found)

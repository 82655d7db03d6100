"""Where code was written: the module its name begins with, the application it comes from, and what tells it from other code.

Only looks: at frames while something is declared, at files and folders afterwards. Imports nothing of the author's.
"""

from __future__ import annotations

import inspect
import os
import re
import tomllib
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from holdfast.programs import MAIN, called, notebook, program_file

INSTALLED = frozenset({"site-packages", "dist-packages"})


class Place:
    """Where one function was written."""

    __slots__ = ("_digested", "_names", "code", "file", "module", "qualname", "unit")

    def __init__(self, fn: Callable[..., Any], frame: FrameType | None) -> None:
        own = inspect.unwrap(fn)
        self.code: CodeType = own.__code__
        self._names: dict[str, Any] = own.__globals__
        self.qualname = fn.__qualname__
        self.file = file_of(own)
        """None: it was written into a session (a notebook, a prompt, `exec`)."""
        self.module = module_of(own)
        self.unit = _unit(self.code, frame)
        """The code whose execution made the function: its module's, a cell's, or that of a function around it."""
        self._digested: str | None = None

    def is_again(self, known: Place) -> bool:
        """The same declaration once more: its module was reloaded, its cell executed again, a function that declares it called
        again. Two that stand in one file under one name are made by one execution of that file."""
        if self.unit is not None and self.unit is known.unit:
            return self.code is known.code
        return (self.file or self.module, self.qualname) == (known.file or known.module, known.qualname)

    @property
    def shown(self) -> str:
        """For people."""
        line = self.code.co_firstlineno
        return f"a session, line {line} of its cell" if self.file is None else f"{self.file}, line {line}"

    def digest(self) -> str:
        """Tells this code from other code: of all that was written around it, so that a changed helper is a change, too. The
        file's folder and the lines do not matter."""
        if self._digested is None:
            self._digested = _digest(self.code if self.unit is None else self.unit)
        return self._digested

    def origin(self, app: str | None, session: str) -> str:
        """The application it comes from: `app`, if somebody said so; the distribution that was installed; the project whose
        folder it stands in; or its file. A file that is no module of a package is named with its place in the project, because
        its name says nothing of its folder. `session` is for what stands in no file."""
        if app:
            return app
        written = None if self.file is not None else notebook(self._names)
        if self.file is None and written is None:
            return session
        return _origin(self.file or str(written), self.module)


def module_of(fn: Callable[..., Any]) -> str:
    """The dotted module; for a program its name as if it had been imported, so that it is the same either way."""
    module: str | None = fn.__module__
    if module and module not in MAIN:
        return module
    return called(inspect.unwrap(fn).__globals__)


def file_of(fn: Callable[..., Any]) -> str | None:
    """The file a function stands in, links resolved; None when it stands in none."""
    if not fn.__module__ or fn.__module__ in MAIN:
        # A notebook gives each cell a file name of its own, which changes with the cell and is no file of the author's.
        file = program_file(fn.__globals__)
        return None if file is None else _real(file)
    name = fn.__code__.co_filename
    return None if name.startswith("<") else _real(name)


@lru_cache(maxsize=1024)
def _real(file: str) -> str:
    return os.path.realpath(file)


def _unit(code: CodeType, frame: FrameType | None) -> CodeType | None:
    while frame is not None:
        if _holds(frame.f_code, code):
            return frame.f_code
        frame = frame.f_back
    return None


def _holds(outer: CodeType, code: CodeType) -> bool:
    for const in outer.co_consts:
        if const is code:
            return True
        # `def pack[T](…)` is made by code of its own.
        if isinstance(const, CodeType) and const.co_name.startswith("<generic") and _holds(const, code):
            return True
    return False


@lru_cache(maxsize=1024)
def _digest(code: CodeType) -> str:
    told = blake2b(digest_size=8)
    todo = [code]
    while todo:
        one = todo.pop()
        told.update(one.co_code)
        told.update(repr((one.co_name, one.co_names, one.co_varnames, one.co_freevars)).encode())
        for const in one.co_consts:
            if isinstance(const, CodeType):
                todo.append(const)
            else:
                told.update(_words(const).encode("utf-8", "backslashreplace"))
    return told.hexdigest()


def _words(const: object) -> str:
    """As it is in every process: sets have no order of their own."""
    return f"{{{sorted(map(repr, const))}}}" if isinstance(const, frozenset) else repr(const)


@lru_cache(maxsize=1024)
def _origin(file: str, module: str) -> str:
    path = Path(file)
    if INSTALLED & set(path.parts):
        return _normal(_distribution(module.partition(".")[0]))
    for folder in path.parents:
        name = _project(folder / "pyproject.toml")
        if name is not None:
            return name if "." in module else f"{name}:{path.relative_to(folder).as_posix()}"
    return file


@lru_cache(maxsize=256)
def _distribution(top: str) -> str:
    """The distribution that brought a module: mostly it is called like it. Else something of every distribution that is
    installed has to be read."""
    try:
        found = metadata.distribution(top)
        told = found.read_text("top_level.txt") or found.read_text("RECORD") or ""
        if re.search(rf"^{re.escape(top)}(/|\.py|$)", told, re.MULTILINE):
            return found.name
    except metadata.PackageNotFoundError:
        pass
    return (metadata.packages_distributions().get(top) or [top])[0]


@lru_cache(maxsize=1024)
def _project(file: Path) -> str | None:
    try:
        told = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    for table in (told.get("project"), told.get("tool", {}).get("poetry")):
        if isinstance(table, dict) and isinstance(table.get("name"), str):
            return _normal(table["name"])
    return None


def _normal(name: str) -> str:
    """As package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()

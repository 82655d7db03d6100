"""Where code was written: the module its name begins with, the application it comes from, and a digest of the code.

This only looks, at frames while something is declared and at files and folders afterwards. It imports nothing of the
author's.
"""

from __future__ import annotations

import inspect
import os
import re
import tomllib
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from holdfast.programs import MAIN, module_name, notebook, program_file

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
        """None if it was written into a session (a notebook, a prompt, `exec`)."""
        self.module = module_of(own)
        self.unit = _unit(self.code, frame)
        """The code whose execution made the function: its module's, a cell's, or that of a function around it."""
        self._digested: str | None = None

    def is_again(self, known: Place) -> bool:
        """True if this is the same declaration once more: its module was reloaded, its cell was executed again, or a
        function that declares it was called again. Two declarations of one name in one file are made by one execution
        of that file, and differ in their code."""
        if self.unit is not None and self.unit is known.unit:
            return self.code is known.code
        return (self.file or self.module, self.qualname) == (known.file or known.module, known.qualname)

    @property
    def shown(self) -> str:
        """The place as people read it."""
        line = self.code.co_firstlineno
        return f"a session, line {line} of its cell" if self.file is None else f"{self.file}, line {line}"

    def digest(self) -> str:
        """Return a digest of all code that was written around the function, so that a changed helper counts as a
        change, too. The file's folder and the line numbers do not matter."""
        if self._digested is None:
            self._digested = _digest(self.code if self.unit is None else self.unit)
        return self._digested

    def origin(self, app: str | None, session: str) -> str:
        """Return the application it comes from: `app` if it is given, otherwise the installed distribution, the project
        whose folder it is in, or its file. A file that is no module of a package is named with its place in the
        project, because its name does not say in which folder it is. Code that is in no file comes from `session`."""
        if app:
            return app
        written = None if self.file is not None else notebook(self._names)
        if self.file is None and written is None:
            return session
        return _origin(self.file or str(written), self.module)


def module_of(fn: Callable[..., Any]) -> str:
    """Return the dotted module. For a program, return the name it would have if it were imported: names must not depend
    on which way the code is loaded."""
    module: str | None = fn.__module__
    if module and module not in MAIN:
        return module
    return module_name(inspect.unwrap(fn).__globals__)


def file_of(fn: Callable[..., Any]) -> str | None:
    """Return the file that a function is in, with links resolved, or None if it is in none."""
    if not fn.__module__ or fn.__module__ in MAIN:
        # A notebook gives each cell a file name that changes with the cell, and that is no file of the author's.
        file = program_file(fn.__globals__)
        return None if file is None else _real(file)
    name = fn.__code__.co_filename
    return None if name.startswith("<") else _real(name)


@lru_cache(maxsize=1024)
def _real(file: str) -> str:
    return os.path.realpath(file)


def _unit(code: CodeType, frame: FrameType | None) -> CodeType | None:
    while frame is not None:
        if _contains(frame.f_code, code):
            return frame.f_code
        frame = frame.f_back
    return None


def _contains(outer: CodeType, code: CodeType) -> bool:
    for const in outer.co_consts:
        if const is code:
            return True
        # Python makes `def pack[T](…)` in a code object of its own, between the outer code and the function.
        if isinstance(const, CodeType) and const.co_name.startswith("<generic") and _contains(const, code):
            return True
    return False


@lru_cache(maxsize=1024)
def _digest(code: CodeType) -> str:
    digest = blake2b(digest_size=8)
    todo = [code]
    while todo:
        one = todo.pop()
        digest.update(one.co_code)
        digest.update(repr((one.co_name, one.co_names, one.co_varnames, one.co_freevars)).encode())
        for const in one.co_consts:
            if isinstance(const, CodeType):
                todo.append(const)
            else:
                digest.update(_stable_repr(const).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def _stable_repr(const: object) -> str:
    """Return a text that is the same in every process. The `repr` of a set is not: it has no order of its own."""
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
    """Return the distribution that a module comes from. Mostly it has the module's name. Otherwise this has to read
    metadata of every installed distribution."""
    from importlib import metadata  # noqa: PLC0415  it loads the mail parser, and most commands do not need it

    try:
        found = metadata.distribution(top)
        contents = found.read_text("top_level.txt") or found.read_text("RECORD") or ""
        if re.search(rf"^{re.escape(top)}(/|\.py|$)", contents, re.MULTILINE):
            return found.name
    except metadata.PackageNotFoundError:
        pass
    return (metadata.packages_distributions().get(top) or [top])[0]


@lru_cache(maxsize=1024)
def _project(file: Path) -> str | None:
    try:
        tables = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    for table in (tables.get("project"), tables.get("tool", {}).get("poetry")):
        if isinstance(table, dict) and isinstance(table.get("name"), str):
            return _normal(table["name"])
    return None


def _normal(name: str) -> str:
    """Return a name in the form in which package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()

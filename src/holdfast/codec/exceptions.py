"""Which exception classes are made again from a row, how, and which of their attributes are recorded.

A row may have been written by anybody who can write to the database. So only a class that the code loaded here can know is made:
one of Python's own library, or of a package that a module with a step or workflow belongs to or uses. It is looked up where it
stands: nothing is imported, no lazy attribute, property or author's `__init__` runs.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

from holdfast.programs import loaded_module, name_of

NAME_MAX_CHARS = 500
PARTS_MAX = 20
"""Names of a class: its modules, the classes around it and its own."""

OPTED = "__recorded__"
"""The member by which a class names the attributes that are recorded with it."""
RECORDED: Mapping[str, Sequence[str]] = {
    "json.decoder.JSONDecodeError": ("msg", "pos", "lineno", "colno"),
    "sqlite3.Error": ("sqlite_errorcode", "sqlite_errorname"),
    "subprocess.CalledProcessError": ("returncode", "cmd"),
    "subprocess.TimeoutExpired": ("cmd", "timeout"),
    "urllib.error.HTTPError": ("code", "msg"),
}
"""Those of the standard library that people ask for, or that `str` needs. None that holds what was sent or received."""

_ALWAYS = sys.stdlib_module_names | {"holdfast"}
_homes: set[str] = set()
_packages: set[str] = set()
"""What the homes belonged to and used when they were last looked at."""


def know_home(module: object, called: str) -> None:
    """A module declares a step or workflow: what it can name may be raised there. Code from nowhere has none. `called`: what it is
    in processes where it is not the program that is run."""
    if isinstance(module, str):
        _homes.update((module, called))


def recorded_names(cls: type[BaseException]) -> frozenset[str]:
    """The attributes that the class says are data: by `__recorded__`, as fields of a dataclass or of attrs, or, in the
    application's own packages, by an annotation in its body. A library's annotations are not meant for us."""
    found: set[Any] = set()
    packages = {_root(home) for home in _homes}
    for base in cls.__mro__:
        own = vars(base)
        if _root(base.__module__) in packages:
            found.update(own.get("__annotations__", ()))
        opted = own.get(OPTED, ())
        found.update([opted] if isinstance(opted, str) else opted)
        found.update(own.get("__dataclass_fields__", ()))
        found.update(field.name for field in own.get("__attrs_attrs__", ()))
        found.update(RECORDED.get(name_of(base), ()))
    return frozenset(name for name in found if isinstance(name, str) and not name.startswith("__"))


def known_class(name: str) -> type[Exception] | None:
    """The exception class of this name, if it is loaded, known and made by Python's own `__new__`."""
    parts = name[: NAME_MAX_CHARS + 1].split(".")
    if len(name) > NAME_MAX_CHARS or len(parts) > PARTS_MAX or not _is_known(parts[0]):
        return None
    for cut in range(len(parts) - 1, 0, -1):
        found: Any = loaded_module(".".join(parts[:cut]))
        if found is None:
            continue
        for part in parts[cut:]:
            # By what stands there, not by asking: a lazy `__getattr__` imports, a property runs.
            found = vars(found).get(part) if isinstance(found, ModuleType | type) else None
        if not isinstance(found, type) or not issubclass(found, Exception):
            return None
        if issubclass(found, StopIteration | StopAsyncIteration) or not _is_pythons(_giver(found, "__new__")):
            return None
        return found
    return None


def made(cls: type[Exception], args: Sequence[Any], attributes: Mapping[str, Any]) -> Exception | None:
    """An exception of this class; None, if it cannot be made without its author's code, or cannot be shown."""
    try:
        if _is_pythons(_giver(cls, "__init__")):
            error: Exception = type.__call__(cls, *args)
        else:
            error = _giver(cls, "__new__").__new__(cls, *args)
            BaseException.args.__set__(error, tuple(args))  # type: ignore[attr-defined]  # whatever the class calls `args`
        names = recorded_names(cls)
        vars(error).update((name, value) for name, value in attributes.items() if name in names)
        str(error)
    except BaseException:  # noqa: BLE001  a class that cannot be made this way is told by its words
        return None
    return error


def _giver(cls: type, member: str) -> Any:
    """The class from which it has this member."""
    return next(base for base in cls.__mro__ if member in vars(base))


def _is_pythons(cls: type) -> bool:
    return vars(builtins).get(cls.__name__) is cls


def _is_known(package: str) -> bool:
    if package in _ALWAYS or package in _packages:
        return True
    _packages.clear()
    for home in _homes:
        _packages.add(_root(home))
        for value in list(vars(sys.modules.get(home, builtins)).values()):
            # By its type alone: objects that stand for others must not be asked anything.
            if issubclass(type(value), type | FunctionType):
                named = vars(value).get("__module__") if issubclass(type(value), type) else value.__module__
            else:
                named = vars(value).get("__name__") if issubclass(type(value), ModuleType) else None
            if isinstance(named, str):
                _packages.add(_root(named))
    return package in _packages


def _root(name: object) -> str:
    return name.partition(".")[0] if isinstance(name, str) else ""

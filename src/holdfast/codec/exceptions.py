"""Which exception classes are rebuilt from a row, how, and which of their attributes are recorded.

Anybody who can write to the database may have written a row. So only a class that the code loaded here can know is
rebuilt: a class of Python's own library, or of a package that a module with a step or workflow belongs to or uses. It
is looked up among what is loaded already: nothing is imported, and no lazy attribute, property or author's `__init__`
runs.
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
"""How many parts the dotted name of a class may have: its modules, the classes around it and its own name."""

RECORDED_MEMBER = "__recorded__"
"""The member in which an exception class lists the attributes to record."""
RECORDED: Mapping[str, Sequence[str]] = {
    "json.decoder.JSONDecodeError": ("msg", "pos", "lineno", "colno"),
    "sqlite3.Error": ("sqlite_errorcode", "sqlite_errorname"),
    "subprocess.CalledProcessError": ("returncode", "cmd"),
    "subprocess.TimeoutExpired": ("cmd", "timeout"),
    "urllib.error.HTTPError": ("code", "msg"),
}
"""The attributes to record of classes of the standard library: people ask for them, or `str` needs them. None of them
contains what was sent or received."""

NEEDED: Mapping[str, Mapping[str, Any]] = {"urllib.error.HTTPError": {"file": None}}
"""Attributes that are not recorded, and without which every question about an attribute that is not there raises something
else than an AttributeError: `hasattr`, and what writes a traceback. This one is the reply, which nobody can read again."""

_ALWAYS = sys.stdlib_module_names | {"holdfast"}
_modules: set[str] = set()
"""The modules that declare a step or workflow."""
_packages: set[str] = set()
"""The packages that these modules belonged to and used when `_is_known` looked last."""


def add_module(module: object, called: str) -> None:
    """Remember a module that declares a step or workflow: whatever exception it can name may be raised there.

    `called` is the name of the module in processes where it is not the program itself. Code without a module adds
    nothing.
    """
    if isinstance(module, str):
        _modules.update((module, called))


def recorded_names(cls: type[BaseException]) -> frozenset[str]:
    """Return the names of the attributes that the class declares as data.

    It declares them by `__recorded__`, as fields of a dataclass or of attrs, or, in the application's own packages, by
    an annotation in its body. A library's annotations do not count: they were written for another purpose.
    """
    found: set[Any] = set()
    packages = {_root(module) for module in _modules}
    for base in cls.__mro__:
        own = vars(base)
        if _root(base.__module__) in packages:
            found.update(own.get("__annotations__", ()))
        listed = own.get(RECORDED_MEMBER, ())
        found.update([listed] if isinstance(listed, str) else listed)
        found.update(own.get("__dataclass_fields__", ()))
        found.update(field.name for field in own.get("__attrs_attrs__", ()))
        found.update(RECORDED.get(name_of(base), ()))
    return frozenset(name for name in found if isinstance(name, str) and not name.startswith("__"))


def known_class(name: str) -> type[Exception] | None:
    """Return the exception class of this name, if it is loaded, of a known package, and has Python's own `__new__`."""
    parts = name[: NAME_MAX_CHARS + 1].split(".")
    if len(name) > NAME_MAX_CHARS or len(parts) > PARTS_MAX or not _is_known(parts[0]):
        return None
    for cut in range(len(parts) - 1, 0, -1):
        found: Any = loaded_module(".".join(parts[:cut]))
        if found is None:
            continue
        for part in parts[cut:]:
            # Read the namespace instead of the attribute: a lazy `__getattr__` would import, a property would run.
            found = vars(found).get(part) if isinstance(found, ModuleType | type) else None
        if not isinstance(found, type) or not issubclass(found, Exception):
            return None
        maker = _definer(found, "__new__")
        if issubclass(found, StopIteration | StopAsyncIteration) or not _is_builtin(maker):
            return None
        return found
    return None


def rebuild(cls: type[Exception], args: Sequence[Any], attributes: Mapping[str, Any]) -> Exception | None:
    """Make an exception of this class without its author's `__init__`. Return None if that, or `str` of it, fails."""
    try:
        if _is_builtin(_definer(cls, "__init__")):
            error: Exception = type.__call__(cls, *args)
        else:
            error = _definer(cls, "__new__").__new__(cls, *args)
            # BaseException's own `args`: the class may redefine it.
            BaseException.args.__set__(error, tuple(args))  # type: ignore[attr-defined]  # a descriptor made in C
        names = recorded_names(cls)
        vars(error).update((name, value) for name, value in attributes.items() if name in names)
        for base in cls.__mro__:
            vars(error).update(NEEDED.get(name_of(base), ()))
        str(error)
    except BaseException:  # noqa: BLE001  then the caller raises a StepFailed with the same message
        return None
    return error


def _definer(cls: type, member: str) -> Any:
    """Return the class, this one or a base of it, that defines the member."""
    return next(base for base in cls.__mro__ if member in vars(base))


def _is_builtin(cls: type) -> bool:
    return vars(builtins).get(cls.__name__) is cls


def _is_known(package: str) -> bool:
    if package in _ALWAYS or package in _packages:
        return True
    _packages.clear()
    for module in _modules:
        _packages.add(_root(module))
        for value in list(vars(sys.modules.get(module, builtins)).values()):
            # Look at nothing but its type: a proxy, as web frameworks have them, may run code if it is asked anything.
            if issubclass(type(value), type | FunctionType):
                named = vars(value).get("__module__") if issubclass(type(value), type) else value.__module__
            else:
                named = vars(value).get("__name__") if issubclass(type(value), ModuleType) else None
            if isinstance(named, str):
                _packages.add(_root(named))
    return package in _packages


def _root(name: object) -> str:
    return name.partition(".")[0] if isinstance(name, str) else ""

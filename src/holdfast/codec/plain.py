"""Plain values: their classes alone show that JSON keeps them as they are.

Most steps take and return numbers, text, and dataclasses of these. Looking at the classes of values is faster than
reading them again and comparing them. The functions that look are compiled from source text, as `dataclass` makes its
own: a loop over the fields would take longer than it saves, and this runs for every step.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Union, get_args, get_origin

ATOMS = frozenset({int, str, float, bool, bytes, types.NoneType})
"""Types whose values JSON keeps as they are, and nobody can change."""


JSON_ATOMS = ATOMS - {bytes}


def is_json(value: Any) -> bool:
    """True if JSON keeps the value as it is, although nobody declared its type."""
    kind = type(value)
    if kind in JSON_ATOMS:
        return True
    if kind is dict:
        for key, part in value.items():
            if type(key) is not str or (type(part) not in JSON_ATOMS and not is_json(part)):
                return False
        return True
    if kind is list:
        for part in value:  # noqa: SIM110  a loop takes half the time of `all`
            if type(part) not in JSON_ATOMS and not is_json(part):
                return False
        return True
    return False


class Plain(NamedTuple):
    """Which values of one type are plain: the instances of exactly these classes."""

    kinds: frozenset[type]
    fields: Mapping[str, Plain] = MappingProxyType({})
    """If the class is a record: which values of its fields are plain."""


def plain_of(kind: Any) -> Plain | None:
    """Return which values of an annotation are plain, or None if their classes do not show it."""
    return _atoms(kind) or _record(kind)


def _atoms(kind: Any) -> Plain | None:
    """The plain values of an atom or a union of atoms. A union of text and bytes has none: both are text in JSON."""
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    found = frozenset(types.NoneType if one is None else one for one in kinds)
    return Plain(found) if found <= ATOMS and not found >= {str, bytes} else None


def _record(kind: Any) -> Plain | None:
    """The plain values of a dataclass of atoms that runs no code of its own when it is read."""
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
        return None
    own = ("__post_init__", "__new__", "__getattribute__", "__setattr__")
    frozen = kind.__dataclass_params__.frozen  # type: ignore[attr-defined]  # what the decorator was given
    if frozen or any(name in vars(each) for each in kind.__mro__[:-1] for name in own):
        return None
    fields: dict[str, Plain] = {}
    hints = hints_of(kind)
    for field in dataclasses.fields(kind):
        plain = _atoms(hints.get(field.name, Any))
        if plain is None:
            return None
        fields[field.name] = plain
    return Plain(frozenset({kind}), fields) if fields else None


def hints_of(kind: type) -> dict[str, Any]:
    """Return the annotations of a class's fields, or nothing if they cannot be resolved."""
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except Exception:  # noqa: BLE001  msgspec has read them; a name that only it finds is no reason to fail
        return {}


def make_check(plain: Plain | None) -> Callable[[Any], bool]:
    """Return a function that says whether a value is plain."""
    scope: dict[str, Any] = {}
    test = "False" if plain is None else _test(plain, "value", scope)
    return _compiled(f"def made(value): return {test}", scope)


def make_copier(plains: Sequence[Plain | None], struct: type) -> Callable[..., Any] | None:
    """Return a function that makes the struct from its arguments and copies the records among them, or returns None if
    one of its arguments is not plain. If a parameter has no plain values, there is no such function: return None."""
    scope: dict[str, Any] = {"struct": struct, "new": object.__new__}
    tests, copies = [], []
    for i, plain in enumerate(plains):
        if plain is None:
            return None
        tests.append(_test(plain, f"a{i}", scope))
        if plain.fields:
            (scope[f"kind{i}"],) = plain.kinds
            copied = "".join(f"; c.{name} = a{i}.{name}" for name in plain.fields)
            copies.append(f"  c = new(kind{i}){copied}; a{i} = c\n")
    names = ", ".join(f"a{i}" for i in range(len(plains)))
    body = f" if {' and '.join(tests) or 'True'}:\n{''.join(copies)}  return struct({names})"
    return _compiled(f"def made({names}):\n{body}", scope)


def _test(plain: Plain, value: str, scope: dict[str, Any]) -> str:
    if len(plain.kinds) == 1:
        name = f"k{len(scope)}"
        (scope[name],) = plain.kinds
        test = f"type({value}) is {name}"
    else:
        name = f"k{len(scope)}"
        scope[name] = plain.kinds
        test = f"type({value}) in {name}"
    return " and ".join(
        [test, *(_test(part, f"{value}.{field}", scope) for field, part in plain.fields.items())]
    )


def _compiled(source: str, scope: dict[str, Any]) -> Callable[..., Any]:
    exec(source, scope)  # noqa: S102  the source consists of numbers and names of fields, which are identifiers
    made: Callable[..., Any] = scope["made"]
    return made

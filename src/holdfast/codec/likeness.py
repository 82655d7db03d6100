"""Compares a value with what it became when it was written and read: is it equal and of the same class, in all its
parts?

For most values `==` is enough, and it runs in C. This module compares those for which `==` proves too little, and finds
the part that would change, so that the error can name it. Errors do not show the values themselves: they may be secret.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Collection, Mapping, Sequence, Set
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from holdfast.codec.plain import ATOMS

KEYS_SHOWN_MAX_CHARS = 40


class Change(NamedTuple):
    """How a part of a value would change. `place` is like `.limits[3]`, or empty for the value itself."""

    place: str
    what: str


def find_change(value: Any, back: Any, *, loose: bool = False) -> Change | None:
    """Return the first part of the value that came back as something else, or None.

    If `loose`, a tuple may become a list, a frozenset a set and any mapping a dict, because the annotation asks for no
    more than a Sequence, Set or Mapping.
    """
    todo: list[tuple[str, Any, Any]] = [("", value, back)]
    while todo:
        place, one, other = todo.pop()
        kind = type(one)
        if kind is not type(other):
            if loose and (plain := _plain_kind(one)) is type(other):
                kind = plain
            elif kind is int and type(other) in (float, Decimal) and one == other:
                continue  # an int where a float or Decimal is declared comes back as what is declared
            else:
                return Change(place, _type_change(kind, type(other)))
        if kind in ATOMS:
            if one != other:
                return Change(place, "it would come back as another value")
        elif issubclass(kind, Mapping):
            lost = _lost_key(one, other, loose=loose)
            if lost is not None:
                return Change(place, lost)
            todo += [(f"{place}{_key_place(key)}", part, other[key]) for key, part in one.items()]
        elif issubclass(kind, list | tuple):
            if len(one) != len(other):
                return Change(place, "it would come back with another number of parts")
            todo += [
                (f"{place}[{i}]", part, read) for i, (part, read) in enumerate(zip(one, other, strict=True))
            ]
        elif issubclass(kind, dt.datetime | dt.time):
            if (changed := _changed_time(one, other)) is not None:
                return Change(place, changed)
        elif (names := _fields(kind)) is not None:
            todo += [(f"{place}.{name}", getattr(one, name), getattr(other, name)) for name in names]
        elif one != other:
            return Change(place, "it comes back changed by its own class, or without some of its parts")
    return None


def find_loss(value: Any) -> Change | None:
    """Return what JSON would lose of a value whose type is given only when it is read, or None. It loses one of two
    keys that are the same text, and the `fold` of a time."""
    todo: list[tuple[str, Any]] = [("", value)]
    while todo:
        place, one = todo.pop()
        if isinstance(one, dict):
            texts = {str(key) for key in one}
            if len(texts) < len(one):
                return Change(place, "two of its keys are the same in JSON")
            todo += [(f"{place}{_key_place(key)}", part) for key, part in one.items()]
        elif isinstance(one, list | tuple | set | frozenset):
            todo += [(f"{place}[{i}]", part) for i, part in enumerate(one)]
        elif isinstance(one, dt.datetime | dt.time) and (changed := _changed_time(one, None)) is not None:
            return Change(place, changed)
    return None


def _type_change(kind: type, into: type) -> str:
    return (
        f"a {kind.__qualname__} would come back as a {into.__qualname__}: "
        f"declare {kind.__qualname__} there, or pass a {into.__qualname__}"
    )


def _plain_kind(value: Any) -> type:
    """Return the type in which a value comes back where the annotation asks only for an interface."""
    if isinstance(value, Mapping):
        return dict
    if isinstance(value, Set):
        return set
    return list if isinstance(value, Sequence) and not isinstance(value, str | bytes) else type(value)


def _key_place(key: Any) -> str:
    shown = key if isinstance(key, str) else repr(key)
    return f".{shown[:KEYS_SHOWN_MAX_CHARS]}"


def _lost_key(value: Mapping[Any, Any], back: Mapping[Any, Any], *, loose: bool) -> str | None:
    """Return what is wrong with the keys of a dict that was read again, or None."""
    if len(value) > len(back):
        lost = next((key for key in value if key not in back), None)
        if lost is None:
            return "two of its keys are the same in JSON"
        return f"the key {_key_place(lost)[1:]!r} would be lost: it is not declared, or another one is the same in JSON"
    for key in value:
        if key not in back:
            kind = type(key).__qualname__
            return (
                f"the key {_key_place(key)[1:]!r}, a {kind}, would come back as something else: "
                "declare the type of the keys"
            )
    if not loose:
        read = {key: type(key) for key in back}
        for key in value:
            if read[key] is not type(key):
                return f"the key {_key_place(key)[1:]!r}: {_type_change(type(key), read[key])}"
    return None


def _changed_time(value: Any, back: Any) -> str | None:
    """Return how a time would change, or None.

    An aware time comes back at the same instant, with its offset from UTC in place of its zone, so this compares the
    offsets. A naive time that says it is the second of two (`fold=1`) would come back as the first.
    """
    offset = value.utcoffset()
    if offset is None and value.fold:
        return "its fold=1 would be lost: pass a time with a time zone"
    if back is None:
        return None
    same = value.replace(tzinfo=None, fold=0) == back.replace(tzinfo=None)
    if same and offset == back.utcoffset():
        return None
    return "its offset from UTC has seconds, which would be lost: pass it in UTC"


def _fields(kind: type) -> Collection[str] | None:
    """Return the names of a record's fields, or None if the class is no record."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    attributes = getattr(kind, "__attrs_attrs__", None)
    if attributes is not None:
        return [attribute.name for attribute in attributes]
    return None

"""What events are called and found by: types, paths, and the names of the steps that wait for them."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import DefinitionError, InvalidInput
from holdfast.model import EVENT_PREFIX, NewEvent
from holdfast.namespaces import BETWEEN, parted, stored

TYPE_MAX, PATH_MAX, TEXT_MAX = 200, 200, 500
"""How many bytes a type, a path, and a source, an id or a value may have. An index has several of them in one entry."""
ATTRIBUTES = frozenset({"subject", "source", "id", "type", "time"})
_ATTRIBUTE = re.compile(r"[a-z0-9]{1,20}")
_PATH = re.compile(r"data(\.[^.=\s]+)+")


class Awaited(NamedTuple):
    """What a run waits for: an event of this type with this value at the path."""

    namespace: str
    type: str
    path: str
    value: str


def event_type(value: object, what: str) -> str:
    """Check the type of an event, which code names."""
    try:
        return given_type(value, what)
    except InvalidInput as wrong:
        raise DefinitionError(str(wrong)) from None


def given_type(value: object, what: str) -> str:
    """Check the type of an event, which somebody sends."""
    if (
        not isinstance(value, str)
        or not value.isprintable()
        or not value
        or any(mark.isspace() for mark in value)
        or value[0] == "$"
        or BETWEEN in value
        or len(value.encode()) > TYPE_MAX
    ):
        shown = f"{value[:50]!r}" if isinstance(value, str) else repr(value)
        raise InvalidInput(
            f"{what}: {shown} cannot be the type of an event: it needs 1 to {TYPE_MAX} printable characters without spaces "
            "and //, and does not begin with $"
        )
    return value


def event_path(value: object, what: str) -> str:
    """Check where in an event the value stands that waits name: an attribute, or a dotted path in its data."""
    if (
        not isinstance(value, str)
        or not value.isprintable()
        or len(value.encode()) > PATH_MAX
        or not (_ATTRIBUTE.fullmatch(value) or _PATH.fullmatch(value))
        or value == "data"
    ):
        raise DefinitionError(
            f'{what}: expected an attribute, such as "subject", or a path in the data, such as "data.order.id", not {value!r}'
        )
    return value


def event_value(value: object, what: str) -> str:
    """Check the value that a wait names."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value.encode()) <= TEXT_MAX:
        raise InvalidInput(
            f"{what}: expected a printable text of 1 to {TEXT_MAX} bytes, or a whole number, not {value!r}"
        )
    return value


def wait_name(awaited: Awaited) -> str:
    """Return the name of the step that waits for this. Neither type nor path has a space, and the path has no equals
    sign."""
    return f"{EVENT_PREFIX}{stored(awaited.namespace, awaited.type)} {awaited.path}={awaited.value}"


def awaited_of(name: str) -> Awaited:
    """Return what a run waits for, by the name of the step."""
    kind, _, rest = name.removeprefix(EVENT_PREFIX).partition(" ")
    path, _, value = rest.partition("=")
    return Awaited(*parted(kind), path, value)


def event_words(name: str) -> str:
    """Say which event the step of this name waits for. Empty if it waits for something else."""
    if not name.startswith(EVENT_PREFIX):
        return ""
    _, kind, path, value = awaited_of(name)
    return f"an event {kind} whose {path} is {value!r}"


def value_at(event: NewEvent, path: str) -> str | None:
    """Return what stands in an event at a path. None if that is no text and no whole number, or too long to be named."""
    first, *rest = path.split(".")
    found: Any = _in_data(event, rest) if first == "data" and rest else _attribute(event, path)
    if isinstance(found, bool) or not isinstance(found, str | int):
        return None
    try:
        return event_value(found, path)
    except InvalidInput:
        return None


def _in_data(event: NewEvent, parts: list[str]) -> Any:
    try:
        found: Any = msgspec.json.decode(event.data)
    except msgspec.DecodeError:
        return None
    for part in parts:
        if not isinstance(found, dict):
            return None
        found = found.get(part)
    return found


def _attribute(event: NewEvent, name: str) -> Any:
    if name in ATTRIBUTES:
        return getattr(event, name)
    others: dict[str, str] = msgspec.json.decode(event.attributes or "{}")
    return others.get(name)

"""CloudEvents 1.0, as HTTP carries them: one in the body (structured), many in the body (batched), or one with its
attributes in headers (binary).

What is wrong is an InvalidInput that names the attribute. Data is kept as JSON. What is no JSON is a JSON text: text as it is,
and bytes in base64, which code reads back as `bytes`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Raw

from holdfast.codec import stored_text
from holdfast.errors import InvalidInput
from holdfast.event_names import TEXT_MAX, given_type

STRUCTURED, BATCHED = "application/cloudevents+json", "application/cloudevents-batch+json"
JSON_TYPE = "application/json"
SPEC = "1.0"
BATCH_MAX = 1000
EXTENSIONS_MAX = 50
Sound = Callable[[bytes, str], None]
"""Raises if JSON cannot be kept, with what it is."""
_NAME = re.compile(r"[a-z0-9]{1,20}")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_JSON = re.compile(r"[^;]*[/+]json\s*(;.*)?", re.IGNORECASE)
_TEXT = re.compile(r"text/.*|.*[/+]xml\s*(;.*)?", re.IGNORECASE)


class CloudEvent(msgspec.Struct, frozen=True):
    """An event as somebody sends it."""

    type: str
    source: str
    id: str
    data: bytes = b"null"
    """JSON."""
    subject: str | None = None
    time: str | None = None
    extensions: dict[str, str] = {}
    """All other attributes."""

    @property
    def attributes(self) -> str | None:
        return msgspec.json.encode(self.extensions, order="sorted").decode() if self.extensions else None


def read_structured(raw: bytes, sound: Sound) -> list[CloudEvent]:
    """Return the one event in a body."""
    sound(raw, "the body")
    return [_structured(_object(raw), "", sound)]


def read_batch(raw: bytes, sound: Sound) -> list[CloudEvent]:
    """Return the events in a body."""
    sound(raw, "the body")
    try:
        found = msgspec.json.decode(raw, type=list[dict[str, Raw]])
    except msgspec.DecodeError:
        raise InvalidInput("the body is not a list of events") from None
    if len(found) > BATCH_MAX:
        raise InvalidInput(f"{len(found):,} events are more than the {BATCH_MAX:,} that a batch may have")
    return [_structured(one, f"/{i}/", sound) for i, one in enumerate(found)]


def read_binary(headers: Mapping[str, str], body: bytes, sound: Sound) -> list[CloudEvent]:
    """Return the one event whose attributes are in headers (`ce-…`), and whose data is the body."""
    given: dict[str, Any] = {
        name.removeprefix("ce-"): _header(value, name)
        for name, value in headers.items()
        if name.startswith("ce-")
    }
    kind = headers.get("content-type", "")
    if kind:
        given["datacontenttype"] = kind
    return [_made(given, data_of(body, kind, "the body", sound) if body else b"null", "ce-")]


def write(event: CloudEvent) -> dict[str, Any]:
    """Return an event as the members of a structured one."""
    made: dict[str, Any] = {"specversion": SPEC, "type": event.type, "source": event.source, "id": event.id}
    made |= {name: value for name in ("subject", "time") if (value := getattr(event, name)) is not None}
    return made | event.extensions | {"data": Raw(event.data)}


def made_event(given: Mapping[str, Any], data: bytes) -> CloudEvent:
    """Return the event of a program, whose data is JSON."""
    return _made({"specversion": SPEC, **given}, data, "")


def _object(raw: bytes) -> dict[str, Raw]:
    try:
        return msgspec.json.decode(raw, type=dict[str, Raw])
    except msgspec.DecodeError:
        raise InvalidInput("the body is not an event: give an object with its attributes") from None


def _structured(members: dict[str, Raw], place: str, sound: Sound) -> CloudEvent:
    given = {
        name: msgspec.json.decode(raw) for name, raw in members.items() if name not in {"data", "data_base64"}
    }
    given = {name: value for name, value in given.items() if value is not None}
    kind = given.get("datacontenttype", JSON_TYPE)
    if not isinstance(kind, str):
        raise InvalidInput(f"{place}datacontenttype: expected a text")
    if "data" in members and "data_base64" in members:
        raise InvalidInput(f"{place}data: an event has data or data_base64, not both")
    data = b"null"
    if "data" in members:
        data = bytes(members["data"])
    elif "data_base64" in members:
        text = msgspec.json.decode(members["data_base64"])
        try:
            whole = base64.b64decode(text, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise InvalidInput(f"{place}data_base64: it is not base64") from None
        data = data_of(whole, kind, f"{place}data_base64", sound)
    return _made(given, data, place)


def data_of(raw: bytes, kind: str, what: str, sound: Sound) -> bytes:
    """Return data as JSON. What has no media type is JSON."""
    if not kind or _JSON.fullmatch(kind):
        sound(raw, what)
        return raw
    if _TEXT.fullmatch(kind):
        try:
            return msgspec.json.encode(raw.decode())
        except UnicodeDecodeError:
            raise InvalidInput(f"{what}: it is not UTF-8") from None
    return msgspec.json.encode(raw)


def _made(given: dict[str, Any], data: bytes, place: str) -> CloudEvent:
    if given.pop("specversion", None) != SPEC:
        raise InvalidInput(f'{place}specversion: expected "{SPEC}"')
    named = {name: _named(given.pop(name, None), f"{place}{name}") for name in ("source", "id")}
    kind = given_type(given.pop("type", None), f"{place}type")
    subject = given.pop("subject", None)
    if subject is not None:
        subject = _named(subject, f"{place}subject")
    time = given.pop("time", None)
    if time is not None:
        time = _moment(time, f"{place}time")
    if len(given) > EXTENSIONS_MAX:
        raise InvalidInput(
            f"{place}: {len(given)} attributes are more than the {EXTENSIONS_MAX} that an event may have"
        )
    others = {name: _extension(name, value, place) for name, value in sorted(given.items())}
    return CloudEvent(kind, named["source"], named["id"], data, subject, time, others)


def _named(value: object, what: str) -> str:
    text = stored_text(value, what) if isinstance(value, str) else ""
    if not text or not text.isprintable() or len(text.encode()) > TEXT_MAX:
        raise InvalidInput(f"{what}: expected a printable text of 1 to {TEXT_MAX} bytes")
    return text


def _moment(value: object, what: str) -> str:
    try:
        assert isinstance(value, str)
        assert len(value) <= 64
        assert moment_of(value).tzinfo is not None
        moment_of(value).astimezone(UTC)  # some are beyond the calendar there
    except (AssertionError, ValueError, OverflowError):
        raise InvalidInput(f"{what}: expected a time such as 2026-11-16T08:00:00Z, not {value!r}") from None
    return value


def moment_of(text: str) -> datetime:
    """Return the time of an event."""
    return datetime.fromisoformat(text.upper())


def _extension(name: str, value: object, place: str) -> str:
    if not _NAME.fullmatch(name) and name != "datacontenttype":
        raise InvalidInput(f"{place}{name[:50]}: an attribute has a name of 1 to 20 small letters and digits")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return stored_text(value, f"{place}{name}", 1_000)


def _header(value: str, name: str) -> str:
    if quoted := _QUOTED.fullmatch(value):
        value = re.sub(r"\\(.)", r"\1", quoted[1])
    try:
        return unquote_to_bytes(value).decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{name}: it is not UTF-8") from None

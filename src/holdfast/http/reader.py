"""Reads requests strictly. What is wrong is a problem that names the place, and nothing has changed by then.

msgspec keeps the last of two equal keys and lets half of a character through, so the standard library's scanner looks
first. It takes microseconds for a usual body.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote_plus

import msgspec
from starlette.types import Receive

from holdfast.config import Config
from holdfast.http.refusals import Refusal

T = TypeVar("T")
Query = TypeVar("Query", bound=msgspec.Struct)

MEDIA_TYPE = "application/json"
ONCE = frozenset(
    {
        "host",
        "origin",
        "authorization",
        "content-type",
        "content-encoding",
        "idempotency-key",
        "holdfast-namespace",
    }
)
TARGET_MAX = 8 * 1024
_PLACE = re.compile(r" - at `(?:key in )?\$?([^`]*)`")
_PART = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


class _Twice(Exception):
    """A key occurs twice in one object."""


class _TooMany(Exception):
    """There are more members than a request may have."""


async def receive_body(receive: Receive, headers: Mapping[str, str], most: int, config: Config) -> bytes:
    """Return the body of a request: it has at most `most` bytes, and arrives in time."""
    if headers.get("content-encoding", "identity") != "identity":
        raise Refusal("media-type", "a compressed body is not taken", place="Content-Encoding")
    length = headers.get("content-length", "0")
    if length.isdigit() and int(length[:20]) > most:
        raise _too_large(most)
    parts, size = [], 0
    try:
        async with asyncio.timeout(config.body_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refusal("malformed", "the connection ended before the body did")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > most:
                    raise _too_large(most)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise Refusal("malformed", f"the body did not arrive within {config.body_s:g} s") from None


def _too_large(most: int) -> Refusal:
    return Refusal("too-large", f"the body may have at most {most:,} bytes")


def demand_media_type(content_type: str | None) -> None:
    """Refuse a body whose type is not exactly JSON. For a page of another site, a browser sends this type only after it
    has asked."""
    given = (content_type or "").lower().replace(" ", "")
    if given not in {MEDIA_TYPE, f"{MEDIA_TYPE};charset=utf-8"}:
        raise Refusal("media-type", f"send the header Content-Type: {MEDIA_TYPE}", place="Content-Type")


def read_body(raw: bytes, kind: type[T], config: Config) -> T:
    """Return the body as a struct."""
    demand_sound(raw, "the body", config)
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as wrong:
        detail, place = _explained(str(wrong))
        raise Refusal("invalid", detail, place=place) from None
    except (msgspec.DecodeError, RecursionError) as wrong:
        raise Refusal("malformed", f"the body is not JSON: {wrong}") from None


def demand_sound(raw: bytes, what: str, config: Config) -> None:
    """Refuse what is no JSON, or JSON that readers understand differently: keys that occur twice, NaN, numbers beyond
    any limit, NUL, half of a character; and what is nested too deeply or has too many members."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as wrong:
        raise Refusal("malformed", f"{what} is not UTF-8: {wrong.reason} at byte {wrong.start}") from None
    left = config.members_max

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal left
        left -= len(pairs)
        if left < 0:
            raise _TooMany
        found = dict(pairs)
        if len(found) != len(pairs):
            raise _Twice
        return found

    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=_constant, parse_float=_finite)
    except _Twice:
        place, key = _twice(json.loads(text, object_pairs_hook=_Pairs), "") or ("", "")
        raise Refusal("malformed", f"the key {key!r} occurs twice in one object", place=place) from None
    except _TooMany:
        raise Refusal(
            "too-large", f"{what} has more than the {config.members_max:,} members that a request may have"
        ) from None
    except json.JSONDecodeError as wrong:
        raise Refusal(
            "malformed", f"{what} is not JSON: {wrong.msg} at line {wrong.lineno}, column {wrong.colno}"
        ) from None
    except RecursionError:
        raise Refusal("malformed", f"{what} is nested too deeply") from None
    except ValueError as wrong:  # an integer with thousands of digits
        raise Refusal("malformed", f"{what} is not JSON: {wrong}") from None
    has_escapes = "\\u" in text  # only an escape can stand for NUL or for half of a character
    if has_escapes or text.count("[") + text.count("{") > config.depth_max:
        _walk(value, config.depth_max, has_escapes, what)


def _constant(name: str) -> NoReturn:
    raise Refusal("malformed", f"{name} is not JSON: use null or a number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise Refusal("malformed", f"{digits[:40]} is larger than any number that can be kept")
    return number


class _Pairs(list[tuple[str, Any]]):
    """An object as its members, in which a key may occur twice."""


def _twice(value: Any, place: str) -> tuple[str, str] | None:
    """Return the object in which a key occurs twice, and the key."""
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, inner in value:
            if key in seen:
                return place + pointer(key), key
            seen.add(key)
            if found := _twice(inner, place + pointer(key)):
                return found
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            if found := _twice(inner, f"{place}/{number}"):
                return found
    return None


Trail = tuple[Any, Any] | None
"""How a part is reached: (trail of the part that it is in, key). A place is made of it only if something is wrong
there."""


def _walk(value: Any, depth_max: int, has_escapes: bool, what: str) -> None:
    """Refuse text that cannot be stored, and what is nested too deeply."""
    todo: list[tuple[Any, Trail, int]] = [(value, None, 1)]
    while todo:
        part, trail, depth = todo.pop()
        kind = type(part)
        if kind is str:
            _demand_text(part, trail)
        elif kind is dict or kind is list:
            if depth > depth_max:
                raise Refusal(
                    "malformed",
                    f"{what} is nested more deeply than {depth_max} levels",
                    place=_place(trail)[:200],
                )
            for key, inner in part.items() if kind is dict else enumerate(part):
                if has_escapes:
                    if isinstance(key, str):
                        _demand_text(key, trail)
                    todo.append((inner, (trail, key), depth + 1))
                elif type(inner) is dict or type(inner) is list:
                    todo.append((inner, (trail, key), depth + 1))


def _place(trail: Trail) -> str:
    parts = []
    while trail is not None:
        trail, key = trail
        parts.append(pointer(key))
    return "".join(reversed(parts))


def _demand_text(text: str, trail: Trail) -> None:
    if "\0" in text:
        raise Refusal(
            "malformed", "a text contains a NUL character, which cannot be stored", place=_place(trail)
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Refusal(
                "malformed",
                "a text contains half of a surrogate pair, which is no character",
                place=_place(trail),
            ) from None


def pointer(key: object) -> str:
    """Return a part of a JSON pointer. A part that cannot be written as text is left out."""
    text = str(key).encode("utf-8", "replace").decode()
    return "/" + text.replace("~", "~0").replace("/", "~1")


_WHERE = re.compile(r"[^:]*: (\w+(?:\.\w+|\[[0-9]+\])*): ")


def value_place(place: str, text: str) -> str:
    """Return the JSON pointer of what is wrong with the value at `place`, by a message such as `order(): lines[0].sku: problem`."""
    found = _WHERE.match(text)
    return place if found is None else place + "".join(pointer(one) for one in re.findall(r"\w+", found[1]))


def _explained(message: str) -> tuple[str, str]:
    """Return what msgspec says is wrong, and the JSON pointer of the place."""
    found = _PLACE.search(message)
    if found is None:
        return message, ""
    place = "".join(pointer(name or number) for name, number in _PART.findall(found[1]) if number != "...")
    return message[: found.start()], place


def read_query(
    raw: bytes, kind: type[Query] | None, *, has_tags: bool
) -> tuple[Query | None, dict[str, str]]:
    """Return the query as a struct, and its tags. A parameter that the route does not have is refused."""
    if kind is None and not raw:
        return None, {}
    given: dict[str, Any] = {}
    tags: dict[str, str] = {}
    fields = {} if kind is None else {one.encode_name: one for one in msgspec.structs.fields(kind)}
    if len(raw) > TARGET_MAX:
        raise Refusal("malformed", f"the query has more than {TARGET_MAX:,} bytes")
    for name, value in _pairs(raw):
        if has_tags and name.startswith("tag."):
            if name[4:] in tags or name == "tag.":
                raise Refusal("malformed", "a tag is named twice, or has no name", place=f"?{name}")
            tags[name[4:]] = value
        elif name not in fields:
            known = ", ".join([*fields, *(["tag.NAME"] if has_tags else [])]) or "none"
            raise Refusal("invalid", f"there is no such parameter: it takes {known}", place=f"?{name[:100]}")
        elif "list" in str(fields[name].type):
            given.setdefault(name, []).append(value)
        elif name in given:
            raise Refusal("malformed", "the parameter is named twice", place=f"?{name}")
        else:
            given[name] = value
    if kind is None:
        return None, tags
    try:
        return msgspec.convert(given, kind, strict=False), tags
    except msgspec.ValidationError as wrong:
        detail, place = _explained(str(wrong))
        raise Refusal("invalid", detail, place=f"?{place[1:]}") from None


def _pairs(raw: bytes) -> list[tuple[str, str]]:
    found = []
    for part in raw.decode("latin-1").split("&"):
        if part:
            name, _, value = part.partition("=")
            found.append((_decoded(name), _decoded(value)))
    return found


def _decoded(text: str) -> str:
    try:
        found = unquote_plus(text, errors="strict")
        found.encode()
    except UnicodeError:
        raise Refusal("malformed", "the query is not UTF-8", place="?") from None
    if "\0" in found:
        raise Refusal("malformed", "the query contains a NUL character", place="?")
    return found


def read_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by their names, which are in small letters. One that decides something may not occur twice: two readers could each believe
    another one."""
    found: dict[str, str] = {}
    for name, value in raw:
        key = name.decode("latin-1")
        if key in found and (key in ONCE or key.startswith("ce-")):
            raise Refusal("malformed", "this header occurs twice", place=key)
        found[key] = value.decode("latin-1")
    return found


def header(headers: Mapping[str, str], name: str) -> str | None:
    """Return a header, as text that can be stored."""
    value = headers.get(name)
    if value is not None and not (value.isascii() and value.isprintable()):
        raise Refusal("malformed", "this header may have printable ASCII characters only", place=name)
    return value

"""Writes and reads one value by its declared type, and refuses a value that JSON would silently change."""

from __future__ import annotations

import datetime as dt
import math
import re
from functools import lru_cache
from typing import Any, NoReturn

import msgspec

from holdfast.codec.forms import Form, complete, dec_hook, enc_hook, form_of, is_record
from holdfast.codec.likeness import Change, find_change, find_loss
from holdfast.codec.plain import is_json, make_check
from holdfast.codec.whole import find_unread
from holdfast.config import DEFAULT
from holdfast.errors import InvalidInput
from holdfast.interrupt import by_signal
from holdfast.keyring import HEAD, KEYS, sealed_by

PAYLOAD_MAX_BYTES = DEFAULT.payload_max_bytes
TIMES = (dt.datetime, dt.time)
SEALED, SEALED_BYTES = HEAD, len(HEAD)

_PLACE = re.compile(r" - at `\$?([^`]*)`")


class Payload:
    """Writes and reads values of one type. `what` names them in errors."""

    __slots__ = ("_atoms", "_decode", "_encode", "_is_plain", "form", "what")

    def __init__(self, annotation: Any, what: str) -> None:
        self.what = what
        self.form = form = form_of(annotation, what)
        self._encode = msgspec.json.Encoder(enc_hook=enc_hook, order=form.order).encode
        self._decode = msgspec.json.Decoder(form.type, dec_hook=dec_hook).decode
        self._atoms = frozenset() if form.plain is None or form.plain.fields else form.plain.kinds
        self._is_plain = is_json if form.type is Any else make_check(form.plain)

    def encode(self, value: Any, limit: int = PAYLOAD_MAX_BYTES) -> bytes:
        """Return the value as JSON of at most `limit` bytes. Refuse it if it would come back as another value."""
        form = self.form
        try:
            raw = self._encode(value if form.wrap is None else form.wrap(value))
            if type(value) not in self._atoms and not self._is_plain(value):
                back = self._decode(raw)
                if not is_same(form, value, back):
                    refuse_change(self.what, value, back, loose=form.loose)
        except InvalidInput:
            raise
        except BaseException as wrong:  # noqa: BLE001  msgspec's, and whatever an author's class raises
            if form.has_floats:
                refuse_nan(value, self.what)
            refuse(self.what, wrong)
        if form.has_floats and b"null" in raw:
            refuse_nan(value, self.what)
        if len(raw) > limit:
            refuse_size(self.what, len(raw), limit)
        return raw

    def decode(self, raw: bytes) -> Any:
        if raw[:SEALED_BYTES] == SEALED:
            refuse_sealed(self.what, raw)
        try:
            return self._decode(raw)
        except BaseException as wrong:  # noqa: BLE001  msgspec's, and whatever an author's class raises
            refuse(self.what, wrong)

    def decode_whole(self, raw: bytes, *, typed: bool = True) -> Any:
        """Like `decode`, for JSON that other code may have recorded: refuse it if this type loses or changes a part of
        it. If not `typed`, the value was written without a declared type, so that its sets may be in any order."""
        value = self.decode(raw)
        problem = find_unread(raw, self.encode_again(value), ordered=typed or self.form.order is None)
        if problem is not None:
            raise InvalidInput(f"{self.what}: {problem}")
        return value

    def encode_again(self, value: Any) -> bytes:
        """Write a value that was read. It does not need the checks of a value that comes from an author."""
        if self.form.has_defaults:
            complete(value)
        try:
            return self._encode(value if self.form.wrap is None else self.form.wrap(value))
        except BaseException as wrong:  # noqa: BLE001  msgspec's, and whatever an author's class raises
            refuse(self.what, wrong)


def is_same(form: Form, value: Any, back: Any) -> bool:
    """True if the value certainly came back as it was. If this is False, `refuse_change` looks closer."""
    return type(value) is type(back) and bool(value == back) and (not form.weak_equality or is_json(value))


_any = Payload(Any, "")
_open = msgspec.json.Encoder(enc_hook=enc_hook)


def encode_any(value: Any, what: str, limit: int = PAYLOAD_MAX_BYTES) -> bytes:
    """Return the JSON of a value whose type nobody declared. Refuse it if JSON would change it."""
    return _encode_by(_any, value, what, limit)


def encode_open(value: Any, what: str, limit: int = PAYLOAD_MAX_BYTES) -> bytes:
    """Return the JSON of a value whose type is given only when it is read. A record is checked by its own class. Any
    other value is refused only if no type could bring it back."""
    if is_record(type(value)):
        payload = _payload_of(type(value))  # type: ignore[arg-type]  # every class has a hash
        return _encode_by(payload, value, what, limit)
    try:
        raw = _open.encode(value)
        loss = find_loss(msgspec.to_builtins(value, enc_hook=enc_hook, builtin_types=TIMES))
    except BaseException as wrong:  # noqa: BLE001  msgspec's, and whatever an author's class raises
        refuse(what, wrong)
    if loss is not None:
        raise InvalidInput(f"{what}: {_described(loss)}")
    if b"null" in raw:
        refuse_nan(value, what)
    if len(raw) > limit:
        refuse_size(what, len(raw), limit)
    return raw


@lru_cache(maxsize=256)
def _payload_of(kind: Any) -> Payload:
    return Payload(kind, "")


def _encode_by(payload: Payload, value: Any, what: str, limit: int) -> bytes:
    try:
        return payload.encode(value, limit)
    except InvalidInput as wrong:
        raise InvalidInput(f"{what}{wrong}") from None


def decode_any(raw: bytes) -> Any:
    if raw[:SEALED_BYTES] == SEALED:
        refuse_sealed("a payload", raw)
    return msgspec.json.decode(raw)


def is_same_json(one: bytes, other: bytes) -> bool:
    """True if two JSON texts mean the same, however they are written."""
    return one == other or _sorted.encode(msgspec.json.decode(one)) == _sorted.encode(
        msgspec.json.decode(other)
    )


_sorted = msgspec.json.Encoder(order="sorted")


def refuse(what: str, wrong: BaseException) -> NoReturn:
    """Raise InvalidInput with the function, the place and the problem: `charge(): cents: expected `int`, got `str``."""
    if by_signal(wrong):
        raise wrong
    try:
        text = str(wrong) or type(wrong).__name__
    except BaseException:  # noqa: BLE001  an author's __str__ must not hide what is wrong
        text = type(wrong).__name__
    if isinstance(wrong, RecursionError):
        text = "the value is nested too deeply, or contains itself"
    elif isinstance(wrong, UnicodeEncodeError):
        text = "the text contains half of a surrogate pair, which is not a character"
    place = "".join(reversed(_PLACE.findall(text))).lstrip(".")
    text = _PLACE.sub("", text)
    text = re.sub(r"^Object missing required field", "missing", text)
    if text[:1].isupper() and text[1:2].islower():
        text = text[0].lower() + text[1:]
    raise InvalidInput(f"{what}: {place}: {text}" if place else f"{what}: {text}") from None


def refuse_change(what: str, value: Any, back: Any, *, loose: bool) -> None:
    """Refuse a value that would come back as something else, and name the part that would change."""
    change = find_change(value, back, loose=loose)
    if change is not None:
        raise InvalidInput(f"{what}: {_described(change)}")


def _described(change: Change) -> str:
    place = change.place.lstrip(".")
    return f"{place}: {change.what}" if place else change.what


def refuse_sealed(what: str, raw: bytes) -> None:
    """Refuse to read a payload that was not opened. Read as JSON, it might be taken for a value of the declared type."""
    if (key := sealed_by(raw)) is not None:
        raise InvalidInput(
            f"{what}: it is sealed with the key {key!r}, which {KEYS} does not have, or somebody changed it since: "
            "add the key where this runs"
        )


def refuse_size(what: str, size: int, limit: int) -> NoReturn:
    raise InvalidInput(
        f"{what}: {size:,} bytes is more than the {limit:,} a payload may have (`payload_max_bytes`): "
        "store it in a file or object store, and pass its address"
    )


def refuse_nan(value: Any, what: str) -> None:
    """Refuse NaN and infinity, which JSON does not have. msgspec would write null, which means something else."""
    try:
        plain = msgspec.to_builtins(value, enc_hook=enc_hook)
    except Exception:  # noqa: BLE001  the caller refuses the value because of this error
        return
    todo: list[tuple[str, Any]] = [("", plain)]
    while todo:
        place, item = todo.pop()
        if isinstance(item, float) and not math.isfinite(item):
            raise InvalidInput(
                f"{what}: {(place.lstrip('.') + ': ') if place else ''}{item} is not a number that JSON has: "
                "use None or text"
            )
        if isinstance(item, dict):
            todo += [(f"{place}.{key}", part) for key, part in item.items()]
        elif isinstance(item, list | tuple | set | frozenset):
            todo += [(f"{place}[{i}]", part) for i, part in enumerate(item)]

"""One value, written and read by its declared type. Refuses what JSON would silently change."""

from __future__ import annotations

import math
import re
from typing import Any, NoReturn

import msgspec

from holdfast import config
from holdfast.codec.forms import Form, complete, dec_hook, enc_hook, form_of
from holdfast.codec.whole import unread
from holdfast.errors import InvalidInput

PROBLEMS = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError, AttributeError)
"""What goes wrong inside msgspec, and inside an author's own `__post_init__` or validator."""

_PLACE = re.compile(r" - at `\$?([^`]*)`")


class Payload:
    """How values of one type are written and read. `what` names them in errors."""

    __slots__ = ("_decode", "_encode", "form", "what")

    def __init__(self, annotation: Any, what: str) -> None:
        self.what = what
        self.form = form_of(annotation, what)
        self._encode = encoder_of(self.form).encode
        self._decode = decoder_of(self.form).decode

    def encode(self, value: Any) -> bytes:
        """JSON, checked by reading it again."""
        form = self.form
        try:
            raw = self._encode(value if form.wrap is None else form.wrap(value))
            if form.type is not Any:
                self._decode(raw)
        except PROBLEMS as wrong:
            if form.holds_floats:
                refuse_nan(value, self.what)
            refuse(self.what, wrong)
        if form.holds_floats and b"null" in raw:
            refuse_nan(value, self.what)
        if len(raw) > config.DEFAULT.payload_max_bytes:
            refuse_size(self.what, len(raw))
        return raw

    def decode(self, raw: bytes) -> Any:
        try:
            return self._decode(raw)
        except PROBLEMS as wrong:
            refuse(self.what, wrong)

    def whole(self, raw: bytes, *, typed: bool = True) -> Any:
        """As `decode`, of what other code may have recorded: refuses what this type does not read whole. Not `typed`: it was
        written without a declared type, so that sets have come in any order."""
        value = self.decode(raw)
        problem = unread(raw, self.again(value), ordered=typed or self.form.order is None)
        if problem is not None:
            raise InvalidInput(f"{self.what}: {problem}")
        return value

    def again(self, value: Any) -> bytes:
        """JSON of a value that was read, without the checks of one that comes from an author."""
        if self.form.has_defaults:
            complete(value)
        try:
            return self._encode(value if self.form.wrap is None else self.form.wrap(value))
        except PROBLEMS as wrong:
            refuse(self.what, wrong)


def encoder_of(form: Form) -> msgspec.json.Encoder:
    return msgspec.json.Encoder(enc_hook=enc_hook, order=form.order)


def decoder_of(form: Form) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(form.type, dec_hook=dec_hook)


_any = msgspec.json.Encoder(enc_hook=enc_hook)


def encode_any(value: Any, what: str) -> bytes:
    """JSON of a value whose type nobody declared."""
    try:
        raw = _any.encode(value)
    except PROBLEMS as wrong:
        refuse(what, wrong)
    if b"null" in raw:
        refuse_nan(value, what)
    if len(raw) > config.DEFAULT.payload_max_bytes:
        refuse_size(what, len(raw))
    return raw


def decode_any(raw: bytes) -> Any:
    return msgspec.json.decode(raw)


def refuse(what: str, wrong: BaseException) -> NoReturn:
    """`charge(): cents: expected `int`, got `str``: the function, the place, the problem."""
    text = str(wrong) or type(wrong).__name__
    if isinstance(wrong, RecursionError):
        text = "the value is nested too deeply, or contains itself"
    elif isinstance(wrong, UnicodeEncodeError):
        text = "the text holds half of a surrogate pair, which is not a character"
    place = "".join(reversed(_PLACE.findall(text))).lstrip(".")
    text = _PLACE.sub("", text)
    text = re.sub(r"^Object missing required field", "missing", text)
    if text[:1].isupper() and text[1:2].islower():
        text = text[0].lower() + text[1:]
    raise InvalidInput(f"{what}: {place}: {text}" if place else f"{what}: {text}") from None


def refuse_size(what: str, size: int) -> NoReturn:
    raise InvalidInput(
        f"{what}: {size:,} bytes is more than the {config.DEFAULT.payload_max_bytes:,} a payload may have: "
        "store it in a file or object store, and pass its address"
    )


def refuse_nan(value: Any, what: str) -> None:
    """JSON has no NaN and no infinity: msgspec would write null, which means something else."""
    try:
        plain = msgspec.to_builtins(value, enc_hook=enc_hook)
    except PROBLEMS:
        return
    todo: list[tuple[str, Any]] = [("", plain)]
    while todo:
        place, item = todo.pop()
        if isinstance(item, float) and not math.isfinite(item):
            raise InvalidInput(
                f"{what}: {(place.lstrip('.') + ': ') if place else ''}{item} is not a number JSON can hold: use None or text"
            )
        if isinstance(item, dict):
            todo += [(f"{place}.{key}", part) for key, part in item.items()]
        elif isinstance(item, list | tuple | set | frozenset):
            todo += [(f"{place}[{i}]", part) for i, part in enumerate(item)]

"""The shape of a function: its parameters and its result as payloads. It is made once, from the signature."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from inspect import Parameter
from types import GenericAlias
from typing import Any, NoReturn, get_type_hints

import msgspec
from msgspec.structs import astuple

from holdfast.codec.forms import Form, Wrap, complete, dec_hook, enc_hook, form_of
from holdfast.codec.payload import (
    PAYLOAD_MAX_BYTES,
    SEALED,
    SEALED_BYTES,
    Payload,
    is_same,
    refuse,
    refuse_change,
    refuse_nan,
    refuse_sealed,
    refuse_size,
)
from holdfast.codec.plain import make_copier
from holdfast.codec.text import read_json
from holdfast.codec.whole import find_unread_arguments
from holdfast.errors import DefinitionError, InvalidInput
from holdfast.interrupt import by_signal


class Shape:
    """Checks, writes and reads calls of one function. `what` names it in errors: `charge()`."""

    __slots__ = (
        "_copy", "_decode", "_defaults", "_encode", "_fast", "_floats", "_forms", "_signature", "_simple", "_wraps",
        "decode_result", "encode_result", "parameters", "result", "spreads", "struct", "what",
    )  # fmt: skip

    @staticmethod
    def early(
        fn: Callable[..., Any], scope: dict[str, Any] | None = None, first: str | None = None
    ) -> Shape | None:
        """Return the shape, or None if an annotation names something that is only defined further down."""
        try:
            return Shape(fn, _hints(fn, scope), first)
        except NameError:
            return None

    @staticmethod
    def of(fn: Callable[..., Any], scope: dict[str, Any] | None = None, first: str | None = None) -> Shape:
        """Return the shape. `first` is what the JSON calls the first parameter, if not by its own name."""
        try:
            return Shape(fn, _hints(fn, scope), first)
        except NameError as missing:
            raise DefinitionError(
                f"{fn.__name__}(): the annotations name {missing.name!r}, which does not exist at run time: "
                "import it outside of `if TYPE_CHECKING:`, at the top of the file"
            ) from None

    def __init__(self, fn: Callable[..., Any], hints: dict[str, Any], first: str | None = None) -> None:
        self.what = f"{fn.__name__}()"
        self._signature = inspect.signature(fn)
        self.parameters = tuple(self._signature.parameters.values())
        self._simple = all(p.kind is Parameter.POSITIONAL_OR_KEYWORD for p in self.parameters)
        self.spreads = len([p for p in self.parameters if p.kind is not Parameter.VAR_KEYWORD]) > 1 or any(
            p.kind is Parameter.VAR_POSITIONAL for p in self.parameters
        )
        fields: list[tuple[str, Any, Any]] = []
        self._wraps: dict[str, Wrap] = {}
        forms: list[Form] = []
        for parameter in self.parameters:
            annotation = _annotation(parameter, hints)
            form = form_of(annotation, f"{self.what}: {parameter.name}")
            forms.append(form)
            if form.wrap is not None:
                self._wraps[parameter.name] = form.wrap
            fields.append((parameter.name, form.type, _field(parameter)))
        self._forms = tuple(forms)
        self._fast = self._simple and not self._wraps
        rename = None if first is None else {self.parameters[0].name: first}
        self.struct = msgspec.defstruct(fn.__name__, fields, kw_only=not self._simple, rename=rename)
        self._copy = make_copier([form.plain for form in forms], self.struct) if self._fast else None
        self._floats = any(form.has_floats for form in forms)
        self._defaults = any(form.has_defaults for form in forms)
        order = next((form.order for form in forms if form.order is not None), None)
        self._encode = msgspec.json.Encoder(enc_hook=enc_hook, order=order).encode
        self._decode = msgspec.json.Decoder(self.struct, dec_hook=dec_hook).decode
        self.result = Payload(hints.get("return", Any), f"{self.what} result")
        self.encode_result = self.result.encode
        self.decode_result = self.result.decode

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> msgspec.Struct:
        """Return the arguments by parameter, as Python binds them."""
        if self._simple:
            try:
                return self.struct(*args, **kwargs)
            except TypeError:
                pass  # below, the signature says what is wrong in Python's own words
        try:
            found = self._signature.bind(*args, **kwargs).arguments
            for parameter in self.parameters:
                if parameter.kind is Parameter.VAR_POSITIONAL:
                    found[parameter.name] = list(found.get(parameter.name, ()))
            return self.struct(**found)
        except TypeError as wrong:
            raise InvalidInput(f"{self.what}: {wrong}") from None

    def encode(self, bound: msgspec.Struct, limit: int = PAYLOAD_MAX_BYTES) -> bytes:
        """Return the JSON of bound arguments. Their types are only checked when they are read again: see `checked`."""
        wrapped = bound
        try:
            wrapped = self._wrapped(bound)
            raw = self._encode(wrapped)
        except BaseException as wrong:  # noqa: BLE001  msgspec's, and whatever an author's class raises
            self._blame(wrapped, wrong)
        if self._floats and b"null" in raw:
            refuse_nan(bound, self.what)
        if len(raw) > limit:
            refuse_size(self.what, len(raw), limit)
        return raw

    def _wrapped(self, bound: msgspec.Struct) -> msgspec.Struct:
        """Return the arguments prepared for writing, as `Form.wrap` does it."""
        if not self._wraps:
            return bound
        return msgspec.structs.replace(
            bound, **{name: wrap(getattr(bound, name)) for name, wrap in self._wraps.items()}
        )

    def decode(self, raw: bytes) -> msgspec.Struct:
        if raw[:SEALED_BYTES] == SEALED:
            refuse_sealed(self.what, raw)
        try:
            return self._decode(raw)
        except BaseException as wrong:  # noqa: BLE001  msgspec's, and whatever an author's class raises
            refuse(self.what, wrong)

    def decode_whole(self, raw: bytes) -> msgspec.Struct:
        """Like `decode`, for arguments that other code may have recorded: refuse them if these parameters lose or
        change a part of them."""
        bound = self.decode(raw)
        problem = find_unread_arguments(raw, self._encode_again(bound))
        if problem is not None:
            raise InvalidInput(f"{self.what}: {problem}")
        return bound

    def rewritten(self, raw: bytes) -> bytes:
        """Return recorded arguments as this code would write them: parameters in its order, with the defaults of those
        that it has added."""
        return self._encode_again(self.decode_whole(raw))

    def _encode_again(self, bound: msgspec.Struct) -> bytes:
        if self._defaults:
            complete(bound)
        try:
            return self._encode(self._wrapped(bound))
        except BaseException as wrong:  # noqa: BLE001  msgspec's, and whatever an author's class raises
            refuse(self.what, wrong)

    def checked(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int = PAYLOAD_MAX_BYTES
    ) -> tuple[bytes, msgspec.Struct]:
        """Check the arguments. Return them as JSON, and bound as copies that share nothing with the caller's
        objects."""
        if self._fast:  # this runs for every step, so it takes a shortcut to the same result
            try:
                copied = None if kwargs or self._copy is None else self._copy(*args)
                given = self.struct(*args, **kwargs) if copied is None else copied
                raw = self._encode(given)
                if len(raw) <= limit and not (self._floats and b"null" in raw):
                    if copied is not None:
                        return raw, copied
                    bound = self._decode(raw)
                    if self._is_same(given, bound):
                        return raw, bound
            except BaseException as wrong:
                if by_signal(wrong):
                    raise
        return self._reread(self.bind(args, kwargs), limit)

    def _is_same(self, given: msgspec.Struct, bound: msgspec.Struct) -> bool:
        for form, value, back in zip(self._forms, astuple(given), astuple(bound)):  # noqa: B905  as many each
            if not is_same(form, value, back):
                return False
        return True

    def _reread(self, given: msgspec.Struct, limit: int) -> tuple[bytes, msgspec.Struct]:
        """Write the arguments, read them again, and compare each with what it was."""
        raw = self.encode(given, limit)
        bound = self.decode(raw)
        for parameter, form in zip(self.parameters, self._forms, strict=True):
            what = f"{self.what}: {parameter.name}"
            value, back = getattr(given, parameter.name), getattr(bound, parameter.name)
            try:
                if not is_same(form, value, back):
                    refuse_change(what, value, back, loose=form.loose)
            except InvalidInput:
                raise
            except BaseException as wrong:  # noqa: BLE001  whatever an author's class raises when it is compared
                refuse(what, wrong)
        return raw, bound

    def call(self, fn: Callable[..., Any], bound: msgspec.Struct) -> Any:
        """Call the function with these arguments."""
        if self._simple:
            return fn(*astuple(bound))
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in self.parameters:
            value = getattr(bound, parameter.name)
            if parameter.kind is Parameter.VAR_POSITIONAL:
                args += value
            elif parameter.kind is Parameter.VAR_KEYWORD:
                kwargs |= value
            elif parameter.kind is Parameter.KEYWORD_ONLY:
                kwargs[parameter.name] = value
            else:
                args.append(value)
        return fn(*args, **kwargs)

    def takes_none(self) -> bool:
        """True if the first parameter accepts None."""
        first = msgspec.structs.fields(self.struct)[0].type
        try:
            msgspec.json.decode(b"null", type=first, dec_hook=dec_hook)
        except Exception:  # noqa: BLE001  msgspec's, and whatever an author's class raises
            return False
        return True

    def from_json(self, raw: bytes | str, limit: int = PAYLOAD_MAX_BYTES) -> bytes:
        """Return the arguments that a person wrote as JSON, checked and written as this shape writes them. A person may
        write an object of parameters by name, an array of positional ones, or the bare value of the only parameter."""
        value = read_json(raw, self.what)
        names = [p.name for p in self.parameters]
        if isinstance(value, list):
            bound = self._positionals(value)
        elif isinstance(value, dict):
            bound = value
            if (extra := _var_keyword(self.parameters)) is None:
                for name in value:
                    if name not in names:
                        takes = ", ".join(f"`{n}`" for n in names) or "no parameters"
                        raise InvalidInput(f"{self.what}: unknown parameter `{name}`: it takes {takes}")
            else:
                bound = {name: value[name] for name in value if name in names and name != extra}
                bound[extra] = {name: value[name] for name in value if name not in bound}
        elif len(names) == 1:
            bound = self._positionals([value])
        else:
            raise InvalidInput(
                f"{self.what}: expected an object of parameters by name, or an array of them, "
                f"not {json.dumps(value)[:40]}"
            )
        try:
            plain = msgspec.json.encode(bound)
        except Exception as wrong:  # noqa: BLE001  half of a surrogate pair
            refuse(self.what, wrong)
        read = self.decode(plain)
        if self._defaults:
            complete(read)
        return self._reread(read, limit)[0]

    def _positionals(self, values: list[Any]) -> dict[str, Any]:
        bound: dict[str, Any] = {}
        left = list(values)
        for parameter in self.parameters:
            if parameter.kind is Parameter.VAR_POSITIONAL:
                bound[parameter.name], left = left, []
            elif left and parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
                bound[parameter.name] = left.pop(0)
        if left:
            count = len(values)
            raise InvalidInput(
                f"{self.what}: the array has {count} values, and there are {count - len(left)} parameters for them"
            )
        return bound

    def _blame(self, bound: msgspec.Struct, wrong: BaseException) -> NoReturn:
        """Raise InvalidInput that names the parameter that could not be written."""
        for name in bound.__struct_fields__:
            try:
                self._encode(getattr(bound, name))
            except BaseException as problem:  # noqa: BLE001  msgspec's, and whatever an author's class raises
                refuse(f"{self.what}: {name}", problem)
        refuse(self.what, wrong)


def _hints(fn: Callable[..., Any], scope: dict[str, Any] | None) -> dict[str, Any]:
    if scope is not None:
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            try:
                scope = {**scope, name: cell.cell_contents}
            except ValueError:
                pass  # defined further down
    return get_type_hints(fn, localns=scope, include_extras=True)


def _annotation(parameter: Parameter, hints: dict[str, Any]) -> Any:
    annotation = hints.get(parameter.name, Any)
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return GenericAlias(list, (annotation,))
    if parameter.kind is Parameter.VAR_KEYWORD:
        return GenericAlias(dict, (str, annotation))
    if parameter.default is None and annotation is not Any:
        return annotation | None  # `note: str = None` is what people write
    return annotation


def _field(parameter: Parameter) -> Any:
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return msgspec.field(default_factory=list)
    if parameter.kind is Parameter.VAR_KEYWORD:
        return msgspec.field(default_factory=dict)
    default = parameter.default
    if default is Parameter.empty:
        return msgspec.field()
    if isinstance(default, list | dict | set | bytearray):
        return msgspec.field(default_factory=lambda: default)  # the function's own object, as in any call
    return msgspec.field(default=default)


def _var_keyword(parameters: tuple[Parameter, ...]) -> str | None:
    return next((p.name for p in parameters if p.kind is Parameter.VAR_KEYWORD), None)

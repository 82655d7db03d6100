"""Which types can be stored, and how to write and read those that msgspec does not know by itself.

msgspec refuses a union of several dataclass-like types, because their JSON does not say which type it is. Where an
annotation has such a union, at any depth, a `Variant` takes its place, and its values are written as `{"$type": "Name",
…}`. Inside the fields of an author's own class a union cannot be replaced: it raises a DefinitionError that says what
to do instead.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime as dt
import decimal
import sys
import types
import typing
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from pathlib import PurePath
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias, Union, cast, get_args, get_origin

import msgspec
from msgspec import inspect as described

from holdfast.codec.plain import Plain, hints_of, plain_of
from holdfast.errors import DefinitionError

TAG = "$type"
Wrap: TypeAlias = Callable[[Any], Any]


class Form(NamedTuple):
    """An annotation, prepared for msgspec."""

    type: Any
    wrap: Wrap | None
    """Prepares a value for writing: marks values of unions that need a tag, and sorts sets that msgspec cannot sort."""
    order: Literal["deterministic"] | None
    """A set has no order of its own. Without a fixed one the digests of equal inputs would differ."""
    has_floats: bool
    """Its values may contain NaN and infinity, which msgspec would write as null."""
    plain: Plain | None
    """Which of its values JSON certainly keeps as they are, so that they need not be read again."""
    weak_equality: bool
    """Two of its values can be equal and yet differ, so `==` does not prove that a value came back as it was."""
    loose: bool
    """Somewhere it asks for no more than an interface (Sequence, Mapping), so a list or dict comes back."""
    has_defaults: bool
    """It may contain dataclasses with defaults. msgspec does not write a default that was missing when it read one."""


class _StandIn(type):
    def __instancecheck__(cls, value: object) -> bool:
        """msgspec checks that what `dec_hook` returns is an instance of the type it asked for. `Variant.read` returns
        an instance of what that type stands for, so this says yes."""
        return True


class Variant(metaclass=_StandIn):
    """Stands for one union of several dataclass-like types. Each union gets a subclass of its own."""

    members: dict[str, type]
    others: Any = None

    @classmethod
    def read(cls, value: Any) -> Any:
        if isinstance(value, dict) and TAG in value:
            fields = dict(value)
            name = fields.pop(TAG)
            member = cls.members.get(name) if isinstance(name, str) else None
            if member is not None:
                return convert(fields, member)
        elif cls.others is not None and not isinstance(value, dict):
            return convert(value, cls.others)
        names = " or ".join(f"`{name}`" for name in cls.members)
        raise ValueError(f"Expected an object whose `{TAG}` is {names}")

    @classmethod
    def wrap(cls, value: Any) -> Any:
        member = cls.members.get(type(value).__name__)
        return Tagged(value) if member is type(value) else value


class Tagged:
    """A value of a `Variant` that is about to be written."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def enc_hook(value: Any) -> Any:
    """Turn a value that msgspec cannot write by itself into one that it can."""
    if isinstance(value, Tagged):
        fields = msgspec.to_builtins(value.value, enc_hook=enc_hook)
        return {TAG: type(value.value).__name__, **fields}
    if is_pydantic(type(value)):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    if isinstance(value, PurePath):
        return str(value)
    if value is None or isinstance(value, tuple | bool | frozenset):
        raise TypeError(
            f"{_a(type(value).__qualname__)} cannot be the key of a dict that is stored: use text or a number"
        )
    raise TypeError(f"{_a(type(value).__qualname__)} cannot be stored: {_instead(value)}")


def _a(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


def _instead(value: object) -> str:
    """Say what to pass instead of a value that cannot be stored."""
    if isinstance(value, Coroutine):
        return "await it first, and pass its result"
    if isinstance(value, Iterator | AsyncIterator):
        return "pass a list of what it yields"
    if callable(value):
        return "pass its name, or call it where it is"
    return "make it a dataclass, or pass plain values"


def dec_hook(kind: type, value: Any) -> Any:
    """Read a value of a type that msgspec does not know."""
    if issubclass(kind, Variant):
        try:
            return kind.read(value)
        except msgspec.ValidationError as wrong:
            # A ValueError, because msgspec then adds the place of the union to the place inside it.
            raise ValueError(str(wrong)) from None
    if is_pydantic(kind):
        return kind.model_validate(value)  # type: ignore[attr-defined]  # a pydantic model, which is not imported here
    if issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    raise ValueError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")


def convert(value: Any, kind: Any) -> Any:
    return msgspec.convert(value, kind, dec_hook=dec_hook)


def is_pydantic(kind: Any) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def form_of(annotation: Any, where: str) -> Form:
    """Return the form of an annotation, or raise a DefinitionError that says what to do."""
    kind, wrap = _prepare(annotation, where)
    ordered = floats = weak_equality = defaults = False
    loose = _asks_for_interface(annotation)
    for node in _nodes(kind, where):
        defaults |= isinstance(node, described.CustomType) or (
            isinstance(node, described.DataclassType) and not all(each.required for each in node.fields)
        )
        ordered |= isinstance(node, described.SetType | described.FrozenSetType)
        floats |= isinstance(node, described.FloatType | described.AnyType | described.CustomType)
        weak_equality |= isinstance(node, WEAK_EQUALITY)
        owner = getattr(node, "cls", None)
        if owner is not None:
            weak_equality = weak_equality or not _compares_all(owner)
            loose = loose or any(map(_asks_for_interface, hints_of(owner).values()))
    order: Literal["deterministic"] | None = "deterministic" if ordered else None
    return Form(kind, wrap, order, floats, plain_of(kind), weak_equality, loose, defaults)


WEAK_EQUALITY = (described.AnyType, described.DateTimeType, described.TimeType, described.NamedTupleType)
"""Types whose values can be equal and yet differ. Under Any an OrderedDict comes back as an equal dict, `==` does not
compare the `fold` of a time, and a named tuple equals any other with the same values."""


def _asks_for_interface(annotation: Any) -> bool:
    """True if the annotation asks somewhere for no more than an interface, such as Sequence."""
    origin = get_origin(annotation) or annotation
    if isinstance(origin, type) and origin.__module__ == "collections.abc":
        return True
    return any(_asks_for_interface(arg) for arg in get_args(annotation) if arg is not ...)


def _compares_all(kind: type) -> bool:
    """True if two instances are equal only when all their fields are. If the author wrote `__eq__`, nobody can know."""
    code = getattr(kind.__eq__, "__code__", None)
    if code is not None and not code.co_filename.startswith("<") and not is_pydantic(kind):
        return False  # it is in a file, so the author wrote it; what a decorator makes is in `<string>` or the like
    if dataclasses.is_dataclass(kind):
        return all(field.compare for field in dataclasses.fields(kind))
    return all(attribute.eq for attribute in getattr(kind, "__attrs_attrs__", ()))


def complete(value: Any) -> None:
    """Set the missing defaults on the dataclasses in a value that was read.

    msgspec leaves a default that it did not read to the class, and writes only what the instance itself has. Without
    this, a default would be recorded for a value that an author made, and not for one that was read.
    """
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, list | tuple | set | frozenset):
            todo += one
        elif isinstance(one, dict):
            todo += one.values()
        elif isinstance(one, msgspec.Struct):
            todo += [getattr(one, name) for name in one.__struct_fields__]
        elif dataclasses.is_dataclass(one) and not isinstance(one, type):
            own, fields = getattr(one, "__dict__", None), dataclasses.fields(one)
            if own is not None and any(field.name not in own for field in fields):
                given = dict(own)
                own.clear()  # msgspec writes the attributes in their order here, which must be that of the fields
                own.update({field.name: given.get(field.name, field.default) for field in fields} | given)
            todo += [getattr(one, field.name) for field in fields]


def _prepare(annotation: Any, where: str) -> tuple[Any, Wrap | None]:
    """Return the annotation with its unions replaced, and the function that prepares its values for writing."""
    if (
        annotation is object
        or isinstance(annotation, typing.TypeVar)
        or annotation in (typing.NoReturn, typing.Never)
    ):
        return Any, None
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        kind, wrap = _prepare(args[0], where)
        return (annotation if kind is args[0] else typing.Annotated[(kind, *args[1:])]), wrap
    if origin in (Union, types.UnionType):
        return _prepare_union(annotation, args, where)
    if annotation in (set, frozenset, collections.abc.Set, collections.abc.MutableSet):
        return annotation, _sort
    if origin is None or not isinstance(origin, type) or not issubclass(origin, collections.abc.Collection):
        return annotation, None
    parts = [(arg, None) if arg is ... else _prepare(arg, where) for arg in args]
    if _is_unchanged(parts, args):
        unsorted = issubclass(origin, collections.abc.Set) and not _has_order(args[0])
        return annotation, _sort if unsorted else None
    kinds = tuple(kind for kind, _ in parts)
    wraps = [wrap or _as_is for _, wrap in parts]
    return types.GenericAlias(origin, kinds), _wrap_collection(origin, args, wraps)


def _is_unchanged(parts: Iterable[tuple[Any, Wrap | None]], args: Iterable[Any]) -> bool:
    """True if nothing was replaced, and no value needs to be prepared."""
    return all(kind is arg and wrap is None for (kind, wrap), arg in zip(parts, args, strict=True))


def _prepare_union(annotation: Any, args: tuple[Any, ...], where: str) -> tuple[Any, Wrap | None]:
    tagged = [arg for arg in args if is_record(arg)]
    custom = [
        arg for arg in args if is_pydantic(arg) or (isinstance(arg, type) and issubclass(arg, PurePath))
    ]
    beside = [arg for arg in args if arg is not types.NoneType]
    if len(tagged) > 1 or (custom and len(beside) > 1):
        if [arg for arg in custom if arg not in tagged]:
            _refuse(where, annotation, "a Path can only be in a union with None: use str instead")
        members = {arg.__name__: arg for arg in tagged}
        if len(members) < len(tagged):
            _refuse(where, annotation, "two of its types have the same name: rename one")
        others = tuple(arg for arg in args if arg not in tagged)
        for member in tagged:
            for _ in _nodes(member, where):
                pass
        rest, wrap_rest = _prepare(Union[others], where) if others else (None, None)  # noqa: UP007  made at run time
        name = "_or_".join(members)
        variant = cast("type[Variant]", type(name, (Variant,), {"members": members, "others": rest}))
        if wrap_rest is not None:
            return variant, lambda value: variant.wrap(wrap_rest(value))
        return variant, variant.wrap
    parts = [_prepare(arg, where) for arg in args]
    if _is_unchanged(parts, args):
        return annotation, None
    wraps = [(get_origin(arg), wrap) for arg, (_, wrap) in zip(args, parts, strict=True) if wrap is not None]

    def wrap_one(value: Any) -> Any:
        for origin, wrap in wraps:
            if origin is None or not isinstance(origin, type) or isinstance(value, origin):
                return wrap(value)
        return value

    return Union[tuple(kind for kind, _ in parts)], wrap_one  # noqa: UP007  made at run time


def _wrap_collection(origin: type, args: tuple[Any, ...], wraps: list[Wrap]) -> Wrap:
    if issubclass(origin, collections.abc.Mapping):
        wrap_value = wraps[1]
        return lambda value: (
            {k: wrap_value(v) for k, v in value.items()}
            if isinstance(value, collections.abc.Mapping)
            else value
        )
    if issubclass(origin, tuple) and (len(args) != 2 or args[1] is not ...):
        return lambda value: (
            [wrap(v) for wrap, v in zip(wraps, value, strict=True)]
            if isinstance(value, tuple | list) and len(value) == len(wraps)
            else value
        )
    wrap_item = wraps[0]
    if issubclass(origin, collections.abc.Set):
        return lambda value: (
            _sort({wrap_item(v) for v in value}) if isinstance(value, collections.abc.Set) else value
        )
    return lambda value: (
        [wrap_item(v) for v in value]
        if isinstance(value, collections.abc.Collection) and not isinstance(value, str)
        else value
    )


def _as_is(value: Any) -> Any:
    return value


def _sort(value: Any) -> Any:
    """Return the members of a set in the order of their JSON. A set has no order of its own, and every process must
    write the same."""
    if not isinstance(value, collections.abc.Set):
        return value
    return sorted(value, key=_json)


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=enc_hook, order="deterministic")


ORDERED = (int, float, str, bytes, dt.date, dt.timedelta, decimal.Decimal, uuid.UUID)


def _is_sortable(kind: Any) -> bool:
    """True if an author's class defines how its instances are sorted."""
    return isinstance(kind, type) and "__lt__" in {name for each in kind.__mro__[:-1] for name in vars(each)}


def _has_order(kind: Any) -> bool:
    """True if any two values of the type can be sorted."""
    return isinstance(kind, type) and issubclass(kind, ORDERED)


def is_record(kind: Any) -> bool:
    """True if the JSON of this type is an object that does not say which type it is."""
    if not isinstance(kind, type):
        kind = get_origin(kind)
        if not isinstance(kind, type):
            return False
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_config__.tag is None
    return (
        dataclasses.is_dataclass(kind)
        or hasattr(kind, "__attrs_attrs__")
        or typing.is_typeddict(kind)
        or is_pydantic(kind)
    )


def _nodes(kind: Any, where: str) -> Iterator[described.Type]:
    """Yield every type that occurs in this one. Refuse a type that cannot be stored."""
    try:
        todo: list[Any] = [described.type_info(kind)]
        msgspec.json.Decoder(kind)
    except (TypeError, NameError) as wrong:
        _refuse(
            where,
            kind,
            f"{wrong}. Use a dataclass for it, or msgspec.Struct with tag=True for each type of a union",
        )
    seen: set[Any] = set()
    while todo:
        node = todo.pop()
        if isinstance(node, tuple):
            todo += node
        if not isinstance(node, described.Type | described.Field):
            continue
        owner = getattr(node, "cls", None)
        if owner is not None:
            if owner in seen:
                continue
            seen.add(owner)
        if isinstance(node, described.Type):
            if isinstance(node, described.CustomType) and not _is_custom(node.cls):
                _refuse(where, node.cls, "make it a dataclass, or store its parts")
            yield node
        if owner is not None and isinstance(owner, type):
            for hint in hints_of(owner).values():
                _refuse_unordered(where, owner, hint)
        todo += [
            getattr(node, name)
            for name in node.__struct_fields__
            if name not in ("cls", "default", "default_factory")
        ]


def _refuse_unordered(where: str, owner: type, hint: Any) -> None:
    """Refuse a set in a field of an author's class, if its members cannot be sorted. msgspec writes such a set by
    itself, and must be able to sort it."""
    origin, args = get_origin(hint), get_args(hint)
    is_set = isinstance(origin, type) and issubclass(origin, collections.abc.Set)
    if is_set and not is_pydantic(owner) and not _has_order(args[0]) and not _is_sortable(args[0]):
        _refuse(
            where,
            hint,
            f"in {owner.__name__} its members cannot be sorted: make it a list there, or a tuple",
        )
    for arg in args:
        if arg is not ...:
            _refuse_unordered(where, owner, arg)


def _is_custom(kind: type) -> bool:
    return issubclass(kind, Variant | PurePath) or is_pydantic(kind)


def _refuse(where: str, kind: Any, why: str) -> NoReturn:
    shown = kind.__qualname__ if isinstance(kind, type) else str(kind)
    raise DefinitionError(f"{where}: values of type {shown} cannot be stored: {why}")

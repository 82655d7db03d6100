"""Types: which ones can be stored, and how those are that msgspec does not know by itself.

msgspec refuses a union of several dataclass-like types, because their JSON does not tell them apart. Where one stands in
an annotation, at any depth, it is replaced by a `Variant`, and its values are written as `{"$type": "Name", …}`. Inside the
fields of an author's own class it cannot be replaced: that is a DefinitionError with the way out.
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
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias, Union, cast, get_args, get_origin

import msgspec
from msgspec import inspect as described

from holdfast.codec.plain import Plain, hints_of, plain_of
from holdfast.errors import DefinitionError

TAG = "$type"
Wrap: TypeAlias = Callable[[Any], Any]


class Form(NamedTuple):
    """An annotation, ready for msgspec."""

    type: Any
    wrap: Wrap | None
    """Marks the values of unions that need a tag, before they are written."""
    order: Literal["deterministic"] | None
    """Sets have no order of their own: theirs is fixed, or the digest of equal inputs would differ."""
    holds_floats: bool
    """NaN and infinity may be in it: msgspec would write them as null."""
    plain: Plain | None
    """Which of its values are certainly kept as they are, and need not be read again."""
    unclear: bool
    """`==` says too little of whether its values came back as they were."""
    loose: bool
    """Somewhere no more than an interface is asked for (Sequence, Mapping): a list or dict comes back."""
    has_defaults: bool
    """Dataclasses with defaults may be in it: of what it reads, msgspec would not write those that were not given."""


class _Standing(type):
    def __instancecheck__(cls, value: object) -> bool:
        """msgspec looks whether what `dec_hook` made is of the type it asked for: it is of what that type stands for."""
        return True


class Variant(metaclass=_Standing):
    """Stands for one union of several dataclass-like types. A subclass is made for each."""

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
    """A value of a `Variant`, on its way to JSON."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def enc_hook(value: Any) -> Any:
    """What msgspec cannot write by itself."""
    if isinstance(value, Tagged):
        fields = msgspec.to_builtins(value.value, enc_hook=enc_hook)
        return {TAG: type(value.value).__name__, **fields}
    if is_pydantic(type(value)):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    if isinstance(value, PurePath):
        return str(value)
    if value is None or isinstance(value, tuple | bool | frozenset):
        raise TypeError(
            f"a {type(value).__qualname__} cannot be the key of a dict that is stored: use text or a number"
        )
    raise TypeError(
        f"a {type(value).__qualname__} cannot be stored: make it a dataclass, or pass plain values"
    )


def dec_hook(kind: type, value: Any) -> Any:
    """What msgspec cannot read by itself."""
    if issubclass(kind, Variant):
        try:
            return kind.read(value)
        except msgspec.ValidationError as wrong:
            raise ValueError(
                str(wrong)
            ) from None  # so that msgspec adds the place of the union to the place in it
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
    """The form of an annotation, or a DefinitionError that says what to do."""
    kind, wrap = _prepare(annotation, where)
    ordered = floats = unclear = defaults = False
    loose = _asks_little(annotation)
    for node in _nodes(kind, where):
        defaults |= isinstance(node, described.CustomType) or (
            isinstance(node, described.DataclassType) and not all(each.required for each in node.fields)
        )
        ordered |= isinstance(node, described.SetType | described.FrozenSetType)
        floats |= isinstance(node, described.FloatType | described.AnyType | described.CustomType)
        unclear |= isinstance(node, UNCLEAR)
        owner = getattr(node, "cls", None)
        if owner is not None:
            unclear = unclear or not _compares_all(owner)
            loose = loose or any(map(_asks_little, hints_of(owner).values()))
    order: Literal["deterministic"] | None = "deterministic" if ordered else None
    return Form(kind, wrap, order, floats, plain_of(kind), unclear, loose, defaults)


UNCLEAR = (described.AnyType, described.DateTimeType, described.TimeType, described.NamedTupleType)
"""Equal is not the same: what stands under Any may come back as its plain cousin, a `fold` is not compared, and a named tuple
equals any other of the same values."""


def _asks_little(annotation: Any) -> bool:
    """Whether somewhere in an annotation no more than an interface is asked for."""
    origin = get_origin(annotation) or annotation
    if isinstance(origin, type) and origin.__module__ == "collections.abc":
        return True
    return any(_asks_little(arg) for arg in get_args(annotation) if arg is not ...)


def _compares_all(kind: type) -> bool:
    """Whether two instances are equal only if all their fields are: not if the author says what equal means."""
    code = getattr(kind.__eq__, "__code__", None)
    if code is not None and not code.co_filename.startswith("<") and not is_pydantic(kind):
        return False  # what a decorator made stands in no file
    if dataclasses.is_dataclass(kind):
        return all(field.compare for field in dataclasses.fields(kind))
    return all(attribute.eq for attribute in getattr(kind, "__attrs_attrs__", ()))


def complete(value: Any) -> None:
    """Give dataclasses in a value that was read those defaults that msgspec left to their class: it writes only what the
    instance has, so a default would be recorded of a value that an author made, and not of one that was read."""
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
                own.clear()  # in the order of the fields, in which it is written
                own.update({field.name: given.get(field.name, field.default) for field in fields} | given)
            todo += [getattr(one, field.name) for field in fields]


def _prepare(annotation: Any, where: str) -> tuple[Any, Wrap | None]:
    """The annotation with its unions replaced, and how to mark its values."""
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
    """Whether nothing was replaced, and no value needs a mark."""
    return all(kind is arg and wrap is None for (kind, wrap), arg in zip(parts, args, strict=True))


def _prepare_union(annotation: Any, args: tuple[Any, ...], where: str) -> tuple[Any, Wrap | None]:
    tagged = [arg for arg in args if is_record(arg)]
    custom = [
        arg for arg in args if is_pydantic(arg) or (isinstance(arg, type) and issubclass(arg, PurePath))
    ]
    beside = [arg for arg in args if arg is not types.NoneType]
    if len(tagged) > 1 or (custom and len(beside) > 1):
        if [arg for arg in custom if arg not in tagged]:
            _refuse(where, annotation, "a Path can only be joined with None: take str instead")
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
    """The members of a set in the order of their JSON: they have none of their own, and every process must write the same."""
    if not isinstance(value, collections.abc.Set):
        return value
    return sorted(value, key=_json)


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=enc_hook, order="deterministic")


ORDERED = (int, float, str, bytes, dt.date, dt.timedelta, decimal.Decimal, uuid.UUID)


def _is_sortable(kind: Any) -> bool:
    """Whether an author's class says how its instances are sorted."""
    return isinstance(kind, type) and "__lt__" in {name for each in kind.__mro__[:-1] for name in vars(each)}


def _has_order(kind: Any) -> bool:
    """Whether any two values of a type can be sorted."""
    return isinstance(kind, type) and issubclass(kind, ORDERED)


def is_record(kind: Any) -> bool:
    """A type whose JSON is an object that does not say which type it is."""
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
    """Every type that occurs in this one. Refuses those that cannot be stored."""
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
    """In a field of an author's class a set is written by msgspec, which must be able to sort it."""
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

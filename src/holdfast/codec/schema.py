"""Describes types by JSON Schemas and checks values by them, where a process has a value and not the code that declares
its type.

The checker knows the vocabulary that msgspec writes. It refuses only what would also be refused when the value is read
by its type: a keyword it does not know, or a type that no schema describes, accepts anything.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import operator
import re
import shlex
import uuid
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect as described

from holdfast.codec.forms import TAG, Variant, is_pydantic
from holdfast.errors import InvalidInput

Schema: TypeAlias = dict[str, Any]

ANYTHING: Schema = {}
TYPE_NAMES = {
    "integer": "int",
    "number": "float",
    "string": "str",
    "boolean": "bool",
    "null": "null",
    "array": "array",
    "object": "object",
}
"""What msgspec's errors call the types of JSON."""
KINDS: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
FORMATS: dict[str, tuple[Any, str]] = {
    "date-time": (dt.datetime, "2026-01-01T00:00:00Z"),
    "date": (dt.date, "2026-01-01"),
    "time": (dt.time, "00:00:00Z"),
    "partial-time": (dt.time, "00:00:00"),
    "duration": (dt.timedelta, "PT0S"),
    "uuid": (uuid.UUID, "00000000-0000-0000-0000-000000000000"),
    "decimal": (decimal.Decimal, "0"),
    "base64": (bytes, ""),
}
"""For each format of a text, the type that reads it, and an example."""
BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "minimum": (">=", operator.ge),
    "exclusiveMinimum": (">", operator.gt),
    "maximum": ("<=", operator.le),
    "exclusiveMaximum": ("<", operator.lt),
}
SHOWN_MAX = 5
"""How many values of an enumeration an error lists."""
VALUE_MAX_CHARS = 60
"""How much of a value an error shows."""


def schema_of(kind: Any) -> Schema:
    """Return the schema of a type that `form_of` prepared. A type that cannot be described accepts anything."""
    custom = _CustomTypes()
    try:
        schema = msgspec.json.schema(kind, schema_hook=custom.hook)
        defs = schema.setdefault("$defs", {})
        for name, part in custom.defs.items():
            if defs.setdefault(name, part) != part:
                return ANYTHING  # two classes have one name, and a reference would mean both
        _add_time_formats(described.type_info(kind), schema, defs, set())
        json.dumps(schema, allow_nan=False)
    except Exception:  # noqa: BLE001  a default that is no JSON, or an author's class, is no reason to refuse the type
        return ANYTHING
    for part in _parts(schema):
        part.pop("uniqueItems", None)  # a set is read from any array
        if part.get("format") == "decimal":
            part["type"] = ["string", "number"]
        if part.get("contentEncoding") == "base64":
            part["format"] = "base64"
    if not defs:
        del schema["$defs"]
    return schema


class _CustomTypes:
    """Describes the types that msgspec does not know, and collects the definitions that they refer to."""

    def __init__(self) -> None:
        self.defs: Schema = {}

    def hook(self, kind: type) -> Schema:
        if issubclass(kind, Variant):
            tagged = self._tagged(kind)
            others = [name for name in TYPE_NAMES if name != "object"]
            return tagged if kind.others is None else {"anyOf": [tagged, {"type": others}]}
        if issubclass(kind, PurePath):
            return {"type": "string"}
        if is_pydantic(kind):
            return _of_model(kind)
        raise NotImplementedError

    def _tagged(self, kind: type[Variant]) -> Schema:
        """Return a schema like the one by which msgspec describes a union of structs with tags."""
        mapping = {}
        for tag, member in kind.members.items():
            (schema,), defs = msgspec.json.schema_components([member], schema_hook=self.hook)
            for name, part in defs.items():
                if self.defs.setdefault(name, part) != part:
                    raise TypeError(f"two classes are called {name}")
            body = resolved(schema, defs)
            properties = {TAG: {"enum": [tag]}, **body.get("properties", {})}
            required = [TAG, *body.get("required", ())]
            name = f"{kind.__name__}.{tag}"
            self.defs[name] = {**body, "type": "object", "properties": properties, "required": required}
            mapping[tag] = f"#/$defs/{name}"
        options = [{"$ref": place} for place in mapping.values()]
        return {"anyOf": options, "discriminator": {"propertyName": TAG, "mapping": mapping}}


def _of_model(kind: Any) -> Schema:
    """Return a schema that accepts anything, with an example if one can be made up. A pydantic model reads more than
    its own schema says, such as "12" as a number, so that schema only serves to make up the example."""
    schema: Schema = {"title": kind.__name__}
    try:
        made = example(kind.model_json_schema())
        kind.model_validate(made)
    except Exception:  # noqa: BLE001  an author's validator, or a schema that has more to it
        return schema
    return schema | {"examples": [made]}


def _add_time_formats(info: Any, schema: Schema, defs: Schema, seen: set[str]) -> None:
    """Say in the schema which texts are times. msgspec does not, where a time may be with or without a zone."""
    while isinstance(info, described.Metadata):
        info = info.type
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name in seen:
            return
        seen.add(name)
        schema = defs[name]
    inner: list[tuple[Any, Any]] = []
    if isinstance(info, described.DateTimeType | described.TimeType):
        schema.setdefault("format", "date-time" if isinstance(info, described.DateTimeType) else "time")
    elif isinstance(info, described.CollectionType):
        inner = [(info.item_type, schema.get("items"))]
    elif isinstance(info, described.TupleType):
        inner = list(zip(info.item_types, schema.get("prefixItems", ()), strict=False))
    elif isinstance(info, described.DictType):
        inner = [(info.value_type, schema.get("additionalProperties"))]
    elif isinstance(info, described.UnionType):
        apart = (described.StructType, described.NoneType)
        inner = list(
            zip([one for one in info.types if not isinstance(one, apart)], schema["anyOf"], strict=False)
        )
    elif hasattr(info, "fields"):
        properties = schema.get("properties", {})
        inner = [(one.type, properties.get(one.encode_name)) for one in info.fields]
        if "prefixItems" in schema:
            inner = list(zip([one.type for one in info.fields], schema["prefixItems"], strict=False))
    for one, part in inner:
        if isinstance(part, dict):
            _add_time_formats(one, part, defs, seen)


def _parts(schema: Any) -> Iterator[Schema]:
    """Yield a schema and every schema inside it."""
    todo = [schema]
    while todo:
        part = todo.pop()
        if isinstance(part, list):
            todo += part
        elif isinstance(part, dict):
            yield part
            for keyword, inner in part.items():
                if keyword in ("properties", "$defs"):
                    todo += inner.values()
                elif keyword in ("items", "prefixItems", "anyOf", "additionalProperties", "propertyNames"):
                    todo.append(inner)


def check(value: Any, schema: Schema, what: str) -> None:
    """Raise InvalidInput unless the value, parsed from JSON, fits the schema. The message is `what: place: problem`,
    like that of a Payload."""
    try:
        wrong = next(_problems(value, schema, schema.get("$defs", {}), ""), None)
    except RecursionError:
        raise InvalidInput(f"{what}: the value is nested too deeply") from None
    if wrong is not None:
        place, problem = wrong
        raise InvalidInput(f"{what}: {place.lstrip('.')}: {problem}" if place else f"{what}: {problem}")


Problems: TypeAlias = Iterator[tuple[str, str]]
"""Pairs of a place and what is wrong there."""


def _problems(value: Any, schema: Any, defs: Schema, place: str) -> Problems:
    if isinstance(schema, bool):
        if not schema:
            yield place, "nothing is expected here"
        return
    if "$ref" in schema:
        yield from _problems(value, defs.get(schema["$ref"].rpartition("/")[2], ANYTHING), defs, place)
    if "anyOf" in schema:
        yield from _of_any(value, schema, defs, place)
    if "enum" in schema and not any(type(one) is type(value) and one == value for one in schema["enum"]):
        some = [json.dumps(one, ensure_ascii=False) for one in schema["enum"][:SHOWN_MAX]]
        more = ", …" if len(schema["enum"]) > SHOWN_MAX else ""
        yield (
            place,
            f"expected {' or '.join(some)}{more}, got {json.dumps(value, ensure_ascii=False)[:VALUE_MAX_CHARS]}",
        )
    kinds = _kinds(schema)
    if kinds is not None and not _is_one(value, kinds):
        yield (
            place,
            f"expected `{' | '.join(TYPE_NAMES.get(kind, kind) for kind in kinds)}`, got `{_kind(value)}`",
        )
    elif isinstance(value, str):
        yield from _of_text(value, schema, place)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _of_number(value, schema, place)
    elif isinstance(value, list):
        yield from _of_array(value, schema, defs, place)
    elif isinstance(value, dict):
        yield from _of_object(value, schema, defs, place)


def _kinds(schema: Schema) -> list[str] | None:
    kinds = schema.get("type")
    return [kinds] if isinstance(kinds, str) else kinds


def _kind(value: Any) -> str:
    return "null" if value is None else TYPE_NAMES[KINDS[type(value)]]


def _is_one(value: Any, kinds: list[str]) -> bool:
    """True if the value is of one of these types, as Python parses JSON: 1.0 is no integer and True is no number, but
    an integer is a number."""
    if value is None:
        return "null" in kinds
    kind = KINDS[type(value)]
    return kind in kinds or (kind == "integer" and "number" in kinds)


def _of_any(value: Any, schema: Schema, defs: Schema, place: str) -> Problems:
    options, tag = schema["anyOf"], schema.get("discriminator")
    if tag is not None and isinstance(value, dict):
        name = value.get(tag["propertyName"])
        if not isinstance(name, str) or name not in tag["mapping"]:
            names = " or ".join(f"`{name}`" for name in tag["mapping"])
            yield place, f"expected an object whose `{tag['propertyName']}` is {names}"
            return
        options = [{"$ref": tag["mapping"][name]}]
    tried = [next(_problems(value, option, defs, place), None) for option in options]
    if None not in tried:
        # Probably the option was meant whose problem is furthest inside.
        found = max((one for one in tried if one is not None), key=lambda one: len(one[0]))
        kinds = dict.fromkeys(kind for option in options for kind in _kinds(resolved(option, defs)) or ())
        if found[0] != place or len(options) == 1 or _is_one(value, list(kinds)) or not kinds:
            yield found
        else:
            yield (
                place,
                f"expected `{' | '.join(TYPE_NAMES.get(kind, kind) for kind in kinds)}`, got `{_kind(value)}`",
            )


def resolved(schema: Schema, defs: Schema) -> Schema:
    """Return the schema that a reference leads to."""
    for _ in range(len(defs)):
        if "$ref" not in schema:
            break
        schema = defs.get(schema["$ref"].rpartition("/")[2], ANYTHING)
    return schema


def _of_text(value: str, schema: Schema, place: str) -> Problems:
    if len(value) < schema.get("minLength", 0):
        yield place, f"expected `str` of length >= {schema['minLength']}"
    if len(value) > schema.get("maxLength", len(value)):
        yield place, f"expected `str` of length <= {schema['maxLength']}"
    if "pattern" in schema and re.search(schema["pattern"], value) is None:
        yield place, f"expected `str` matching regex {schema['pattern']!r}"
    if schema.get("format") in FORMATS:
        try:
            msgspec.convert(value, FORMATS[schema["format"]][0])
        except msgspec.ValidationError as wrong:
            yield place, f"{str(wrong)[:1].lower()}{str(wrong)[1:]}"


def _of_number(value: float, schema: Schema, place: str) -> Problems:
    kind = _kind(value)
    for keyword, (sign, is_true) in BOUNDS.items():
        if keyword in schema and not is_true(value, schema[keyword]):
            yield place, f"expected `{kind}` {sign} {schema[keyword]}"
    if "multipleOf" in schema and value % schema["multipleOf"]:
        yield place, f"expected `{kind}` that's a multiple of {schema['multipleOf']}"


def _of_array(value: list[Any], schema: Schema, defs: Schema, place: str) -> Problems:
    if len(value) < schema.get("minItems", 0):
        yield place, f"expected `array` of length >= {schema['minItems']}, got {len(value)}"
    if len(value) > schema.get("maxItems", len(value)):
        yield place, f"expected `array` of length <= {schema['maxItems']}, got {len(value)}"
    first = schema.get("prefixItems", [])
    for i, item in enumerate(value):
        inner = first[i] if i < len(first) else schema.get("items", True)
        yield from _problems(item, inner, defs, f"{place}[{i}]")


def _of_object(value: dict[str, Any], schema: Schema, defs: Schema, place: str) -> Problems:
    for name in schema.get("required", ()):
        # A property with a single allowed value is a tag. Only a union needs it, and `_of_any` has checked it there.
        is_tag = len(schema["properties"].get(name, {}).get("enum", ())) == 1
        if name not in value and not is_tag:
            yield place, f"missing `{name}`"
    if len(value) < schema.get("minProperties", 0):
        yield place, f"expected `object` of length >= {schema['minProperties']}"
    if len(value) > schema.get("maxProperties", len(value)):
        yield place, f"expected `object` of length <= {schema['maxProperties']}"
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, item in value.items():
        if "propertyNames" in schema:
            yield from _problems(name, schema["propertyNames"], defs, f"{place}.{name}")
        if name not in known and others is False:
            yield place, f"object contains unknown field `{name}`"
        else:
            yield from _problems(item, known.get(name, others), defs, f"{place}.{name}")


def members(schema: Schema) -> list[str] | None:
    """Return the names that an object of this schema may have. None if it may have any."""
    found = resolved(schema, schema.get("$defs", {}))
    if "properties" not in found or found.get("additionalProperties"):
        return None
    return list(found["properties"])


def filled(value: Any, schema: Any) -> Any:
    """Return a value that fits as its own code would write it: members in the declared order, and defaults filled in. So
    the same call has the same digest, whoever checked it."""
    return _filled(value, schema, schema.get("$defs", {}) if isinstance(schema, dict) else {})


def _filled(value: Any, schema: Any, defs: Schema) -> Any:
    if not isinstance(schema, dict):
        return value
    schema = _meant(value, resolved(schema, defs), defs)
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        found = {}
        for name, inner in known.items():
            if name in value:
                found[name] = _filled(value[name], inner, defs)
            elif isinstance(inner, dict) and "default" in inner:
                found[name] = inner["default"]
        return found | {
            name: _filled(item, others, defs) for name, item in value.items() if name not in known
        }
    if isinstance(value, list):
        first, rest = schema.get("prefixItems", []), schema.get("items", True)
        return [_filled(item, first[i] if i < len(first) else rest, defs) for i, item in enumerate(value)]
    if type(value) is int and _kinds(schema) == ["number"]:
        return float(value)
    return value


def _meant(value: Any, schema: Schema, defs: Schema) -> Schema:
    """Return the one of several alternatives that a value fits."""
    while "anyOf" in schema:
        options = schema["anyOf"]
        fitting = [
            option
            for option in options
            if isinstance(option, dict) and next(_problems(value, option, defs, ""), None) is None
        ]
        if not fitting:
            return schema
        schema = resolved(fitting[0], defs)
    return schema


def example(schema: Schema) -> Any:
    """Make up a value that fits, as small as possible. It is None where nothing better is known."""
    return _example(schema, schema.get("$defs", {}), 0)


def _example(schema: Any, defs: Schema, depth: int) -> Any:
    if not isinstance(schema, dict) or depth > 20:
        return None
    for keyword in ("examples", "enum"):
        if schema.get(keyword):
            return schema[keyword][0]
    if "default" in schema:
        return schema["default"]
    if "$ref" in schema:
        return _example(resolved(schema, defs), defs, depth + 1)
    if "anyOf" in schema:
        options = sorted(schema["anyOf"], key=lambda option: _kinds(option) == ["null"])
        return _example(options[0], defs, depth + 1)
    kind = (_kinds(schema) or ["null"])[0]
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: _example(properties.get(name), defs, depth + 1) for name in schema.get("required", ())}
    if kind == "array":
        first = schema.get("prefixItems", [])[: schema.get("minItems", 0)]
        more = [schema.get("items", ANYTHING)] * (schema.get("minItems", 0) - len(first))
        return [_example(item, defs, depth + 1) for item in [*first, *more]]
    if kind == "string":
        known = FORMATS.get(schema.get("format", ""))
        return (known[1] if known is not None else "").ljust(schema.get("minLength", 0), "A")
    if kind in ("integer", "number"):
        return _example_number(schema)
    return False if kind == "boolean" else None


def _example_number(schema: Schema) -> Any:
    least = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
    most = schema.get("maximum", schema.get("exclusiveMaximum", 1) - 1)
    step = schema.get("multipleOf", 1)
    if least > 0:
        return -(-least // step) * step
    return most // step * step if most < 0 else 0


def data_option(schema: Schema) -> str:
    """Return the option that gives a command a fitting value, ` --data '{"cents": 0}'`, or nothing where null fits."""
    made = example(schema)
    try:
        check(made, schema, "")
    except InvalidInput:
        return " --data JSON"  # no value can be made up, for example for a text with a pattern
    return "" if made is None else f" --data {shlex.quote(json.dumps(made, ensure_ascii=False))}"

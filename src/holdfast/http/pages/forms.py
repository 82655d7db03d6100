"""Forms from JSON Schemas, and values from what was typed into them. Pure.

A text, a number, a time, a choice, yes or no: each is a field. So is a list of texts or numbers, one in each line. An object is a
group of fields, and a union of objects a choice with a group for each. Anything else is a field for JSON that shows an example.
What a value must be is not decided here: the API checks it by the same schema. A field's name is its place in what is sent, so a
refusal finds its field.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.codec.schema import example
from holdfast.http.pages.deeds import Field
from holdfast.http.reader import pointer
from holdfast.http.refusals import Refusal

INPUT, VALUE = "/input", "value"
DEPTHS = (4, 3, 2, 1)
"""How many objects inside one another become groups: as many as leave no more than `FIELDS_MAX` fields."""
FIELDS_MAX = 60
NOTHING = object()
"""What an empty field stands for: the default holds."""
BOUNDS = (
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "more than {}"),
    ("maximum", "at most {}"),
    ("exclusiveMaximum", "less than {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {} of them"),
    ("maxItems", "at most {} of them"),
    ("pattern", "of the form {}"),
)
FORMATS = {
    "date-time": "such as 2026-11-20T14:00Z",
    "time": "such as 14:00Z",
    "partial-time": "such as 14:00",
    "duration": "such as PT1H30M",
    "base64": "in base64",
}
KINDS = {
    "integer": "a number",
    "number": "a number",
    "string": "a text in quotes",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}
"""What JSON may be, in words."""
PLAIN = {"string": "text", "integer": "number", "number": "number"}


def resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema without a reference at its top. A reference that leads nowhere is a schema of anything."""
    for _ in range(10):
        if not isinstance(schema, Mapping):
            return {}
        ref = schema.get("$ref")
        if not isinstance(ref, str):
            return schema
        found = root.get("$defs", {}).get(ref.rpartition("/")[2], {})
        schema = {**found, **{key: value for key, value in schema.items() if key not in {"$ref", "$defs"}}}
    return {}


class Part(NamedTuple):
    """A part of a value, as a form sees it."""

    place: str
    label: str
    schema: Mapping[str, Any]
    """Without references, and without null."""
    root: Mapping[str, Any]
    is_required: bool
    """True if it cannot be left out."""
    depth: int
    """How many objects in it may still become groups."""
    inside: tuple[str, ...] = ()
    """The types around it. One that has itself in it becomes no group again."""

    @property
    def kind(self) -> str:
        """group, union, lines, or the kind of a field."""
        one = self.schema
        if self.choices:
            return "choice"
        if self.depth and isinstance(one.get("properties"), Mapping) and one["properties"]:
            return "group"
        if self.depth and self.variants:
            return "union"
        kind = one.get("type")
        if kind == "boolean":
            return "choice"
        if kind in PLAIN:
            return "date" if one.get("format") == "date" else PLAIN[kind]
        if kind == ["string", "number"]:
            return "text"  # a decimal
        if kind == "array" and self.items.get("type") in PLAIN and "enum" not in self.items:
            return "lines"
        return "json"

    @property
    def choices(self) -> dict[str, Any]:
        """What may be chosen, by the words for it."""
        if self.schema.get("type") == "boolean":
            return {"true": True, "false": False}
        found = self.schema.get("enum")
        if not isinstance(found, list) or any(isinstance(one, list | dict) for one in found):
            return {}
        return {one if isinstance(one, str) else json.dumps(one): one for one in found if one is not None}

    @property
    def items(self) -> Mapping[str, Any]:
        return resolved(self.schema.get("items"), self.root)

    @property
    def tag(self) -> str:
        """The name of the member that says which object of a union it is."""
        return str(self.schema["discriminator"]["propertyName"])

    @property
    def variants(self) -> dict[str, Part]:
        """The objects of a union, by their tags."""
        how = self.schema.get("discriminator")
        if not isinstance(how, Mapping) or not isinstance(how.get("mapping"), Mapping):
            return {}
        return {
            tag: self._replace(
                schema=resolved({"$ref": ref}, self.root), label=tag, place=self.place + pointer(tag)
            )
            for tag, ref in how["mapping"].items()
        }

    @property
    def members(self) -> list[Part]:
        required, inside = set(self.schema.get("required", ())), (*self.inside, str(self.schema.get("title")))
        return [
            part(
                self.place + pointer(name),
                name,
                one,
                self.root,
                is_required=name in required,
                depth=self.depth - 1,
                inside=inside,
            )
            for name, one in self.schema["properties"].items()
        ]

    @property
    def hint(self) -> str:
        one = self.schema
        hints = (
            [str(one["description"])]
            if one.get("description") and self.kind not in {"group", "union"}
            else []
        )
        if self.kind == "lines":
            hints.append("one in each line")
        elif self.kind == "json":
            kinds = [resolved(each, self.root).get("type") for each in one.get("anyOf", [one])]
            names = dict.fromkeys(KINDS[each] for each in kinds if isinstance(each, str) and each in KINDS)
            hints.append(f"JSON: {' or '.join(names)}" if names else "JSON")
        elif one.get("format") in FORMATS:
            hints.append(FORMATS[one["format"]])
        hints += [words.format(one[key]) for key, words in BOUNDS if key in one]
        if (default := one.get("default")) not in (None, ""):
            said = default if isinstance(default, str) else json.dumps(default, ensure_ascii=False)
            hints.append(f"empty: {said}")
        elif not self.is_required:
            hints.append("may be empty")
        return " · ".join(hints)


def part(
    place: str,
    label: str,
    schema: Any,
    root: Mapping[str, Any],
    *,
    is_required: bool,
    depth: int,
    inside: tuple[str, ...] = (),
) -> Part:
    one = resolved(schema, root)
    kinds = [resolved(each, root) for each in one.get("anyOf", ())]
    plain = [each for each in kinds if each.get("type") != "null"]
    if len(plain) < len(kinds):
        is_required = False
        if len(plain) == 1:
            one = {**plain[0], **{key: value for key, value in one.items() if key != "anyOf"}}
    if one.get("title") in inside:
        depth = 0
    return Part(place, label, one, root, is_required and "default" not in one, depth, inside)


def fields(schema: Any, place: str = INPUT) -> tuple[Field, ...]:
    """Return the fields for the arguments of a workflow. Without properties it is one field for all of them."""
    top = _top(schema, place)
    if top is None:
        return (Field("input", "Input", "json", "arguments by name", "{}"),)
    return tuple(field for one in top.members for field in _drawn(one))


def _top(schema: Any, place: str) -> Part | None:
    root = schema if isinstance(schema, Mapping) else {}
    one = resolved(root, root)
    if not isinstance(one.get("properties"), Mapping):
        return None
    tops = [Part(place, "", one, root, is_required=True, depth=depth) for depth in DEPTHS]
    few = (top for top in tops if sum(1 for each in top.members for _ in _drawn(each)) <= FIELDS_MAX)
    return next(few, tops[-1])


def _drawn(one: Part) -> Iterator[Field]:
    """Draw a part as fields. A group begins with a mark that has its name, and ends with one."""
    made = Field(one.place, one.label, one.kind, one.hint, is_required=one.is_required)
    if one.kind == "group":
        yield made
        for each in one.members:
            for field in _drawn(each):
                yield field if one.is_required else field._replace(is_required=False)
        yield Field("", "", "end")
    elif one.kind == "union":
        yield made
        yield Field(one.place, one.tag, "choice", choices=("", *one.variants), is_required=one.is_required)
        for tag, variant in one.variants.items():
            yield Field("", f"if it is {tag}", "group")
            for each in variant.members:
                if each.label != one.tag:
                    yield from (field._replace(is_required=False) for field in _drawn(each))
            yield Field("", "", "end")
        yield Field("", "", "end")
    elif one.kind == "choice":
        # Yes or no is chosen, too: a box that nobody ticked would say no.
        empty = () if one.is_required and one.schema.get("type") != "boolean" else ("",)
        yield made._replace(choices=(*empty, *one.choices))
    elif one.kind == "json":
        yield made._replace(is_required=False, example=_example(one))
    elif one.kind == "lines":
        yield made._replace(is_required=False)
    else:
        yield made


def _example(one: Part) -> str:
    """Return a value that would fit. Of a list it has one item, and of an object that may have any names one of them."""
    defs = {"$defs": one.root.get("$defs", {})}
    if one.schema.get("type") == "array":
        made: Any = [example({**one.schema.get("items", {}), **defs})]
    elif isinstance(others := one.schema.get("additionalProperties"), Mapping):
        made = {"name": example({**others, **defs})}
    else:
        made = example({**{key: value for key, value in one.schema.items() if key != "default"}, **defs})
    return "" if made in (None, [None]) else json.dumps(made, ensure_ascii=False)


def values(schema: Any, given: Mapping[str, list[str]], place: str = INPUT) -> Any:
    """Return the arguments that a form stands for. An empty field is left out, so that its default holds."""
    top = _top(schema, place)
    if top is None or "input" in given:
        return _json(given.get("input", [""])[0] or "{}", "input")
    return _read(top, given)


def _read(one: Part, given: Mapping[str, list[str]]) -> Any:
    text = given.get(one.place, [""])[0]
    if one.kind == "group":
        found = _members(one.members if one.is_required else _optional(one.members), given)
        return found if found or one.is_required else NOTHING
    if one.kind == "union":
        variant = one.variants.get(text)
        return NOTHING if variant is None else {**_members(_optional(variant.members), given), one.tag: text}
    if one.kind == "lines":
        lines: list[Any] = [line.strip() for line in text.splitlines() if line.strip()]
        if one.items["type"] != "string":
            lines = [_number(line, one.place) for line in lines]
        return lines if lines or one.is_required else NOTHING
    if not text.strip():
        may_be_empty = one.is_required and one.schema.get("type") == "string" and one.place in given
        return text if may_be_empty and one.kind == "text" else NOTHING
    return _scalar(one, text)


def _optional(parts: Sequence[Part]) -> list[Part]:
    """Return parts that a browser does not demand. An empty one is left out, and what misses it says so."""
    return [one._replace(is_required=False) for one in parts]


def _members(parts: Sequence[Part], given: Mapping[str, list[str]]) -> dict[str, Any]:
    return {one.label: value for one in parts if (value := _read(one, given)) is not NOTHING}


def _scalar(one: Part, text: str) -> Any:
    match one.kind:
        case "choice":
            return one.choices.get(text, text)
        case "number":
            return _number(text, one.place)
        case "json":
            return _json(text, one.place)
    return text


def refused(found: Sequence[Field], place: str, said: str) -> tuple[tuple[Field, ...], bool]:
    """Say at its field what is wrong there. Also return whether there is such a field."""
    names = [
        one.name for one in found if one.name and (place == one.name or place.startswith(f"{one.name}/"))
    ]
    name = max(names, key=len, default=None)
    at = next((n for n, one in enumerate(found) if one.name == name), None)
    return tuple(one._replace(wrong=said) if n == at else one for n, one in enumerate(found)), at is not None


def answer_fields(schema: Any) -> tuple[Field, ...]:
    """Return the fields for an answer. Yes or no are two buttons; an object has a field for each of its members."""
    one = _answer(schema)
    if one.schema.get("type") == "boolean":
        return (Field(VALUE, "", "yes"),)
    return fields(schema, one.place) if one.kind == "group" else tuple(_drawn(one))


def answer(schema: Any, given: Mapping[str, list[str]]) -> Any:
    """Return the answer that a form stands for."""
    one = _answer(schema)
    if one.kind == "group":
        return values(schema, given, one.place)
    if one.schema.get("type") == "boolean" and given.get(VALUE, [""])[0] not in one.choices:
        raise Refusal("invalid", "say yes or no", place=VALUE)
    found = _read(one, given)
    return None if found is NOTHING else found


def _answer(schema: Any) -> Part:
    root = schema if isinstance(schema, Mapping) else {}
    one = part(VALUE, "Answer", root, root, is_required=True, depth=DEPTHS[0])
    if one.kind == "group":
        is_whole = isinstance(resolved(root, root).get("properties"), Mapping)
        return one._replace(place=f"/{VALUE}") if is_whole else one._replace(depth=0)
    return one


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise Refusal("malformed", f"this is not JSON: {wrong}", place=place) from None


def _number(text: str, place: str) -> float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise Refusal("invalid", "this is no number", place=place) from None

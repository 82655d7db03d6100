"""Forms from JSON Schemas, and values from what was typed into them. Pure.

A text, a number, a choice, yes or no: each is a field. Anything deeper is a field for JSON. What a value must be is not
decided here: the API checks it by the same schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast.http.pages.deeds import Field
from holdfast.http.refusals import Refusal

BEFORE, VALUE = "input.", "value"
BOUNDS = (
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "more than {}"),
    ("maximum", "at most {}"),
    ("exclusiveMaximum", "less than {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("pattern", "of the form {}"),
)


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


def fields(schema: Any) -> tuple[Field, ...]:
    """Return the fields for the arguments of a workflow. Without properties it is one field for all of them."""
    root = schema if isinstance(schema, Mapping) else {}
    top = resolved(root, root)
    properties = top.get("properties")
    if not isinstance(properties, Mapping):
        return (Field("input", "Input", "json", "arguments by name", "{}"),)
    required = set(top.get("required", ()))
    return tuple(field(name, one, root, is_required=name in required) for name, one in properties.items())


def field(name: str, schema: Any, root: Mapping[str, Any], *, is_required: bool) -> Field:
    one = resolved(schema, root)
    kinds = [resolved(each, root) for each in one.get("anyOf", ())]
    is_optional = any(each.get("type") == "null" for each in kinds)
    plain = [each for each in kinds if each.get("type") != "null"]
    if is_optional and len(plain) == 1:
        one = {**plain[0], **{key: value for key, value in one.items() if key != "anyOf"}}
    hints = [words.format(one[key]) for key, words in BOUNDS if key in one]
    has_default = "default" in one
    if has_default:
        hints.append(f"empty: {json.dumps(one['default'], ensure_ascii=False)}")
    elif not is_required or is_optional:
        hints.append("may be empty")
    made = Field(f"{BEFORE}{name}", name, hint=" · ".join(hints), is_required=is_required and not is_optional)
    if "enum" in one and all(isinstance(each, str) for each in one["enum"]):
        empty = () if made.is_required and not has_default else ("",)
        return made._replace(kind="choice", choices=(*empty, *one["enum"]))
    match one.get("type"):
        case "boolean":
            return made._replace(kind="choice", choices=("", "true", "false"), is_required=False)
        case "integer" | "number":
            return made._replace(kind="number")
        case "string":
            return made
    return made._replace(kind="json", is_required=False)


def values(schema: Any, given: Mapping[str, list[str]]) -> Any:
    """Return the arguments that a form stands for. An empty field is left out, so that its default holds."""
    root = schema if isinstance(schema, Mapping) else {}
    if "input" in given:
        return _json(given["input"][0] or "{}", "input")
    found: dict[str, Any] = {}
    properties = resolved(root, root).get("properties", {})
    for one in fields(schema):
        text = given.get(one.name, [""])[0]
        name = one.name.removeprefix(BEFORE)
        if not text.strip():
            if one.is_required and one.kind == "text":
                found[name] = text
            continue
        kind = resolved(properties.get(name), root).get("type")
        if one.kind == "json":
            found[name] = _json(text, one.name)
        elif one.kind == "number":
            found[name] = _number(text, one.name)
        elif kind == "boolean" or (one.kind == "choice" and one.choices == ("", "true", "false")):
            found[name] = text == "true"
        else:
            found[name] = text
    return found


def answer_fields(schema: Any) -> tuple[Field, ...]:
    """Return the fields for an answer. Yes or no are two buttons; an object has a field for each of its members."""
    root = schema if isinstance(schema, Mapping) else {}
    top = resolved(root, root)
    if top.get("type") == "boolean":
        return (Field(VALUE, "", "yes"),)
    if isinstance(top.get("properties"), Mapping):
        return fields(schema)
    return (field("", top, root, is_required=True)._replace(name=VALUE, label="Answer"),)


def answer(schema: Any, given: Mapping[str, list[str]]) -> Any:
    """Return the answer that a form stands for."""
    (first, *_) = found = answer_fields(schema)
    if len(found) > 1 or first.name != VALUE:
        return values(schema, given)
    text = given.get(VALUE, [""])[0]
    if first.kind == "yes" or first.choices == ("", "true", "false"):
        if text not in {"true", "false"}:
            raise Refusal("invalid", "say yes or no", place=VALUE)
        return text == "true"
    if first.kind == "json":
        return _json(text or "null", VALUE)
    return _number(text, VALUE) if first.kind == "number" else text


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

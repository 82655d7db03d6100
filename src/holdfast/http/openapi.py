"""Describes the table of routes as OpenAPI 3.1. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.access import MAY, STORE_WIDE
from holdfast.http.call import Route
from holdfast.wire.problems import MEDIA_TYPE, Problem
from holdfast.wire.requests import NAME_MAX

REF = "#/components/schemas/{name}"

BINARY = "application/octet-stream"
"""How a body of any media type is described: programs that make clients do not know `*/*`."""


def document(routes: Sequence[Route]) -> dict[str, Any]:
    kinds: set[type] = {Problem}
    for route in routes:
        kinds |= {
            kind
            for kind in (route.takes, route.gives, route.previews)
            if kind is not None and kind is not dict
        }
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    made, components = msgspec.json.schema_components(ordered, ref_template=REF)
    schemas = dict(zip(ordered, made, strict=True))
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.verb.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": "1",
            "description": "Start runs, follow them, steer them. Within /v1, members and routes are only added.",
        },
        "paths": paths,
        "components": {
            "schemas": _plain(components),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _plain(schema: Any) -> Any:
    """Return schemas without `items: false` beside `prefixItems`: generators of clients do not understand it, and
    `maxItems` says the same."""
    if isinstance(schema, dict):
        return {
            key: _plain(value) for key, value in schema.items() if not (key == "items" and value is False)
        }
    return [_plain(one) for one in schema] if isinstance(schema, list) else schema


def _operation(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": route.name, "summary": route.does}
    found["description"] = who_may(route)
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _path_schema(name)}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    parameters += _query(route)
    if route.act is not None:
        parameters.append(_header("Holdfast-Namespace", "The namespace, for a token that is for several."))
    parameters += [_header(name, "") for name in route.headers]
    if parameters:
        found["parameters"] = parameters
    if route.raw:
        found["requestBody"] = {
            "required": True,
            "content": {
                BINARY if kind == "*/*" else kind: {"schema": _raw_schema(kind)} for kind in route.raw
            },
        }
    elif route.takes is not None:
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas[route.takes]}},
        }
    found["responses"] = {
        str(status): {"description": words, **_content(route, status, schemas)}
        for status, words in route.statuses.items()
    }
    if route.act is None:
        found["security"] = []
    if route.media_type == "text/html":
        found["responses"]["default"] = {
            "description": "a page that says why not",
            "content": {"text/html": {"schema": {"type": "string"}}},
        }
    elif route.act is not None or route.raw:
        found["responses"]["default"] = {
            "description": "a problem",
            "content": {MEDIA_TYPE: {"schema": schemas[Problem]}},
        }
    return found


def _raw_schema(media_type: str) -> dict[str, Any]:
    """Return what is known about a body that the server does not read by a struct."""
    if media_type == "*/*":
        return {"type": "string", "format": "binary"}
    return {"type": "array", "items": {"type": "object"}} if "batch" in media_type else {"type": "object"}


def who_may(route: Route) -> str:
    """Say which roles may ask this."""
    if route.act is None:
        return "Anybody, without a token."
    roles = ", ".join(sorted(MAY[route.act]))
    return f"Roles: {roles}." + (" Needs a token for all namespaces." if route.act in STORE_WIDE else "")


def _content(route: Route, status: int, schemas: dict[Any, Any]) -> dict[str, Any]:
    if status == 304:
        return {}
    if status >= 400:
        return {"content": {MEDIA_TYPE: {"schema": schemas[Problem]}}}
    if route.gives is None:
        return {"content": {route.media_type: {"schema": {"type": "string"}}}}
    schema = {"type": "object"} if route.gives is dict else schemas[route.gives]
    if route.previews is not None and status == 200:
        schema = (
            schemas[route.previews] if 201 in route.statuses else {"anyOf": [schema, schemas[route.previews]]}
        )
    return {"content": {"application/json": {"schema": schema}}}


def _path_schema(name: str) -> dict[str, Any]:
    if name in {"n", "alert"}:
        return {"type": "integer", "minimum": 0, "maximum": 999_999_999}
    return {"type": "string", "minLength": 1}


def _query(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    (schema,), components = msgspec.json.schema_components([route.query], ref_template=REF)
    properties = components[schema["$ref"].rpartition("/")[2]]["properties"]
    return [
        {"name": name, "in": "query", "schema": _without_null(inner)} for name, inner in properties.items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter is there or not. It is never null."""
    kept = {key: value for key, value in schema.items() if key != "default" or value is not None}
    if "anyOf" in kept:
        (only,) = [option for option in kept.pop("anyOf") if option != {"type": "null"}]
        kept |= only
    return kept


def _header(name: str, words: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "description": words,
        "schema": {"type": "string", "minLength": 1, "maxLength": NAME_MAX, "pattern": "^[!-~]+$"},
    }

"""No payload is forgotten when payloads are sealed."""

from __future__ import annotations

import inspect
import typing
from typing import Any

import msgspec
import pytest

from holdfast import model
from holdfast.store import answers, asks, forks, operations, remotes
from holdfast.store.sealed import FIELDS
from holdfast.store.seals import TABLES

PLAIN = {
    "NewToken": "what tokens are compared by",
    "TokenRow": "the same",
    "NewSchedule": "arguments that stand in code, or that an operator wrote beside it",
    "ScheduleRow": "the same",
    "SessionRow": "what the session's token is compared by",
    "NewHook": "with what a signature is made: servers without keys check it",
    "HookRow": "the same",
    "RemoteNodeRow": "what the secrets of claims are made from",
    "ExistingRun": "inside the store",
    "ChildOutcome": "inside the store",
}
"""Classes whose bytes are no payloads, and why."""


def classes() -> list[type]:
    return [
        kind
        for module in (model, answers, operations, forks, remotes, asks)
        for kind in vars(module).values()
        if inspect.isclass(kind)
        and kind.__module__ == module.__name__
        and (issubclass(kind, msgspec.Struct) or hasattr(kind, "_fields"))
    ]


def carried(hint: Any) -> set[Any]:
    """Return all types that an annotation names."""
    found = {hint}
    for part in typing.get_args(hint):
        found |= carried(part)
    return found


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_every_field_that_is_a_payload_or_has_one_is_sealed(kind: type) -> None:
    """Bytes that go into the store or come out of it are payloads, unless a reason stands here."""
    if kind.__name__ in PLAIN:
        return
    for name, hint in typing.get_type_hints(kind).items():
        types = carried(hint)
        if bytes in types or types & FIELDS.keys():
            assert name in FIELDS.get(kind, {}), f"{kind.__name__}.{name}"


def test_every_column_that_is_sealed_is_sealed_anew() -> None:
    """The tables that `keys reseal` walks through have a statement that reads and one that writes for each."""
    assert {table.name for table in TABLES} == {
        "runs",
        "gathered",
        "steps",
        "signals",
        "asks",
        "ask_people",
        "logs",
        "events",
    }

"""How a workflow takes several starts with one run: `Debounce` and `Batch`. Keys are templates over its arguments."""

from __future__ import annotations

import inspect
import string
import typing
from collections.abc import Callable
from typing import Any

from holdfast.errors import DefinitionError
from holdfast.gathers import Gather
from holdfast.workflow import options
from holdfast.workflow.options import Seconds

SIZE_MAX = 10_000
"""How many items a batch waits for at most: its run gets them as one list."""
SECONDS_MAX = 31_622_400.0


class Debounce:
    """Let starts that come soon after one another be one run, with the newest arguments: `Debounce("doc:{id}", quiet=10,
    at_most=300)`. It begins when no start came for `quiet` seconds, and at most `at_most` seconds after the first."""

    def __init__(self, key: str, *, quiet: Seconds, at_most: Seconds | None = None) -> None:
        self.key = _template(key, "Debounce")
        self.quiet_s = _span(quiet, "Debounce: quiet")
        self.at_most_s = None if at_most is None else _span(at_most, "Debounce: at_most")
        if self.at_most_s is not None and self.at_most_s < self.quiet_s:
            raise DefinitionError(f"Debounce: at_most={at_most!r} is less than quiet={quiet!r}")


class Batch:
    """Let several starts be one run, which gets the items of all: `Batch("site:{site}", size=100, wait=5)`. It begins when
    it has `size` items, and at most `wait` seconds after the first start. The items are in the one parameter that is a
    list, or in the one that `items` names; all other parameters are in the key."""

    def __init__(self, key: str, *, size: int, wait: Seconds, items: str | None = None) -> None:
        self.key = _template(key, "Batch")
        self.size = options.whole_number(size, "Batch: size")
        if not 1 <= self.size <= SIZE_MAX:
            raise DefinitionError(f"Batch: size must be from 1 to {SIZE_MAX:,}, not {size}")
        self.wait_s = _span(wait, "Batch: wait")
        self.items = None if items is None else options.text(items, "Batch: items")


def gather_of(
    fn: Callable[..., Any], debounce: Debounce | None, batch: Batch | None, what: str
) -> Gather | None:
    """Return how a workflow gathers its starts, if it does. Raise DefinitionError if its parameters do not fit."""
    if debounce is None and batch is None:
        return None
    if debounce is not None and batch is not None:
        raise DefinitionError(f"{what}: give debounce= or batch=, not both")
    parameters = inspect.signature(fn).parameters
    if debounce is not None:
        if not isinstance(debounce, Debounce):
            raise DefinitionError(f"{what}: debounce: expected a Debounce, not {debounce!r}")
        _demand_known(debounce.key, parameters, what)
        return Gather(debounce.key, debounce.quiet_s, debounce.at_most_s or SECONDS_MAX)
    if not isinstance(batch, Batch):
        raise DefinitionError(f"{what}: batch: expected a Batch, not {batch!r}")
    named = _demand_known(batch.key, parameters, what)
    parameter = batch.items or _only_list(fn, parameters, what)
    if parameter not in parameters:
        raise DefinitionError(f"{what}: batch: it has no parameter `{parameter}`")
    if parameter in {one.partition(".")[0] for one in named}:
        raise DefinitionError(f"{what}: batch: `{parameter}` has the items, so it cannot be in the key")
    for name in parameters:
        if name not in {parameter, *named}:
            raise DefinitionError(
                f"{what}: batch: `{name}` may differ between the starts of one batch: put it into the key, or into the items"
            )
    return Gather(batch.key, batch.wait_s, 0.0, batch.size, parameter)


def _only_list(fn: Callable[..., Any], parameters: typing.Mapping[str, inspect.Parameter], what: str) -> str:
    lists = [name for name, one in parameters.items() if _is_list(one.annotation)]
    if len(lists) != 1:
        raise DefinitionError(
            f"{what}: batch: one parameter must be a list, which gets the items of all starts; {len(lists)} are: name it with "
            "Batch(items=…)"
        )
    return lists[0]


def _is_list(annotation: object) -> bool:
    if isinstance(annotation, str):
        return annotation.partition("[")[0].strip() in {"list", "List", "typing.List"}
    return annotation is list or typing.get_origin(annotation) is list


def _span(value: Seconds, what: str) -> float:
    found = options.seconds(value, what)
    assert found is not None
    if found > SECONDS_MAX:
        raise DefinitionError(f"{what}: at most 366 days, not {value!r}")
    return found


def _template(key: object, what: str) -> str:
    text = options.text(key, f"{what}: key")
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as wrong:
        raise DefinitionError(f"{what}: {text!r} is no key: {wrong}") from None
    for _, name, spec, conversion in parts:
        if name is not None and (spec or conversion or not all(map(str.isidentifier, name.split(".")))):
            raise DefinitionError(
                f"{what}: {{{name}}} in the key {text!r} must be the name of a parameter, or lead into one by dots"
            )
    return text


def _demand_known(key: str, parameters: typing.Mapping[str, inspect.Parameter], what: str) -> set[str]:
    named = {name for _, name, _, _ in string.Formatter().parse(key) if name is not None}
    for name in sorted(one.partition(".")[0] for one in named):
        if name not in parameters:
            takes = ", ".join(f"`{one}`" for one in parameters) or "no parameters"
            raise DefinitionError(
                f"{what}: the key {key!r} names `{name}`, which is no parameter: it takes {takes}"
            )
    return named

"""Namespaces: a wall between those who share a store.

Whatever the store compares by name has the namespace before it: `acme//order-42`, and in `default` only `order-42`. That
is true of the ids of runs, and of the names of workflows, steps, dependencies and fingerprints. So no statement can
mistake what is in one namespace for what is in another. People and code in a namespace see bare names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from holdfast.errors import InvalidInput
from holdfast.model import DEFAULT_NAMESPACE

BETWEEN = "//"
"""Stands between a namespace and a name."""
ALL = "*"
"""Stands for all namespaces."""
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
T = TypeVar("T", bound=msgspec.Struct)
NAMED = frozenset(
    (
        "id",
        "run_id",
        "parent_id",
        "retry_of",
        "forked_from",
        "started_by",
        "workflow",
        "example",
        "step",
        "depends",
    )
)
"""The members of rows that have stored names, besides those that `shown_row` looks at more closely."""


def is_namespace(name: str) -> bool:
    return _NAMESPACE.fullmatch(name) is not None


def demand_namespace(name: object, what: str) -> str:
    """Return the name of a namespace. Raise InvalidInput if it cannot be one."""
    if not isinstance(name, str) or not is_namespace(name):
        raise InvalidInput(
            f"{what}: {name!r} cannot be a namespace: it needs 1 to 100 letters, digits, dots, dashes or underscores, and "
            "begins with a letter or digit"
        )
    return name


def stored(namespace: str | None, name: str) -> str:
    """Return the name that the store has. Without a namespace, the name is a stored one already."""
    return name if namespace is None or namespace == DEFAULT_NAMESPACE else f"{namespace}{BETWEEN}{name}"


def shown(namespace: str | None, name: str) -> str:
    """Return a stored name as those in the namespace see it."""
    return name if namespace is None else name.removeprefix(f"{namespace}{BETWEEN}")


def shown_text(namespace: str | None, text: str) -> str:
    """Return a sentence as those in the namespace read it, with bare names."""
    return text if namespace is None or BETWEEN not in text else text.replace(f"{namespace}{BETWEEN}", "")


@lru_cache(maxsize=10_000)
def parted(name: str) -> tuple[str, str]:
    """Return the namespace of a stored name, and the bare name."""
    namespace, between, rest = name.partition(BETWEEN)
    return (namespace, rest) if between and is_namespace(namespace) else (DEFAULT_NAMESPACE, name)


def namespace_of(name: str) -> str:
    return parted(name)[0]


def bare(name: str) -> str:
    return parted(name)[1] if BETWEEN in name else name


def shown_row(namespace: str | None, row: T) -> T:
    """Return a row as those in the namespace see it: its names are bare."""
    if namespace is None or namespace == DEFAULT_NAMESPACE:
        return row
    prefix, changed = f"{namespace}{BETWEEN}", {}
    for field in row.__struct_fields__:
        value = getattr(row, field) if field in NAMED or field in {"name", "value"} else None
        if isinstance(value, str) and value.startswith(prefix):
            changed[field] = value.removeprefix(prefix)
    return msgspec.structs.replace(row, **changed) if changed else row


class Namespaces:
    """The namespaces that a node works for, or all of them."""

    def __init__(self, names: Iterable[str] = (DEFAULT_NAMESPACE,)) -> None:
        given = tuple(dict.fromkeys(names)) or (DEFAULT_NAMESPACE,)
        self.is_all = ALL in given
        self.names: tuple[str, ...] = (ALL,) if self.is_all else given
        """The names in the order in which they were given. `*` alone means all."""
        self.only: str | None = self.names[0] if len(self.names) == 1 and not self.is_all else None
        """The one namespace, or None if there are several."""
        self._names = frozenset(self.names)

    def __contains__(self, namespace: str) -> bool:
        return self.is_all or namespace in self._names

    def __repr__(self) -> str:
        return f"<Namespaces {', '.join(self.names)}>"

    def each(self, name: str) -> Iterator[str]:
        """Yield the stored names of something that is in each of these namespaces. If these are all namespaces, that is
        the bare name."""
        for namespace in self.names:
            yield stored(None if self.is_all else namespace, name)


DEFAULT_ONLY = Namespaces()


def given_namespaces(given: object, what: str) -> Namespaces:
    """Return the namespaces that somebody names: one, several, or `*`."""
    if isinstance(given, Namespaces):
        return given
    names: Iterable[Any] = (
        [given] if isinstance(given, str) else given if isinstance(given, Iterable) else [given]
    )
    return Namespaces(one if one == ALL else demand_namespace(one, what) for one in names)

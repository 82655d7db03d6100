"""Which nodes publish which names: what a node's offers say about its code, and whether two nodes can share a store.

Steps and workflows are found by name. If two applications published the same name, each would execute what the other
asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Literal, NamedTuple

import msgspec

from holdfast.errors import NameTaken
from holdfast.model import DEFAULT_NAMESPACE
from holdfast.namespaces import ALL, bare
from holdfast.store.answers import Rival


class Source(NamedTuple):
    """Where the code of a name comes from."""

    origin: str
    """The application that the code belongs to."""
    digest: str
    """The digest of the code."""
    file: str


class Offers(msgspec.Struct, frozen=True):
    """The names in a node's offers, and for each name the index of its source. Names without a source come last: the
    node knows them, but neither executes nor asks for them."""

    workflows: list[str] = []
    steps: list[str] = []
    sources: list[Source] = []
    workflow_sources: list[int] = []
    step_sources: list[int] = []
    namespaces: list[str] = msgspec.field(default_factory=lambda: [DEFAULT_NAMESPACE])
    """The namespaces that the node works for. With `*`, the names are bare, and stand for all namespaces."""

    @staticmethod
    def read(offers: str) -> Offers:
        return _read.decode(offers)

    @property
    def code(self) -> str:
        """A digest of all that the node publishes. Nodes that publish the same have the same. Empty if the node
        publishes nothing."""
        if not self.sources:
            return ""
        sources = [(source.origin, source.digest) for source in self.sources]
        raw = msgspec.json.encode(
            (
                self.workflows,
                self.steps,
                sources,
                self.workflow_sources,
                self.step_sources,
                self.namespaces,
            )
        )
        return blake2b(raw, digest_size=8).hexdigest()

    @property
    def is_for_all(self) -> bool:
        return ALL in self.namespaces

    def has(self, kind: Literal["workflows", "steps"], name: str) -> bool:
        """True if the node has something of this stored name."""
        names = self.workflows if kind == "workflows" else self.steps
        return (bare(name) if self.is_for_all else name) in names

    def bare_names(self) -> dict[str, Source]:
        """Return each name without its namespace, and its source."""
        return {f"{kind} {bare(name)}": source for (kind, _, name), source in _parted(self.names())}

    def names(self) -> Iterator[tuple[str, Source]]:
        """Yield each name with its kind, such as `step billing.app.charge`, and its source."""
        for kind, names, numbers in (
            ("workflow", self.workflows, self.workflow_sources),
            ("step", self.steps, self.step_sources),
        ):
            for name, number in zip(names, numbers, strict=False):
                yield f"{kind} {name}", self.sources[number]


_read = msgspec.json.Decoder(Offers)


def demand_names(mine: Offers, rivals: Iterable[Rival], only: str | None = None) -> None:
    """Raise NameTaken if a rival publishes one of my names from another application and with other code.

    The same application with other code is allowed, because a deploy may be under way. With `only`, check just that
    name.
    """
    for rival in rivals:
        theirs = Offers.read(rival.offers)
        # Whoever works for all namespaces would execute what another asks for in any of them.
        is_bare = mine.is_for_all or theirs.is_for_all
        own, others = ((one.bare_names() if is_bare else dict(one.names())).items() for one in (mine, theirs))
        wanted = {name: source for name, source in own if only in {None, name}}
        taken = [
            (name, source)
            for name, source in others
            if name in wanted
            and wanted[name].origin != source.origin
            and wanted[name].digest != source.digest
        ]
        if taken:
            name, source = taken[0]
            more = f" (and {len(taken) - 1} more of its names)" if len(taken) > 1 else ""
            raise NameTaken(
                f"the {name}{more} belongs to another application on this store, {_described(source)}, on {rival.host} pid "
                f"{rival.pid}; here it comes from {_described(wanted[name])}, and each would execute what the other asks for: "
                "give one of them name=…, a namespace of its own (--namespace, Holdfast(namespace=…)), or another store; if both are one application, give both the same name with --app "
                "NAME, HOLDFAST_APP or Holdfast(app=…)"
            )


def _parted(names: Iterator[tuple[str, Source]]) -> Iterator[tuple[tuple[str, str, str], Source]]:
    return ((name.partition(" "), source) for name, source in names)


def _described(source: Source) -> str:
    return source.origin if source.file in {"", source.origin} else f"{source.origin} ({source.file})"

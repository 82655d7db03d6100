"""Who publishes which names: what a node says of its code in its offers, and whether two of them can share a store.

Steps and workflows are found by name. If two applications publish one name, each executes what the other asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from holdfast.errors import NameTaken
from holdfast.store.answers import Rival


class Source(NamedTuple):
    """Where names come from."""

    origin: str
    """The application."""
    digest: str
    """Of the code."""
    file: str


class Offers(msgspec.Struct, frozen=True):
    """Of a node's offers, what it publishes: for each name, the number of its source. A name without one is known here, and
    neither executed nor asked for."""

    workflows: list[str] = []
    steps: list[str] = []
    sources: list[Source] = []
    workflow_sources: list[int] = []
    step_sources: list[int] = []

    @staticmethod
    def read(offers: str) -> Offers:
        return _read.decode(offers)

    @property
    def code(self) -> str:
        """The same for all nodes that publish the same; empty for one that publishes nothing."""
        if not self.sources:
            return ""
        sources = [(source.origin, source.digest) for source in self.sources]
        raw = msgspec.json.encode(
            (self.workflows, self.steps, sources, self.workflow_sources, self.step_sources)
        )
        return blake2b(raw, digest_size=8).hexdigest()

    def names(self) -> Iterator[tuple[str, Source]]:
        """`step billing.app.charge` and its source."""
        for kind, names, numbers in (
            ("workflow", self.workflows, self.workflow_sources),
            ("step", self.steps, self.step_sources),
        ):
            for name, number in zip(names, numbers, strict=False):
                yield f"{kind} {name}", self.sources[number]


_read = msgspec.json.Decoder(Offers)


def demand_names(mine: Offers, rivals: Iterable[Rival], only: str | None = None) -> None:
    """Raise NameTaken if one of these publishes a name of mine from another application and with other code. The same
    application with other code is a deploy under way. `only` asks for one name."""
    own = {name: source for name, source in mine.names() if only in {None, name}}
    for rival in rivals:
        taken = [
            (name, source)
            for name, source in Offers.read(rival.offers).names()
            if name in own and own[name].origin != source.origin and own[name].digest != source.digest
        ]
        if taken:
            name, source = taken[0]
            more = f" (and {len(taken) - 1} more of its names)" if len(taken) > 1 else ""
            raise NameTaken(
                f"the {name}{more} belongs to another application on this store, {_told(source)}, on {rival.host} pid "
                f"{rival.pid}; here it comes from {_told(own[name])}, and each would execute what the other asks for: give one "
                "of them name=…, or another store; if both are one application, tell each so: --app NAME, HOLDFAST_APP or "
                "Holdfast(app=…)"
            )


def _told(source: Source) -> str:
    return source.origin if source.file in {"", source.origin} else f"{source.origin} ({source.file})"

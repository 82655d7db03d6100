"""What a server takes and answers about views."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.wire.requests import Strict

NAME_MAX_CHARS = 40
QUERY_MAX_CHARS = 2_000


class SaveView(Strict):
    """A list of runs, and a name for it. One of the same name is replaced."""

    name: Annotated[str, Meta(min_length=1, max_length=NAME_MAX_CHARS)]
    query: Annotated[str, Meta(max_length=QUERY_MAX_CHARS)]
    """What `GET /v1/runs` takes after the question mark: `state=failed&since=24h`."""


class View(msgspec.Struct):
    name: str
    ref: str
    """The name as it stands in URLs."""
    query: str


class Views(msgspec.Struct):
    items: list[View]

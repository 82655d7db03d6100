"""What a server takes and answers about hooks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from holdfast.wire.requests import Strict

Secret = Annotated[str, Meta(min_length=8, max_length=500)]


class NewHook(Strict):
    name: Annotated[str, Meta(min_length=1, max_length=50)]
    scheme: Literal["standard", "github", "stripe", "hmac"]
    secret: Secret | None = None
    """The sender's secret. Without it, one is made."""
    header: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    """Of the scheme `hmac`: the header that has the signature, in hex or base64."""


class RotateHook(Strict):
    secret: Secret | None = None
    grace_s: Annotated[float, Meta(ge=0, le=2_592_000)] = 86_400.0
    """For how long the secret before works on."""


class Received(msgspec.Struct):
    new: bool
    """False if the same delivery had come before."""


class Hook(msgspec.Struct, kw_only=True):
    name: str
    path: str
    """Where the sender posts."""
    scheme: str
    header: str | None
    actor: str
    created_at: datetime
    rotated_at: datetime | None
    old_until: datetime | None
    """Until when the secret before the last rotation works."""


class Hooks(msgspec.Struct):
    items: list[Hook]


class HookMade(msgspec.Struct):
    hook: Hook
    secret: str
    """The secret. Nobody can read it again."""

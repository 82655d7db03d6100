"""What a channel is, and the notices it sends."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.environment import Environment
from holdfast.model import AlertKind, Level

ERROR_MAX_CHARS = 300
_WEIGHT = {level: weight for weight, level in enumerate(Level)}


class NotSent(Exception):
    """A channel did not take a notice. The message is for the operator, and contains no secret."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One message about one alert through one channel. When it has to be sent again, `delivery` is the same, so that
    receivers can drop the second."""

    delivery: str
    event: str
    """`raised`, `cleared` or `test`."""
    kind: str
    level: str
    message: str
    alert: int = 0
    key: str = ""
    run: str | None = None
    times: int = 1
    at: float = 0.0
    cleared_at: float | None = None

    @property
    def line(self) -> str:
        """The notice as one line."""
        more = f" ({self.times} times)" if self.times > 1 else ""
        over = "over: " if self.event == "cleared" else ""
        return f"{over}{self.kind}: {self.message}{more}"

    def as_json(self) -> bytes:
        """Return the notice as JSON. Chat services show its member `text`."""
        fields: dict[str, Any] = {
            "delivery": self.delivery,
            "event": self.event,
            "text": f"[{self.level}] {self.line}",
            "kind": self.kind,
            "level": self.level,
            "message": self.message,
            "alert": self.alert,
            "key": self.key,
            "run": self.run,
            "times": self.times,
            "at": _moment(self.at),
            "cleared_at": _moment(self.cleared_at),
        }
        return json.dumps(fields, ensure_ascii=False).encode()


def _moment(at: float | None) -> str | None:
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Channel(ABC):
    """A way to send alerts to people. Subclasses implement `send`."""

    type = ""

    def __init__(
        self,
        name: str,
        *,
        environment: Environment,
        timeout_s: float,
        level: str,
        kinds: Collection[str],
        secrets: Collection[str] = (),
    ) -> None:
        self.name, self.timeout_s = name, timeout_s
        self._environment = environment
        self._level, self._kinds = Level(level), frozenset(kinds)
        self.people: frozenset[str] = frozenset()
        """The people and teams that this channel reaches. It gets what they are asked, and nobody else's asks."""
        self.public_url: str | None = None
        """Where people reach a server, for links."""
        self._secrets = tuple(sorted((secret for secret in secrets if secret), key=len, reverse=True))

    def wants(self, kind: str, level: str) -> bool:
        return _WEIGHT[Level(level)] >= _WEIGHT[self._level] and (not self._kinds or kind in self._kinds)

    def wants_ask(self, who: str) -> bool:
        """True if this channel gets what this person or team is asked."""
        return who in self.people if self.people else self.wants(AlertKind.ASK, Level.INFO)

    @abstractmethod
    async def send(self, notice: Notice) -> None:
        """Send the notice, or raise NotSent. The caller stops it after `timeout_s`."""

    def without_secrets(self, text: str) -> str:
        """Return the text as one line of bounded length without the channel's secrets, so that it may be logged."""
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return " ".join(text.split())[:ERROR_MAX_CHARS]

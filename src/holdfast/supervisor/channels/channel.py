"""What a channel is, and the notices it sends."""

from __future__ import annotations

import asyncio
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from holdfast.environment import Environment
from holdfast.model import Level

T = TypeVar("T")

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
        self._secrets = tuple(sorted((secret for secret in secrets if secret), key=len, reverse=True))

    def wants(self, kind: str, level: str) -> bool:
        return _WEIGHT[Level(level)] >= _WEIGHT[self._level] and (not self._kinds or kind in self._kinds)

    @abstractmethod
    async def send(self, notice: Notice) -> None:
        """Send the notice, or raise NotSent. The caller stops it after `timeout_s`."""

    def without_secrets(self, text: str) -> str:
        """Return the text as one line of bounded length without the channel's secrets, so that it may be logged."""
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return " ".join(text.split())[:ERROR_MAX_CHARS]


async def in_thread(call: Callable[[], T]) -> T:
    """Run a call that blocks in a thread of its own, and return its result. The event loop's own threads are for the
    store. When the caller gives up, nobody waits for the thread."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if not answered.done():
            if error is not None:
                answered.set_exception(error)
            else:
                answered.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = call()
        except Exception as error:  # noqa: BLE001  the caller gets it
            failure = error
        try:
            loop.call_soon_threadsafe(finish, result, failure)
        except RuntimeError:
            pass  # the loop is closed, and the caller is gone with it

    threading.Thread(target=run, name="holdfast-alerts", daemon=True).start()
    return await answered

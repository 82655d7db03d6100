"""Where another system posts the result of a call: a path that names the request, signed. Nothing about it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.access.signed_texts import opened, signed

PURPOSE = "callback"
"""What the paths of callbacks are signed for."""


class NamedRequest(NamedTuple):
    """The request that a path names. Its callback is the next step of the run."""

    run_id: str
    n: int
    issued_at: str
    """When it was issued. A run that got the id later has other steps."""


def callback_path(keys: Mapping[str, bytes], run_id: str, n: int, issued_at: float) -> str:
    """Return the path for the request `n` of a run. It is the same at every attempt."""
    return f"/v1/callbacks/{signed(keys, PURPOSE, (run_id, str(n), issue_time(issued_at)))}"


def request_of(keys: Mapping[str, bytes], token: str) -> NamedRequest | None:
    """Return the request that the last part of a path names. None if nobody with a key has written it."""
    parts = opened(keys, PURPOSE, token)
    return None if parts is None else NamedRequest(parts[0], int(parts[1]), parts[2])


def issue_time(at: float) -> str:
    return f"{at:.6f}"

"""Whether this process traces, and where a run says to which trace it belongs.

The trace of a run is a tag, in the form of W3C's header `traceparent`. It is there only if whoever started the run traced.
Only `spans.py` knows what a span is. It is loaded only if traces are on.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from holdfast.config import Config
from holdfast.errors import InvalidSettings
from holdfast.model import TRACE_TAG

if TYPE_CHECKING:
    from holdfast.spans import Spans

VARIABLE = "HOLDFAST_TRACES"


def with_traces(config: Config) -> Config:
    """Return the settings, with traces if the environment of this process switches them on."""
    if os.environ.get(VARIABLE, "") in {"", "0"}:
        return config
    return msgspec.structs.replace(config, traces=True)


def spans_for(config: Config) -> Spans | None:
    """Return what makes spans. None if traces are off. Raise InvalidSettings if the library is missing."""
    if not config.traces:
        return None
    try:
        from holdfast.spans import Spans  # noqa: PLC0415  an optional dependency
    except ModuleNotFoundError as missing:
        raise InvalidSettings(
            f"traces need their library: pip install 'holdfast[otel]', or leave out Config(traces=True) and {VARIABLE}"
        ) from missing
    return Spans()


def trace_of(tags: str | None) -> str | None:
    """Return the trace of a run with these tags. None if it has none."""
    if tags is None or TRACE_TAG not in tags:
        return None
    found: dict[str, str] = msgspec.json.decode(tags)
    return found.get(TRACE_TAG)

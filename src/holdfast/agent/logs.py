"""Keeps what the steps of an agent log, until the agent writes it together with something else about the step."""

from __future__ import annotations

import logging
import threading

import msgspec

from holdfast.config import Config
from holdfast.environment import StoreClock
from holdfast.log_buffer import LogBuffer, LogLimits, line_of
from holdfast.model import LogLine
from holdfast.workflow.here import CurrentAttempt

_making = threading.Lock()
"""Locked while an attempt gets its buffer: two of its threads may log for the first time at the same moment."""


class AgentLogs:
    """Keeps the lines of each attempt in the attempt itself."""

    def __init__(self, limits: LogLimits, clock: StoreClock) -> None:
        self.level, self._max_bytes, self._clock = limits.level, limits.max_bytes, clock

    @classmethod
    def of(cls, config: Config, clock: StoreClock) -> AgentLogs | None:
        """Return a keeper for these settings. None if nothing is kept."""
        limits = LogLimits.of(config.logs_level, config.logs_max_bytes)
        return None if limits is None else cls(limits, clock)

    def keep(self, at: CurrentAttempt, record: logging.LogRecord) -> None:
        self._buffer_of(at).add(line_of(record, self._clock.glance()))

    def keep_line(self, at: CurrentAttempt, line: LogLine) -> None:
        self._buffer_of(at).add(msgspec.structs.replace(line, at=self._clock.glance()))

    def _buffer_of(self, at: CurrentAttempt) -> LogBuffer:
        if at.logs is None:
            with _making:
                if at.logs is None:
                    at.logs = LogBuffer(at.attempt, self._max_bytes, twin=at.twin)
        return at.logs

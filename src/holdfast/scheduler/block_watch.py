"""Notices workflow code that keeps a scheduler's thread to itself: a `time.sleep`, a request, a long computation.

While such code runs, no other run of the process goes on, and the code itself cannot be interrupted. A thread looks once
a second at what the thread of the scheduler executes. If it finds the same turn of the same run twice, it logs which run
and which line it is. Workflow code itself pays nothing for that.
"""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path
from types import FrameType

from holdfast.decider.decider import Decider
from holdfast.decider.loop import RunLoop

log = logging.getLogger("holdfast.scheduler")

NAME = "holdfast-blocking-watch"
"""The name of the thread."""
LOOK_S = 1.0
"""How often the thread looks. A turn is microseconds of work, so that a whole second is too long for any."""
_TURN = RunLoop.run.__code__
_LIBRARIES = (str(Path(__file__).parents[1]), str(Path(threading.__file__).parent))


class BlockWatch:
    """Watches the thread that made it, until it is stopped."""

    def __init__(self, look_s: float = LOOK_S) -> None:
        self._look_s = look_s
        self._watched = threading.get_ident()
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, name=NAME, daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        before: FrameType | None = None
        reported: FrameType | None = None
        while not self._stopped.wait(self._look_s):
            frame = sys._current_frames().get(self._watched)
            turn = _turn_in(frame)
            if turn is not None and turn is before and turn is not reported:
                reported = turn
                log.warning("%s", described(turn, frame, self._look_s))
            before = turn
            del frame, turn


def _turn_in(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the turn in which this frame is. None if no workflow code is running."""
    while frame is not None and frame.f_code is not _TURN:
        frame = frame.f_back
    return frame


def described(turn: FrameType, frame: FrameType | None, seconds: float) -> str:
    """Say which run and which line of its code keeps the thread."""
    host = getattr(turn.f_locals.get("self"), "host", None)
    whose = f"run {host.run_id} of {host.workflow.name}" if isinstance(host, Decider) else "a run"
    while frame is not None and frame is not turn and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    line = "" if frame is None or frame is turn else f" at {frame.f_code.co_filename}:{frame.f_lineno}"
    return (
        f"the workflow code of {whose} has been running for more than {seconds:g} s without waiting for a step{line}: "
        "no other run of this process goes on meanwhile; put what blocks there in a step"
    )

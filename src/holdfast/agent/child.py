"""The other side of `isolation.py`: `python -m holdfast.agent.child FD` executes one step and exits.

It may talk only to the agent that started it, and must never outlive it: its standard input closes with the agent.
The step's own code, and the programs that it starts, find nothing in their standard input.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import io
import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from holdfast import codec, log_fields
from holdfast.agent.isolation import AttemptRequest, Message
from holdfast.agent.outcome import Raised, execute
from holdfast.decider.history import unreadable
from holdfast.errors import DefinitionError, InvalidInput
from holdfast.interrupt import by_signal
from holdfast.log_buffer import line_of, shortened
from holdfast.model import LogLine
from holdfast.programs import package_root
from holdfast.workflow import log_records, outside, registry
from holdfast.workflow.here import CurrentAttempt, here_var
from holdfast.workflow.step import Step

LINE_MAX_BYTES = 64 * 1024
"""How much of one log line is passed on to the agent."""
INTERRUPTED = 130
"""The exit code of a child that was ended by a signal which Python turned into an exception."""


class ChildProcess:
    def __init__(self, descriptor: int) -> None:
        self._agent = os.fdopen(descriptor, "wb", 0)
        self._answers = _own_input()
        self._lock = threading.Lock()
        self._saved = threading.Event()
        self._refused = False
        # A `def` step waits in `here.save` for a loop in another thread, here as in the agent.
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def say(self, message: Message) -> None:
        with self._lock:
            self._agent.write(msgspec.json.encode(message) + b"\n")

    def request(self) -> AttemptRequest:
        """Read what the agent says first."""
        return msgspec.json.decode(self._answers.readline(), type=AttemptRequest)

    def listen(self) -> None:
        """Read the agent's answers. When they end, the agent is gone, and this process exits."""
        for _ in self._answers:
            self._saved.set()
        os._exit(1)

    def beat(self, progress: float | None, note: str) -> None:
        self.say(Message(beat=(progress, note)))

    async def save(self, raw: bytes) -> None:
        self._saved.clear()
        self.say(Message(save=raw.decode()))
        self._saved.wait()

    def execute(self, request: AttemptRequest) -> None:
        ended = self._ended(request)
        sys.stdout.flush()
        sys.stderr.flush()
        if isinstance(ended, Raised):
            if by_signal(ended.error):
                os._exit(INTERRUPTED)
            error_json = codec.encode_error(ended.error, step=request.step, unsure=ended.unsure)
            self.say(Message(error=error_json))
        else:
            self.say(Message(output=ended.decode()))

    def _ended(self, request: AttemptRequest) -> bytes | Raised:
        refusal = DefinitionError(
            f"{Path(request.file).name} opens a store whenever it is loaded, also in the process that executes "
            f'{request.step}: put what it does under `if __name__ == "__main__":`'
        )

        def refuse() -> None:
            """Refuse to open a store while the file is loaded. The step itself may open one, to start runs: while it
            runs, `here` is set."""
            if here_var.get() is None:
                self._refused = True
                raise refusal

        outside.refuse_opening = refuse
        printed = sys.stdout, sys.stderr
        if request.streams is not None:
            _use_streams_of_agent(request.streams)
            logging.getLogger().setLevel(request.root_level)
        try:
            step = _load(request)
            bound = _read(step, request)
        except BaseException as error:  # noqa: BLE001  what keeps the step's code from beginning is the step's outcome
            return Raised(refusal if self._refused else error, unsure=False)
        finally:
            sys.stdout, sys.stderr = printed
        if self._refused:  # the file has caught the error and gone on
            return Raised(refusal, unsure=False)
        at = CurrentAttempt(
            run_id=request.run_id,
            key=request.key,
            attempt=request.attempt,
            step=request.step,
            on_beat=self.beat,
            on_save=self.save,
            saved_raw=None if request.saved is None else request.saved.encode(),
            loop=self._loop,
            undoes=request.undoes,
            callback=request.callback,
            limit=request.limit,
            keeper=None if request.log_level is None else ChildLogs(self, request.log_level),
        )
        here_var.set(at)
        if request.trace is not None:
            from holdfast import spans  # noqa: PLC0415  an optional dependency

            spans.enter(request.trace)
        log_fields.install()
        log_records.belong_to(at)
        return execute(step, bound, request.limit)


class ChildLogs:
    """Passes on to the agent what the step logs."""

    def __init__(self, child: ChildProcess, level: int) -> None:
        self._child, self.level = child, level

    def keep(self, at: CurrentAttempt, record: logging.LogRecord) -> None:
        unhandled = not logging.getLogger(record.name).hasHandlers()
        line = shortened(line_of(record, 0.0), LINE_MAX_BYTES)
        self._child.say(Message(log=line, unhandled=unhandled))

    def keep_line(self, at: CurrentAttempt, line: LogLine) -> None:
        """Do nothing: the step of a child has no child."""


def _own_input() -> BinaryIO:
    """Take the standard input away from the step's code. It would wait there for ever, in `input()` or in a program
    that inherits it, or read what the agent says."""
    own = os.fdopen(os.dup(0), "rb")
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    return own


def _use_streams_of_agent(descriptors: tuple[int, int]) -> None:
    """Let handlers of `logging` write where the agent prints. Those that are made while the file is loaded keep the
    streams that they find, and what they write is kept already, as records."""
    sys.stdout, sys.stderr = (
        open(one, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
        for one in descriptors
    )
    logging.lastResort = logging.NullHandler()  # without handlers, the agent's handlers get the records


def _read(step: Step[Any, Any], request: AttemptRequest) -> msgspec.Struct:
    """Return the step's arguments. The file may be newer than the one that the agent has loaded. If its code cannot
    read the whole input, the error holds the run."""
    raw = request.input.encode()
    try:
        return step.shape.decode_whole(raw)
    except InvalidInput as wrong:
        key = request.key.partition("::")[2]
        raise unreadable(key, "input", f"the input of step {key!r}", raw, wrong) from None


def _load(request: AttemptRequest) -> Step[Any, Any]:
    """Find the step: import its module as the agent did, or load its file under that module name."""
    file, name = Path(request.file), request.module
    # If the agent's program is inside a package, Python ran it without the folder above the package.
    path = [*request.path, str(package_root(file))]
    sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
    try:
        found = getattr(importlib.import_module(name), "__file__", None)
    except ModuleNotFoundError:
        found = None
    if found is None or Path(found).resolve() != file:
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise ModuleNotFoundError(f"{file} cannot be imported as {name}", name=name)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return registry.steps[request.step]


def main() -> None:
    child = ChildProcess(int(sys.argv[1]))
    request = child.request()
    threading.Thread(target=child.listen, daemon=True).start()
    if request.streams is not None:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(line_buffering=True)  # so that others see a line when it is printed
    child.execute(request)
    os._exit(0)


if __name__ == "__main__":
    main()

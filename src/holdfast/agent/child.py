"""The other side of `isolation.py`: `python -m holdfast.agent.child FD` executes one step and exits.

It may talk only to the agent that started it, and must never outlive it: its standard input closes with the agent.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from holdfast import codec
from holdfast.agent.isolation import AttemptRequest, Message
from holdfast.agent.outcome import Raised, execute
from holdfast.decider.history import unreadable
from holdfast.errors import DefinitionError, InvalidInput
from holdfast.interrupt import by_signal
from holdfast.programs import package_root
from holdfast.workflow import outside, registry
from holdfast.workflow.here import Attempting, here_var
from holdfast.workflow.step import Step

INTERRUPTED = 130
"""The exit code of a child that was ended by a signal which Python turned into an exception."""


class ChildProcess:
    def __init__(self, descriptor: int) -> None:
        self._agent = os.fdopen(descriptor, "wb", 0)
        self._lock = threading.Lock()
        self._saved = threading.Event()
        self._refused = False
        # A `def` step waits in `here.save` for a loop in another thread, here as in the agent.
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def say(self, message: Message) -> None:
        with self._lock:
            self._agent.write(msgspec.json.encode(message) + b"\n")

    def listen(self) -> None:
        """Read the agent's answers. When its standard input closes, the agent is gone, and this process exits."""
        for _ in sys.stdin.buffer:
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
        try:
            step = _load(request)
            bound = _read(step, request)
        except BaseException as error:  # noqa: BLE001  what keeps the step's code from beginning is the step's outcome
            return Raised(refusal if self._refused else error, unsure=False)
        if self._refused:  # the file has caught the error and gone on
            return Raised(refusal, unsure=False)
        here_var.set(
            Attempting(
                run_id=request.run_id,
                key=request.key,
                attempt=request.attempt,
                step=request.step,
                on_beat=self.beat,
                on_save=self.save,
                saved_raw=None if request.saved is None else request.saved.encode(),
                loop=self._loop,
                undoes=request.undoes,
                limit=request.limit,
            )
        )
        return execute(step, bound, request.limit)


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
    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=AttemptRequest)
    threading.Thread(target=child.listen, daemon=True).start()
    child.execute(request)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

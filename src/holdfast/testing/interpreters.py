"""Other interpreters, which replay what was recorded here. Each has another hash seed, so that a loop over a set of
texts takes another order there.

They are started when first needed, work beside the exploration, and are kept for the next one: an interpreter takes
longer to start than most workflows take to replay. Each imports the author's module, and never a test's stubs: a replay
executes no step.
"""

from __future__ import annotations

import atexit
import os
import select
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import HoldfastError
from holdfast.interpreters import module_path, python
from holdfast.testing import interpreter
from holdfast.testing.interpreter import Difference, Module, ReplayReply, ReplayRequest, framed
from holdfast.testing.replays import History
from holdfast.workflow.workflow import Workflow

ANSWER_S = 60.0
"""How long to wait for an answer. An import that takes longer waits for something that will not come."""
BOOT = "import sys; sys.path[:] = sys.argv[2:]; from holdfast.testing.interpreter import serve; serve(int(sys.argv[1]))"


class NotReplayed(HoldfastError):
    """Nothing could be replayed in another interpreter. The message says why."""


class ReplayResult(NamedTuple):
    """What one other interpreter found."""

    hash_seed: int
    difference: Difference | None


def replay(
    workflows: Iterable[Workflow[Any, Any]],
    histories: Sequence[History],
    hash_seeds: Sequence[int],
) -> Iterator[ReplayResult]:
    """Let an interpreter with each hash seed replay all the histories, two interpreters at a time. Raises NotReplayed
    when that is impossible."""
    modules = list(dict.fromkeys(_module(workflow) for workflow in workflows))
    asked: list[_Interpreter] = []
    for number, hash_seed in enumerate(hash_seeds):
        if len(asked) > 1:
            yield asked.pop(0).answer()
        one = _one(hash_seed, modules)
        one.ask(ReplayRequest(module_path(), modules, list(histories), badly=number == 0))
        asked.append(one)
    for one in asked:
        yield one.answer()


def warm_up(hash_seeds: Sequence[int]) -> None:
    """Start the first two interpreters, which will be needed soon."""
    for hash_seed in hash_seeds[:2]:
        _one(hash_seed, ())


def _module(workflow: Workflow[Any, Any]) -> Module:
    file = Path(workflow.fn.__code__.co_filename).resolve()
    if not file.is_file():
        raise NotReplayed(f"{workflow.name} is not in a file that another interpreter could import")
    if "<locals>" in workflow.fn.__qualname__:
        raise NotReplayed(
            f"{workflow.name} is defined inside a function, where another interpreter cannot find it"
        )
    name = workflow.fn.__module__
    return Module(file.stem if name == "__main__" else name, str(file))


class _Interpreter:
    def __init__(self, hash_seed: int) -> None:
        self.hash_seed = hash_seed
        self.owner = os.getpid()
        self.loaded: dict[str, tuple[str, int]] = {}
        self._asked = False
        inner, outer = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603  our own program
                python("-c", BOOT, str(outer), *module_path()),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,  # what the author's module prints was printed here already
                stderr=subprocess.DEVNULL,
                pass_fds=[outer],
                env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
                start_new_session=True,
            )
        except OSError as error:
            os.close(inner)
            raise NotReplayed(f"no other interpreter could be started: {error}") from error
        finally:
            os.close(outer)
        self._answers = inner

    def fits(self, modules: Iterable[Module]) -> bool:
        """True if it is alive and idle, and has not imported other files under these names."""
        return (
            self.owner == os.getpid()
            and not self._asked
            and self._process.poll() is None
            and all(self.loaded.get(one.name, _stamp(one)) == _stamp(one) for one in modules)
        )

    def ask(self, request: ReplayRequest) -> None:
        self.loaded |= {one.name: _stamp(one) for one in request.modules}
        self._asked = True
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it died, and `answer` will notice
            self._process.stdin.write(framed(request))
            self._process.stdin.flush()

    def answer(self) -> ReplayResult:
        try:
            raw = self._read(int.from_bytes(self._read(4), "big"))
        except NotReplayed:
            self.close()
            raise
        self._asked = False
        answer = msgspec.msgpack.decode(raw, type=ReplayReply)
        if answer.trouble:
            self.close()
            raise NotReplayed(answer.trouble)
        return ReplayResult(self.hash_seed, answer.differences[0] if answer.differences else None)

    def _read(self, size: int) -> bytes:
        found = b""
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        while len(found) < size:
            if not poll.poll(ANSWER_S * 1000):
                raise NotReplayed(
                    f"another interpreter, which imports the same code, did not answer within {ANSWER_S:g} s"
                )
            part = os.read(self._answers, size - len(found))
            if not part:
                raise NotReplayed("another interpreter, which imports the same code, died while it did so")
            found += part
        return found

    def close(self) -> None:
        _kept.pop(self.hash_seed, None)
        if self.owner != os.getpid():
            return
        self._process.kill()
        with suppress(OSError):
            self._process.communicate()
        os.close(self._answers)


_kept: dict[int, _Interpreter] = {}
"""The interpreters that were started, by hash seed."""


def _one(hash_seed: int, modules: Iterable[Module]) -> _Interpreter:
    if interpreter.serving:
        raise SystemExit(
            "it starts a simulation when it is imported: guard that with if __name__ == '__main__'"
        )
    one = _kept.get(hash_seed)
    if one is not None and not one.fits(modules):
        one.close()
        one = None
    if one is None:
        one = _kept[hash_seed] = _Interpreter(hash_seed)
    return one


def _stamp(module: Module) -> tuple[str, int]:
    return module.file, Path(module.file).stat().st_mtime_ns


@atexit.register
def _close_all() -> None:
    for one in list(_kept.values()):
        one.close()

"""The signals of one run: those that nobody has read yet, and the waits that nobody has answered yet.

A signal goes to the first wait for its name that can read it. A signal that waits are there for, but none of them can
read, is set aside with the reason. A signal without a wait stays unread until the code waits for it.

Which wait took which signal is recorded. A replay does not decide it again: `recall` takes over what the rows say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast.decider.history import described, unreadable
from holdfast.errors import Drift, HoldfastError
from holdfast.model import StepKind, StepRow

if TYPE_CHECKING:
    from holdfast.decider.commands import Wait
    from holdfast.decider.history import Recorded


class Mailbox:
    """The part of a decider that gives signals to waits."""

    __slots__ = ("_readers", "_recorded_waits", "_taken", "_unread", "_waiting", "answered", "set_aside")

    def __init__(self, waiting: dict[int, Wait]) -> None:
        """`waiting` is everything the run waits for. A wait that gets its signal leaves it."""
        self._waiting = waiting
        self._unread: dict[str, deque[tuple[int, bytes]]] = {}
        self._readers: dict[str, deque[Wait]] = {}
        self._taken: dict[int, tuple[Wait, bytes] | None] = {}
        """Signals that recorded waits took, by their number. None until the code asks for that wait again."""
        self._recorded_waits: list[StepRow] = []
        """Recorded waits that the code may no longer have."""
        self.answered: list[tuple[Wait, int, bytes]] = []
        """Waits that got their signal since the last turn: the wait, the signal's number, and what the wait read."""
        self.set_aside: list[tuple[int, str]] = []
        """Signals set aside since the last turn, with the reason."""

    def recall(self, steps: Sequence[StepRow], *, is_retry: bool) -> None:
        """Take over which recorded wait took which signal."""
        waits = [step for step in steps if step.kind is StepKind.SIGNAL and step.delivered_seq != 0]
        self._taken = {step.delivered_seq: None for step in waits if step.delivered_seq is not None}
        # A retry can ask for a wait that it keeps later than the run before it did, so a missing wait proves nothing.
        self._recorded_waits = [] if is_retry else waits

    def deliver(self, seq: int, name: str, payload: bytes, set_aside: str | None) -> Drift | None:
        """Give a signal to the wait that takes it. A signal that was set aside when it was first delivered is given to
        no wait."""
        if seq in self._taken:
            taken = self._taken.pop(seq)
            return None if taken is None else self._take_again(*taken)
        if set_aside is None:
            self._offer(seq, name, payload)
        return None

    def wait(self, wait: Wait) -> None:
        """Let a wait that is new in the history read the oldest unread signal that it can read. Without one, it waits
        for the next."""
        unread = self._unread.get(wait.name)
        while unread:
            seq, payload = unread.popleft()
            problem = self._answer(wait, seq, payload)
            if problem is None:
                return
            self.set_aside.append((seq, problem))
        self._readers.setdefault(wait.name, deque()).append(wait)

    def wait_again(self, wait: Wait, recorded: StepRow, seq: int) -> Drift | None:
        """Ask again for a recorded wait that took a signal. If that signal is in the past, the wait takes it now."""
        assert recorded.delivered_seq
        read = recorded.output or b"null"
        if recorded.delivered_seq <= seq:
            return self._take_again(wait, read)
        self._waiting[wait.n] = wait
        self._taken[recorded.delivered_seq] = wait, read
        return None

    def forget(self, wait: Wait) -> None:
        """Forget a wait that the code has given up."""
        readers = self._readers.get(wait.name)
        if readers and wait in readers:
            readers.remove(wait)

    def unread(self) -> tuple[int, ...]:
        """Return the numbers of the signals that the next generation of the run gets. They include what was set aside
        in this turn: that is not recorded yet, so the next generation looks at it again."""
        unread = [seq for signals in self._unread.values() for seq, _ in signals]
        return tuple(sorted(unread + [seq for seq, _ in self.set_aside]))

    def drift(self, recorded: Recorded, asked: Iterable[Wait]) -> Drift | None:
        """Return a drift if the code waits for a signal that no recorded wait was for, and has not asked for a recorded
        wait: then somebody renamed the signal, and nobody sends the new name. Waits that have ended count only at the
        first check; later, the code has left them out."""
        if not self._recorded_waits:
            return None
        missing = [row for row in self._recorded_waits if row.key in recorded.by_key]
        self._recorded_waits = [row for row in missing if row.delivered_seq is None]
        for wait in asked if missing else ():
            if wait.kind is StepKind.SIGNAL and wait.issue is not None:
                was, now = missing[0], described(StepKind.SIGNAL, wait.name, None)
                if wait.key != was.key:
                    now = f"{now} at {wait.key!r}"
                return Drift(was.key, described(StepKind.SIGNAL, was.name, None), now, kind="signal")
        return None

    def _offer(self, seq: int, name: str, payload: bytes) -> None:
        readers = self._readers.get(name)
        if not readers:
            self._unread.setdefault(name, deque()).append((seq, payload))
            return
        problems: list[str] = []
        for wait in readers:
            problem = self._answer(wait, seq, payload)
            if problem is None:
                readers.remove(wait)
                return
            problems.append(problem)
        self.set_aside.append((seq, problems[0]))

    def _answer(self, wait: Wait, seq: int, payload: bytes) -> str | None:
        """End a wait by a signal. Return the reason if the wait cannot read it. The value that the wait read is
        recorded, not the bytes that were sent: a sender can send more than the code asks for."""
        assert wait.result is not None
        try:
            value = wait.result.decode(payload)
            read = wait.result.encode_again(value)
        except HoldfastError as wrong:
            return str(wrong)
        self._waiting.pop(wait.n, None)
        self.answered.append((wait, seq, read))
        wait.future.set_result(value)
        return None

    def _take_again(self, wait: Wait, read: bytes) -> Drift | None:
        """Let a recorded wait take the signal that it took before, and no other."""
        self._waiting.pop(wait.n, None)
        assert wait.result is not None
        if wait.future.done():
            return None
        try:
            wait.future.set_result(wait.result.decode_whole(read))
        except HoldfastError as wrong:
            what = f"the signal {wait.name!r} that step {wait.key!r} waited for"
            return unreadable(wait.key, "signal", what, read, wrong)
        return None

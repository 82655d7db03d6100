"""Keys, not positions: a step's key is its place in the tree of tasks, its name, and how often that name came there.

So adding, removing or reordering differently named steps leaves the keys of the others alone. A key is made of
components joined by `/`; a component is a word, `word#k` for its k-th occurrence, or `word:free text` for an explicit
key, which can only be the last one. Words never contain these three characters, so no two ways lead to one key.
"""

from __future__ import annotations

from holdfast.errors import WorkflowError

_RESERVED = str.maketrans("/#:\0", "____")
"""The three, and NUL, which PostgreSQL's text does not hold."""


def word(text: str) -> str:
    """`text` as a word of a key."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # half of a surrogate pair is no character
    return text.translate(_RESERVED) or "_"


class Branch:
    """One place in the tree of tasks, and the names used there so far."""

    __slots__ = ("counts", "own", "path", "prefix", "used")

    def __init__(self, path: str, *, own: bool = False) -> None:
        self.path = path
        self.prefix = path + "/" if path else ""
        self.counts: dict[str, int] = {}
        self.own = own
        """The task only wraps one call (`gather(charge(1), charge(2))`): that call's key is the task's own path."""
        self.used = False

    def name(self, label: str) -> str:
        """The key of the next step with this label here."""
        if self.own:
            self.own, self.used = False, True
            return self.path
        if label in self.counts:
            return self.component(label)
        self.counts[label] = 1
        return self.prefix + label

    def component(self, label: str) -> str:
        """The path of the next task or step with this label here: both share one counter."""
        self.counts[label] = k = self.counts.get(label, 0) + 1
        if k == 1:
            return self.prefix + label
        if ":" in label:
            raise WorkflowError(
                f"the key {self.prefix + label!r} is used twice in this run: an explicit key must be unique among the calls "
                "of its step in one task"
            )
        return f"{self.prefix}{label}#{k}"

    def renamed(self, child: Branch, label: str, to: str) -> Branch:
        """The child's branch under another label, if nothing has used it and no other of its label came after it."""
        k = self.counts[label]
        last = self.prefix + label if k == 1 else f"{self.prefix}{label}#{k}"
        if child.used or child.counts or child.path != last:
            return child
        self.counts[label] -= 1
        return Branch(self.component(to), own=child.own)

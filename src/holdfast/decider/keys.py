"""A step is found again by its key: its place in the tree of tasks, its name, and how often that name came up there.

The key is not a position. So adding, removing or reordering steps with other names leaves a step's key as it is. A key
is made of components joined by `/`. A component is a word, `word#k` for the k-th occurrence of the word, or
`word:free text` for an explicit key, which can only come last. Words never contain these three characters, so two
different places never have the same key.
"""

from __future__ import annotations

from holdfast.errors import WorkflowError

_RESERVED = str.maketrans("/#:\0", "____")
"""The three characters, and NUL, which PostgreSQL's text cannot contain."""


def word(text: str) -> str:
    """Return `text` as a word of a key."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # half of a surrogate pair cannot be stored
    return text.translate(_RESERVED) or "_"


class Branch:
    """One place in the tree of tasks, and the labels used there so far."""

    __slots__ = ("counts", "path", "prefix", "used", "wraps_one_call")

    def __init__(self, path: str, *, wraps_one_call: bool = False) -> None:
        self.path = path
        self.prefix = path + "/" if path else ""
        self.counts: dict[str, int] = {}
        self.wraps_one_call = wraps_one_call
        """The task only wraps one call, as in `gather(charge(1), charge(2))`. That call's key is the task's path."""
        self.used = False

    def name(self, label: str) -> str:
        """Return the key of the next step with this label here."""
        if self.wraps_one_call:
            self.wraps_one_call, self.used = False, True
            return self.path
        if label in self.counts:
            return self.component(label)
        self.counts[label] = 1
        return self.prefix + label

    def component(self, label: str) -> str:
        """Return the path of the next task or step with this label here. Tasks and steps share one counter."""
        self.counts[label] = k = self.counts.get(label, 0) + 1
        if k == 1:
            return self.prefix + label
        if ":" in label:
            raise WorkflowError(
                f"the key {self.prefix + label!r} is used twice in this run: an explicit key must be unique "
                "among the calls of its step in one task"
            )
        return f"{self.prefix}{label}#{k}"

    def renamed(self, child: Branch, label: str, to: str) -> Branch:
        """Return the child's branch under another label. If the branch was used already, or another branch with its
        label came later, return it unchanged."""
        k = self.counts[label]
        last = self.prefix + label if k == 1 else f"{self.prefix}{label}#{k}"
        if child.used or child.counts or child.path != last:
            return child
        self.counts[label] -= 1
        return Branch(self.component(to), wraps_one_call=child.wraps_one_call)

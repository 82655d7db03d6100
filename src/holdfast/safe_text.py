"""Makes text safe to look at. A run's note or an exception's message may come from anybody."""

from __future__ import annotations

import re

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, which a terminal obeys; tab and new line are harmless
    "\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # these turn or hide the text around them
    "\ud800-\udfff"  # surrogates: halves of characters, which no stream can write
    "\U000e0000-\U000e0fff]"  # tags, and variation selectors that no emoji uses
)


def visible(text: str) -> str:
    """Return the text with every character that a terminal obeys or that nobody can see written as its number:
    `\\x1b`."""
    return _UNSEEN.sub(_escaped, text)


def visible_entry(text: str) -> str:
    """Do the same to one entry of a list or of a log. Its further lines are indented, so that none of them looks like another
    entry."""
    return visible(text).replace("\n", "\n    ")


def visible_json(line: str) -> str:
    """Do the same to a JSON document. It stays valid, because such characters can only be in its strings."""
    return _UNSEEN.sub(lambda found: _escaped_json(ord(found[0])), line)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped_json(code: int) -> str:
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"

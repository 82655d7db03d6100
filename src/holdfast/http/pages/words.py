"""What pages say and how it looks: states, times, values. Pure."""

from __future__ import annotations

import json
import re
import shlex
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from holdfast.durations import span as span_of


class Look(NamedTuple):
    """How a state looks: the class that gives it its colour, and its glyph."""

    colour: str
    glyph: str


STATES = {
    "succeeded": Look("ok", "ok"),
    "failed": Look("fail", "fail"),
    "undone": Look("back", "undo"),
    "undoing": Look("back", "undo"),
    "cancelled": Look("idle", "cancelled"),
    "running": Look("run", "run"),
    "waiting": Look("wait", "wait"),
    "ready": Look("idle", "ready"),
    "backing off": Look("back", "again"),
    "quarantined": Look("fail", "stuck"),
    "pending": Look("idle", "ready"),
    "held": Look("held", "held"),
    "stuck": Look("fail", "stuck"),
    "planned": Look("idle", "ready"),
    # of nodes
    "live": Look("run", "run"),
    "busy": Look("run", "run"),
    "idle": Look("idle", "ready"),
    "draining": Look("back", "wait"),
    "stalled": Look("fail", "stuck"),
    "offline": Look("idle", "fail"),
    "gone": Look("idle", "fail"),
    "left": Look("idle", "cancelled"),
    # of breakers and schedules
    "open": Look("fail", "fail"),
    "probing": Look("back", "again"),
    "closed": Look("ok", "ok"),
    "active": Look("ok", "ok"),
    "paused": Look("held", "held"),
    "ended": Look("idle", "cancelled"),
    # of acts, attempts and fates
    "planned act": Look("idle", "ready"),
    "done": Look("ok", "ok"),
    "stopped": Look("idle", "cancelled"),
    "changed": Look("back", "again"),
    "refused": Look("fail", "fail"),
    "timed out": Look("fail", "fail"),
    "lost": Look("fail", "lost"),
    "started": Look("ok", "ok"),
    "buffered": Look("wait", "wait"),
    "skipped": Look("idle", "cancelled"),
    "missed": Look("fail", "stuck"),
    "replaced": Look("back", "undo"),
    # of limits, and of occasions that started nothing
    "full": Look("back", "wait"),
    "expired": Look("back", "cancelled"),
}
"""By the word that people read. A test compares it with the glyphs and colours of the command line."""

RAIL = (
    (
        ("overview", "Overview", "/", "read", "o"),
        ("runs", "Runs", "/runs", "read", "r"),
        ("asks", "Asks", "/asks", "see_asks", "a"),
        ("alerts", "Alerts", "/alerts", "read", "l"),
    ),
    (
        ("workflows", "Workflows", "/workflows", "read_workflows", "w"),
        ("schedules", "Schedules", "/schedules", "read", "s"),
        ("triggers", "Triggers", "/triggers", "read", "c"),
        ("events", "Events", "/events", "read", "e"),
        ("callbacks", "Callbacks", "/callbacks", "read", "x"),
        ("backlog", "Backlog", "/backlog", "read", "q"),
        ("agents", "Agents", "/agents", "read", "n"),
        ("gates", "Breakers & holds", "/gates", "read", "b"),
        ("limits", "Limits", "/limits", "read", "m"),
        ("quarantine", "Quarantine", "/quarantine", "read", "u"),
    ),
    (
        ("acts", "Acts", "/acts", "read", "t"),
        ("audit", "Audit", "/audit", "audit", "d"),
        ("tokens", "Tokens", "/tokens", "administer", "k"),
    ),
)
"""The pages: name, word, address, what one must be allowed to do, and the key after g."""


def span(seconds: float | None) -> str:
    return "" if seconds is None else span_of(seconds)


def ago(seconds: float) -> str:
    """Return how long ago something was. Nobody needs a tenth of a second of that, and it would change too often."""
    if seconds < 1:
        return "just now"
    return f"{int(seconds)} s ago" if seconds < 10 else f"{span_of(seconds)} ago"


def sentence(text: str) -> str:
    """Return what a refusal says as a sentence. What may be a name at its beginning is left as it is."""
    made = text[:1].upper() + text[1:] if _WORD.match(text) else text
    return f"{made}." if made[-1:].isalnum() else made


def count(number: int) -> str:
    return f"{number:,}"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def share(part: float) -> str:
    if part >= 1:
        return "100 %"
    return f"{part * 100:.1f} %" if part > 0 else "0 %"


def short(text: str, width: int = 120) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def shell(text: str) -> str:
    """Return a word as it is written in a command."""
    return shlex.quote(text)


def iso(at: datetime | float | None) -> str:
    if at is None:
        return ""
    moment = datetime.fromtimestamp(at, UTC) if isinstance(at, int | float) else at
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock(at: datetime | None, now: datetime | None = None) -> str:
    """Return a time of day, with its day if that is not today."""
    if at is None:
        return ""
    is_today = now is not None and at.astimezone(UTC).date() == now.astimezone(UTC).date()
    return at.astimezone(UTC).strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M")


def value(raw: Any) -> Any:
    """Return a payload as a value."""
    if isinstance(raw, msgspec.Raw):
        raw = bytes(raw)
    if raw is None:
        return None
    return json.loads(raw)


class Part(NamedTuple):
    """A piece of JSON: what it is (k a key, s a string, empty the rest), and its text."""

    kind: str
    text: str


_WORD = re.compile(r"[a-z]+,? ")
_TOKENS = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)?')


def json_parts(given: Any) -> list[Part]:
    """Return a value as indented JSON in pieces that have colours."""
    text = json.dumps(value(given) if isinstance(given, msgspec.Raw) else given, indent=2, ensure_ascii=False)
    found, last = [], 0
    for token in _TOKENS.finditer(text):
        if token.start() > last:
            found.append(Part("", text[last : token.start()]))
        found.append(Part("k" if token[2] else "s", token[1]))
        if token[2]:
            found.append(Part("", token[2]))
        last = token.end()
    if last < len(text):
        found.append(Part("", text[last:]))
    return found


SYMBOLS = {
    "ok": '<path d="M3 8.6 6.4 12 13 4.4"/>',
    "fail": '<path d="M4 4l8 8M12 4l-8 8"/>',
    "undo": '<path d="M13.4 11.6A5.6 5.6 0 0 0 3.1 8.2"/><path d="M2 4.9l.9 3.6 3.6-.9"/>',
    "run": '<circle cx="8" cy="8" r="4.2" fill="currentColor" stroke="none"/>',
    "wait": '<circle cx="8" cy="8" r="5" stroke-dasharray=".1 3.83"/>',
    "ready": '<circle cx="8" cy="8" r="4.6"/>',
    "again": '<path d="M12.9 9.6A5.2 5.2 0 1 1 12.2 5"/><path d="M12.9 2.2v3.2H9.7"/>',
    "held": '<path d="M5.6 3.6v8.8M10.4 3.6v8.8"/>',
    "stuck": '<path d="M8 2.8v6.4"/><path d="M8 12.9v.1" stroke-width="2.4"/>',
    "cancelled": '<circle cx="8" cy="8" r="5.2"/><path d="M4.4 11.6l7.2-7.2"/>',
    "lost": '<path d="M8 2.4c-3 0-4.9 2-4.9 4.7 0 1.7.8 2.8 1.9 3.5v2.2h6v-2.2c1.1-.7 1.9-1.8 1.9-3.5 0-2.7-1.9-4.7-4.9-4.7z"/><path d="M6.1 7.2v.1M9.9 7.2v.1" stroke-width="2.2"/>',
    "mark": '<path d="M10 2.2v6.2"/><path d="M10 8.4c-3.7 0-6.3 2.4-6.3 5.3 0 2 1.2 3.2 2.6 3.2 2.4 0 3.7-3.3 3.7-8.5"/><path d="M10 8.4c3.7 0 6.3 2.4 6.3 5.3 0 2-1.2 3.2-2.6 3.2-2.4 0-3.7-3.3-3.7-8.5"/><path d="M7.2 4.4h5.6"/>',
    "overview": '<path d="M2.5 9.5h3l1.6-5 2.6 8 1.6-3h2.2"/>',
    "runs": '<path d="M2.5 4.2h6M5.5 8h6M4 11.8h9.5"/>',
    "asks": '<path d="M13.5 9.8a1.7 1.7 0 0 1-1.7 1.7H6.2l-3.2 2.3V4.2a1.7 1.7 0 0 1 1.7-1.7h7.1a1.7 1.7 0 0 1 1.7 1.7z"/>',
    "alerts": '<path d="M4.2 6.6a3.8 3.8 0 0 1 7.6 0c0 3.4 1.4 4.2 1.4 4.2H2.8s1.4-.8 1.4-4.2M6.8 13.4a1.4 1.4 0 0 0 2.4 0"/>',
    "workflows": '<circle cx="4" cy="4" r="1.7"/><circle cx="12" cy="8" r="1.7"/><circle cx="4" cy="12" r="1.7"/><path d="M5.7 4h1.6c1.6 0 1.6 4 3 4M5.7 12h1.6c1.6 0 1.6-4 3-4"/>',
    "schedules": '<circle cx="8" cy="8" r="5.5"/><path d="M8 4.8V8l2.2 1.4"/>',
    "agents": '<rect x="4" y="4" width="8" height="8" rx="1.6"/><path d="M6.4 1.8V4M9.6 1.8V4M6.4 12v2.2M9.6 12v2.2M1.8 6.4H4M1.8 9.6H4M12 6.4h2.2M12 9.6h2.2"/>',
    "gates": '<path d="M2 11h3.2M10.8 11H14M5.2 11 10 5.6"/><circle cx="5.2" cy="11" r=".8"/><circle cx="10.8" cy="11" r=".8"/>',
    "quarantine": '<path d="M8 1.9 13 4v4c0 3-2.1 5.2-5 6.1C5.1 13.2 3 11 3 8V4z"/><path d="M8 5.4v3M8 10.7v.1"/>',
    "limits": '<path d="M2.800 12a5.800 5.800 0 1 1 10.400 0"/><path d="m8 9.600 2.500-3.200"/>',
    "events": '<path d="M9 1.800 3.600 9h3.800l-.7 5.200L12.400 7H8.500z"/>',
    "triggers": '<path d="M2.500 4h2c2.800 0 2.200 4 5 4h4M2.500 12h2c2.800 0 2.200-4 5-4"/><path d="m11.200 5.700 2.300 2.300-2.300 2.300"/>',
    "callbacks": '<path d="M13.500 4.200H6.300a3.300 3.300 0 0 0 0 6.600h5"/><path d="m8.900 8.300 2.500 2.500-2.500 2.500"/>',
    "audit": '<path d="M3.5 2.5h7l2 2v9h-9z"/><path d="M6 6.5h4M6 9h4M6 11.5h2.5"/>',
    "tokens": '<circle cx="5.2" cy="10.8" r="2.7"/><path d="m7.2 8.8 5.6-5.6M10.6 5.4l1.8 1.8"/>',
    "search": '<circle cx="7" cy="7" r="4.3"/><path d="m10.4 10.4 3.1 3.1"/>',
    "more": '<path d="M3.5 8h.1M8 8h.1M12.5 8h.1" stroke-width="2.4"/>',
    "close": '<path d="m4 4 8 8M12 4l-8 8"/>',
    "copy": '<rect x="5.5" y="5.5" width="8" height="8" rx="1.6"/><path d="M3.5 10.5h-.3a.7.7 0 0 1-.7-.7V3.2c0-.4.3-.7.7-.7h6.6c.4 0 .7.3.7.7v.3"/>',
    "right": '<path d="m6 3.5 4.5 4.5L6 12.5"/>',
    "left": '<path d="M10 3.5 5.5 8l4.5 4.5"/>',
    "down": '<path d="M3.5 6 8 10.5 12.5 6"/>',
    "plus": '<path d="M8 3.5v9M3.5 8h9"/>',
    "minus": '<path d="M3.5 8h9"/>',
    "fit": '<path d="M2.5 8h11M5 5.5 2.5 8 5 10.5M11 5.5 13.5 8 11 10.5"/>',
    "sun": '<circle cx="8" cy="8" r="2.8"/><path d="M8 1.6v1.2M8 13.2v1.2M1.6 8h1.2M13.2 8h1.2M3.5 3.5l.8.8M11.7 11.7l.8.8M12.5 3.5l-.8.8M4.3 11.7l-.8.8"/>',
    "keep": '<path d="M8 2v12M5 5h6M3 10c.6 2.6 2.4 4 5 4s4.400-1.400 5-4"/>',
    "star": '<path d="m8 2.2 1.8 3.7 4 .5-2.900 2.800.7 4L8 11.300l-3.600 1.900.7-4L2.200 6.400l4-.5z"/>',
    "backlog": '<path d="M2.5 4.5 8 2l5.5 2.5L8 7zM2.5 8 8 10.5 13.5 8M2.5 11.5 8 14l5.5-2.5"/>',
    "acts": '<path d="M2.5 4.5 4 6l2.500-3M2.5 11 4 12.500 6.500 9.500M9 4.500h4.500M9 11.500h4.500"/>',
    "moon": '<path d="M13 9.600A5.400 5.400 0 0 1 6.400 3 5.400 5.400 0 1 0 13 9.600z"/>',
    "auto": '<circle cx="8" cy="8" r="5.500"/><path d="M8 2.500v11A5.500 5.500 0 0 0 8 2.500z" fill="currentColor" stroke="none"/>',
}
"""The shapes of glyphs and icons, which are ours: the only markup that is not escaped."""

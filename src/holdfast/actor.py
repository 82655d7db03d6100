"""Names who acts, for the journal."""

from __future__ import annotations

import getpass


def actor() -> str:
    """Return the name of this process's user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"

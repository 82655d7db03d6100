"""Who acts, for the journal."""

from __future__ import annotations

import getpass


def actor() -> str:
    """The user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"

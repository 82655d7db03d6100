"""The locks of events: of types, of the values that waits name, and of occasions. Each is one of a few numbers, so that
even a transaction with many events takes only that many of the server's locks."""

from __future__ import annotations

from hashlib import blake2b

LOCKS = 1024
"""How many locks the values of events share. A transaction with many events takes no more than these."""


def lock_number(*parts: str) -> int:
    """Return the number of the lock that these texts share with others."""
    made = blake2b("\0".join(parts).encode(), digest_size=4).digest()
    return int.from_bytes(made) % LOCKS

"""Text that is stored as it is: keys, notes, tags. What one store cannot hold, neither takes."""

from __future__ import annotations

from holdfast.errors import InvalidInput


def stored_text(value: object, what: str) -> str:
    """The text, or InvalidInput that names it: PostgreSQL's text holds no NUL, and no text is half a character."""
    if not isinstance(value, str):
        raise InvalidInput(f"{what}: text, not a {type(value).__name__}")
    if "\0" in value:
        raise InvalidInput(
            f"{what}: {value[:50]!r} holds a NUL character, which cannot be stored: leave it out"
        )
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidInput(
                f"{what}: {value[:50]!r} holds half of a surrogate pair, which is not a character: leave it out"
            ) from None
    return value

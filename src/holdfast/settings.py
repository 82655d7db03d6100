"""Settings files: TOML, or JSON if the name ends in .json. Each module that uses a part of such a file says what that part
looks like."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast.errors import InvalidSettings

T = TypeVar("T")


def read_settings(path: Path) -> Any:
    """Return what a settings file says. Raise InvalidSettings if it cannot be read."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidSettings(f"cannot read {path}: {error.strerror or error}") from None
    try:
        return msgspec.json.decode(text) if path.suffix == ".json" else msgspec.toml.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"{path}: {error}") from None


def checked_settings(value: Any, type: type[T], where: str) -> T:
    """Return settings in their type. Raise InvalidSettings with the place of what is wrong."""
    try:
        return msgspec.convert(value, type)
    except msgspec.ValidationError as error:
        raise InvalidSettings(f"{where}: {error}") from None

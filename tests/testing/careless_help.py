"""A function that a workflow calls. Nothing reads its code when the workflow is declared."""

from datetime import datetime


def stamp() -> str:
    return datetime.now().isoformat(timespec="hours")  # noqa: DTZ005

"""What a workflow calls, and nobody looks into when it is declared."""

from datetime import datetime


def stamp() -> str:
    return datetime.now().isoformat(timespec="hours")  # noqa: DTZ005

"""A run in time, for pictures: rows for the places in its code, bars for attempts and waits, quiet time folded. Pure: rows of
the store in, rows of the picture out."""

from holdfast.timeline.picture import Bar, Density, Fold, Mark, Row, Say, Timeline, Turn, UndoPart
from holdfast.timeline.timeline import Only, Sources, drawn

__all__ = [
    "Bar",
    "Density",
    "Fold",
    "Mark",
    "Only",
    "Row",
    "Say",
    "Sources",
    "Timeline",
    "Turn",
    "UndoPart",
    "drawn",
]

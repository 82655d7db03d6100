"""Schedules, as authors write them.

from holdfast.schedules import Calendar, every, occasion

norway = Calendar("norway", days=["2026-12-25", "2026-12-26"], until="2026-12-31")
every("0 3 * * 1-5", tz="Europe/Oslo", skip=norway, jitter=60)(nightly, "today")
"""

from holdfast.times import Calendar
from holdfast.workflow.every import Every, every
from holdfast.workflow.occasion import Occasion, occasion

__all__ = ["Calendar", "Every", "Occasion", "every", "occasion"]

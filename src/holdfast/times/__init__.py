"""When a schedule fires: cron expressions, intervals, dates, calendars and time zones. All of it is pure: the times come
from texts alone, and the time that it is now is an argument.

    zones.py     a time zone: local times and instants
    cron.py      cron expressions
    grammar.py   the texts that authors write for times
    calendars.py sets of days
    plan.py      all that is written about a schedule, and the times that follow from it
    decision.py  what becomes of the times that have come
"""

from holdfast.times.calendars import Calendar
from holdfast.times.plan import Plan, Preview
from holdfast.times.zones import TZDATA

__all__ = ["TZDATA", "Calendar", "Plan", "Preview"]

"""The Scheduler: runs workflow code and decides which steps come next. See scheduler.py."""

from holdfast.scheduler.owned_run import Seat as Seat
from holdfast.scheduler.owned_run import SeatedStep as SeatedStep
from holdfast.scheduler.scheduler import Scheduler as Scheduler

"""Events, as authors write them.

from holdfast.events import Event

paid = Event("payment.received", Payment)          # by="subject", or by="data.order.id"
payment = await paid.wait("order-42", timeout=timedelta(days=3))

when(all_of(every("0 8 * * 1-5"), "rates.published"), within=timedelta(hours=2))(report)
"""

from holdfast.wire.events import EmittedEvent
from holdfast.workflow.event import Event
from holdfast.workflow.when import all_of, any_of, several, when

__all__ = ["EmittedEvent", "Event", "all_of", "any_of", "several", "when"]

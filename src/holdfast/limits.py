"""Limits, as authors write them.

from holdfast.limits import Limit, Rate

@step(limits=[Limit("customer:{fair}", 5), Rate("stripe", 100, per=60, burst=10)])
"""

from holdfast.workflow.limits import Limit, Rate

__all__ = ["Limit", "Rate"]

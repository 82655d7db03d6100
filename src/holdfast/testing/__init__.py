"""A kit for testing workflows: simulated time, processes that die on demand, and the real product between them.

The pytest fixture `sim` is a `Sim`. With another test framework, `with Sim() as sim:` does the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.testing.crashes import NotEnded
    from holdfast.testing.report import Boundary, Finding, Report, Untried
    from holdfast.testing.sim import Call, Sim, SimRun, SimSchedule

__all__ = ["Boundary", "Call", "Finding", "NotEnded", "Report", "Sim", "SimRun", "SimSchedule", "Untried"]

_PLACES = {"NotEnded": "crashes"} | dict.fromkeys(("Boundary", "Finding", "Report", "Untried"), "report")


def __getattr__(name: str) -> Any:
    """Load each module when it is first needed, so that code that only needs the virtual loop does not load the rest."""
    if name not in __all__:
        raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  see above

    return getattr(import_module(f"holdfast.testing.{_PLACES.get(name, 'sim')}"), name)

"""For those who test workflows: simulated time, processes that die when told to, and the real product between them.

The fixture `sim` is a `Sim`; with another test framework, `with Sim() as sim:` is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.testing.crashes import NotEnded
    from holdfast.testing.report import Boundary, Finding, Report, Untried
    from holdfast.testing.sim import Call, Sim, SimRun

__all__ = ["Boundary", "Call", "Finding", "NotEnded", "Report", "Sim", "SimRun", "Untried"]

_PLACES = {"NotEnded": "crashes"} | dict.fromkeys(("Boundary", "Finding", "Report", "Untried"), "report")


def __getattr__(name: str) -> Any:
    """Whoever only wants the virtual loop or the world does not load the rest."""
    if name not in __all__:
        raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  see above

    return getattr(import_module(f"holdfast.testing.{_PLACES.get(name, 'sim')}"), name)

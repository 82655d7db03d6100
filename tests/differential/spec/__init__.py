"""What the State Store promises, as a small program: the rules of starting, claiming, leases, fences and delivery, of
gates, quarantine, twins and alerts.

It has plain rows in dictionaries and one method for each verb of the store. It has no SQL and never waits. The tests
here run it beside both dialects and compare. The model check (`tests/modelcheck`) searches its state space. Every
transition of a row goes through the table of `holdfast.lifecycle` and raises the row's fence.

Time is a number of hours, which the caller moves. What may differ between the dialects (ids, texts of errors) has names
here.
"""

from __future__ import annotations

from tests.differential.spec.acts import Acting
from tests.differential.spec.alerts import Alerting
from tests.differential.spec.durations import Learning
from tests.differential.spec.gates import Gating
from tests.differential.spec.retention import Retention
from tests.differential.spec.rows import (
    NEVER,
    Alert,
    Delivery,
    Lease,
    Listed,
    Logged,
    Node,
    Run,
    Signal,
    Step,
    Twin,
    WrongState,
)
from tests.differential.spec.schedulers import Scheduling

__all__ = [
    "NEVER",
    "Alert",
    "Delivery",
    "Lease",
    "Listed",
    "Logged",
    "Node",
    "Run",
    "Signal",
    "Spec",
    "Step",
    "Twin",
    "WrongState",
]


class Spec(Scheduling, Gating, Retention, Learning, Alerting, Acting):
    """The rows, and the verbs that change them."""

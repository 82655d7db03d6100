"""What a person should know before an act: what keeps its runs from going on at once."""

from __future__ import annotations

from holdfast.desk.plans import PlanTally, warnings
from holdfast.model import HoldScope
from holdfast.namespaces import namespace_of
from holdfast.store.origins import Offers
from holdfast.store.store import Store


async def cautions(store: Store, tally: PlanTally) -> list[str]:
    """Return what keeps the runs of a plan from going on at once."""
    if not tally.code:
        return []
    live = [node for node in await store.nodes.nodes() if node.retired_at is None]
    offers, wanted = (
        [Offers.read(node.offers) for node in live],
        (f"{name}@{version}" for name, version in tally.code),
    )
    code = {one for one in wanted if any(each.has("workflows", one) for each in offers)}
    seen = {namespace_of(name) for name, _ in tally.code}
    breakers = [row for row in await store.gates.breakers() if namespace_of(row.name) in seen]
    holds = [
        row
        for row in await store.gates.holds()
        if row.scope is HoldScope.ALL
        or (row.value if row.scope is HoldScope.NAMESPACE else namespace_of(row.value)) in seen
    ]
    return warnings(tally, code, breakers, holds)

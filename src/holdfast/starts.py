"""How a workflow takes several starts with one run.

from holdfast.starts import Batch, Debounce

@workflow(debounce=Debounce("doc:{id}", quiet=10, at_most=300))
async def index(id: str) -> None: ...
"""

from holdfast.workflow.gather import Batch, Debounce

__all__ = ["Batch", "Debounce"]

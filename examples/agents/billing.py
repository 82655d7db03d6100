"""A workflow whose steps are executed by agents in other languages, through a server.

holdfast up billing.py --port 8080                       # the workflow, and the server
HOLDFAST_SERVER=http://127.0.0.1:8080 ./agent.sh         # executes billing.charge
HOLDFAST_SERVER=http://127.0.0.1:8080 node agent.mjs     # executes billing.receipt
holdfast start billing.py:order --id order-1 --input '{"card": "tok_1", "cents": 900}' --store http://127.0.0.1:8080
"""

from __future__ import annotations

from holdfast import step, workflow


@step(name="billing.charge", elsewhere=True, retry=5)
async def charge(card: str, cents: int) -> dict[str, str]:
    """Declares the step: its name, its types and its policy. An agent in another language has the code."""
    raise NotImplementedError


@step(name="billing.receipt", elsewhere=True, retry=5, timeout=60)
async def receipt(charged: dict[str, str], line: int) -> str:
    raise NotImplementedError


@workflow(name="billing.order")
async def order(card: str, cents: int) -> list[str]:
    charged = await charge(card, cents)
    return [await receipt(charged, line) for line in range(3)]

"""A payment provider that calls back: the charge takes hours, and its result comes by an address that works once.

    holdfast up examples/subscription.py --alerts alerts.toml --port 8080
    holdfast run examples/subscription.py:subscribe --input '["tok_1", 900]' --id sub-1 --no-wait
    holdfast callback sub-1 charge --data '{"receipt": "r-77"}'

`alerts.toml` needs one line: `public_url = "https://holdfast.example.com"`.

What it shows:
- `@step(callback=True)`: the step hands `here.callback` on and returns, and nothing runs while the provider works;
- `expires=`: a provider that forgets it is asked again, with another address and another `here.key`;
- the undo gets what the provider said, or None if nobody knows whether it took the money.
"""

from __future__ import annotations

import json
import os
import urllib.request
from dataclasses import dataclass
from datetime import timedelta

from holdfast import Retry, Stop, here, step, workflow
from holdfast.errors import StepFailed

PROVIDER = os.environ.get("PROVIDER_URL", "http://localhost:9000/charges")


@dataclass(frozen=True)
class Receipt:
    receipt: str


def send(path: str, **body: object) -> None:
    """Post to the provider."""
    request = urllib.request.Request(
        PROVIDER + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(request, timeout=10).close()


@step(callback=True, expires=timedelta(hours=2), retry=Retry(attempts=5, timeouts=2))
def charge(card: str, cents: int) -> Receipt:
    """Ask the provider for the money. It answers when it has it: within seconds, or within hours."""
    send("", card=card, cents=cents, key=here.key, notify=here.callback)
    return here.later()


@charge.undo
def refund(receipt: Receipt | None, card: str, cents: int) -> None:
    """Without a receipt, the provider finds out by the key whether there is anything to give back."""
    send("/refunds", receipt=None if receipt is None else receipt.receipt, key=here.undoes)


@step
def activate(card: str) -> str:
    return f"subscription of {card}"


@workflow
async def subscribe(card: str, cents: int) -> str:
    """Take the money, then activate the subscription."""
    try:
        await charge(card, cents)
    except TimeoutError:
        raise Stop("the provider did not answer") from None
    except StepFailed as failed:
        raise Stop(f"the card was declined: {failed.error_type}") from None
    return await activate(card)

"""Expense approval with four eyes: two people of the finance team approve, and neither of them asked for the money.

    holdfast up examples/expense.py
    holdfast start examples/expense.py:reimburse --by person:eva --input '{"expense": {"who": "eva", "cents": 48000, "what": "train"}}'
    holdfast asks
    holdfast answer ASK --by person:anna --data '{"ok": true}'
    holdfast answer ASK --by person:bob --data '{"ok": true, "cap_cents": 40000}'

What it shows:
- `ask(…, of=2, not_by="starter")`: the run waits at no cost until two others have answered;
- the type of the answer is the form, and what does not fit it is refused;
- the workflow decides what the answers mean: the lowest cap counts, and one no is a no;
- after a day the head of finance may answer, too, and after three days the expense is declined.

Payments go to work/expenses.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from holdfast import ask, here, step, workflow


@dataclass(frozen=True)
class Expense:
    who: str
    cents: int
    what: str


@dataclass(frozen=True)
class Approval:
    ok: bool
    cap_cents: int | None = None
    """At most this much is paid."""


@dataclass(frozen=True)
class Decision:
    paid_cents: int
    why: str


@step
def pay(expense: Expense, cents: int, folder: str) -> None:
    """Write one file for each payment, under the key of this step: paying again writes the same."""
    path = Path(folder, f"{here.key.replace('/', '_').replace(':', '_')}.txt")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{expense.who} {cents}\n")


@workflow
async def reimburse(expense: Expense, folder: str = "work/expenses") -> Decision:
    try:
        answers = await ask(
            "team:finance",
            f"Pay {expense.cents / 100:.2f} to {expense.who}?",
            Approval,
            show=expense,
            of=2,
            not_by="starter",
            remind=timedelta(hours=8),
            escalate=[(timedelta(days=1), "person:head-of-finance")],
            timeout=timedelta(days=3),
        )
    except TimeoutError:
        return Decision(0, "nobody had the time to look at it")
    refused = [one.by for one in answers if not one.value.ok]
    if refused:
        return Decision(0, f"declined by {', '.join(refused)}")
    caps = [one.value.cap_cents for one in answers if one.value.cap_cents is not None]
    cents = min([expense.cents, *caps])
    await pay(expense, cents, folder)
    return Decision(cents, f"approved by {', '.join(one.by for one in answers)}")

"""Questions to people, as authors write them.

from holdfast.people import Answered, ask

answers = await ask("team:finance", "Pay it?", Approval, show=expense, of=2, not_by="starter")
"""

from holdfast.workflow.ask import Answered, ask

__all__ = ["Answered", "ask"]

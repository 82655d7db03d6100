"""Acts on many runs, as programs name them.

from holdfast.acts import Act, ActInfo

plan: Act = await hf.plan("cancel", workflow="order", state="held", since="2h")
done: ActInfo = await plan.carry_out()
"""

from holdfast.desk.acts import Act, ActInfo

__all__ = ["Act", "ActInfo"]

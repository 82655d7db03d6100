"""A pool of agents whose number follows the work. plan.py decides how many agents there should be. fleet.py says what
can start and stop them; on this host they are processes (local.py). pool.py does a pass that joins the two with what
the store knows.

May change: which agents run. Must never: touch a run or a step; agents drain by themselves.
"""

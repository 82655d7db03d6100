"""Agents kept at strength: how many there should be (plan.py), what starts and stops them (fleet.py), and the pass that
joins the two with what the store knows (pool.py). On this host they are processes (local.py).

May change: which agents run. Must never: touch a run or a step; agents drain by themselves.
"""

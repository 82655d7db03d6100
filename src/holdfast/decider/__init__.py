"""The deterministic loop and replay: a run's code as a pure function of its recorded history.

`Decider` takes outcomes one at a time and answers with a `Turn`: what the workflow's code asked for. It does no I/O,
starts no thread and reads no clock. The scheduler that drives it writes the turn and the delivery in one commit.
"""

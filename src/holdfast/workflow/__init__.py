"""What authors use: steps, workflows, signals, `here`, and the deterministic `now`, `random` and `uuid4`.

Import the names from `holdfast`. Here each noun has a file of its own. Nothing in this package touches the store:
inside a run everything becomes a command of the decider, and outside of a run it simply runs.
"""

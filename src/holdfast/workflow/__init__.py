"""What authors use: steps, workflows, signals, `here`, and the deterministic `now`, `random` and `uuid4`.

Import the names from `holdfast`; the files here are one per noun. Nothing in this package touches the store: inside a
run everything becomes a command of the decider, outside of one it simply runs.
"""

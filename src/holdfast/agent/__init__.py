"""The Agent claims steps that it can execute, executes them, and reports the outcomes. See agent.py."""

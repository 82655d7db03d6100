"""The Agent: claims steps it is capable of, executes them, reports the outcome. See agent.py."""

from holdfast.agent.agent import Agent as Agent

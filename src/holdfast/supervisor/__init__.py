"""The Supervisor: notices what is lost, late or ownerless, and remedies it. See supervisor.py."""

from holdfast.supervisor.supervisor import Supervisor as Supervisor

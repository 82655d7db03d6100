"""The Supervisor: finds what is lost, overdue or without an owner, and mends it. See supervisor.py."""

"""Channels, by which alerts reach people: webhook, e-mail, command. settings.py makes them from a settings file, and is
imported only if there is one. Alerts in the log need no channel: see supervisor/alerts.py."""

from holdfast.supervisor.channels.channel import Channel as Channel
from holdfast.supervisor.channels.channel import Notice as Notice
from holdfast.supervisor.channels.channel import NotSent as NotSent

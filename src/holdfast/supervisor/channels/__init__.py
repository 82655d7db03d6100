"""How alerts reach people: webhook, e-mail, command. settings.py makes them from a file, and is loaded only when there is one.
The log needs no channel: see supervisor/alerts.py."""

from holdfast.supervisor.channels.channel import Channel as Channel
from holdfast.supervisor.channels.channel import Notice as Notice
from holdfast.supervisor.channels.channel import NotSent as NotSent

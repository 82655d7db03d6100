"""The settings file in which an operator configures channels: TOML or JSON. It names the environment variables that
have the secrets, and not the secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast.environment import Environment
from holdfast.errors import InvalidSettings
from holdfast.model import AlertKind
from holdfast.questions import PERSON, TEAM, is_who
from holdfast.settings import checked_settings, read_settings
from holdfast.supervisor.channels.channel import Channel
from holdfast.supervisor.channels.command import Command
from holdfast.supervisor.channels.mail import Mail
from holdfast.supervisor.channels.webhook import Webhook

LevelName = Literal["info", "warning", "error"]


class _CommonSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    level: LevelName = "warning"
    """The channel sends only alerts of this level or above."""
    kinds: tuple[AlertKind, ...] = ()
    """The channel sends only alerts of these kinds; all kinds if it is empty."""
    timeout_s: float = 10.0
    """A try that takes longer has failed."""


class WebhookSettings(_CommonSettings, tag="webhook", kw_only=True):
    url: str | None = None
    url_env: str | None = None
    """The environment variable with the address, if the address is itself a secret."""
    secret_env: str | None = None
    """The environment variable with the shared secret that signs deliveries."""
    allow: tuple[str, ...] = ()
    """Networks that are not public and to which the webhook may connect all the same: ["10.1.0.0/16"]."""
    ca_file: str | None = None


class MailSettings(_CommonSettings, tag="email", kw_only=True):
    host: str
    port: int | None = None
    tls: Literal["starttls", "tls", "none"] = "starttls"
    sender: str = msgspec.field(name="from")
    to: tuple[str, ...]
    user: str | None = None
    password_env: str | None = None
    ca_file: str | None = None


class CommandSettings(_CommonSettings, tag="command", kw_only=True):
    argv: tuple[str, ...]
    env: tuple[str, ...] = ()
    """Environment variables that the program gets beside the few that every program needs."""


class ReachedBy(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    channels: tuple[str, ...]
    """The names of the channels by which a person or a team is notified."""


class AlertSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    channels: dict[str, WebhookSettings | MailSettings | CommandSettings] = {}
    people: dict[str, ReachedBy] = {}
    teams: dict[str, ReachedBy] = {}
    public_url: str | None = None
    """Where people and other systems reach a server: links to questions and the addresses of callbacks begin with it."""
    oidc: dict[str, Any] = {}
    """Whose tokens a server takes beside its own. The same file may have both; this part is the server's."""


def load_channels(
    given: str | Path | Mapping[str, Any], environment: Environment, secrets: Mapping[str, str] | None = None
) -> list[Channel]:
    """Return the channels of a settings file, or of a dict with the same content. `secrets` replaces the process's
    environment."""
    secrets = os.environ if secrets is None else secrets
    settings = _settings(given)
    channels = [_channel(name, one, environment, secrets) for name, one in settings.channels.items()]
    for channel in channels:
        channel.public_url = settings.public_url
    by_name = {channel.name: channel for channel in channels}
    for kind, reached in ((PERSON, settings.people), (TEAM, settings.teams)):
        for name, by in reached.items():
            if not is_who(kind + name):
                raise InvalidSettings(f"{kind}{name} cannot be the name of a person or a team")
            for named in by.channels:
                if named not in by_name:
                    raise InvalidSettings(f"{kind}{name}: there is no channel {named!r}")
                by_name[named].people |= {kind + name}
    return channels


def public_url_of(given: str | Path | Mapping[str, Any]) -> str | None:
    """Return where servers are reached, if the settings say it. All processes on the store get to know it."""
    url = _settings(given).public_url
    if url is None:
        return None
    if not url.startswith(("https://", "http://")) or any(char.isspace() for char in url) or "?" in url:
        raise InvalidSettings(
            f"public_url: expected the address of a server, such as https://holdfast.example.com, not {url!r}"
        )
    return url.rstrip("/")


def _settings(given: str | Path | Mapping[str, Any]) -> AlertSettings:
    if isinstance(given, str | Path):
        return checked_settings(read_settings(Path(given)), AlertSettings, str(given))
    return checked_settings(given, AlertSettings, "the alert settings")


def _channel(
    name: str,
    settings: WebhookSettings | MailSettings | CommandSettings,
    environment: Environment,
    secrets: Mapping[str, str],
) -> Channel:
    def secret(variable: str | None) -> str | None:
        if variable is None:
            return None
        if not secrets.get(variable):
            raise InvalidSettings(f"channel {name!r}: the environment variable {variable} is not set")
        return secrets[variable]

    if not 0 < settings.timeout_s <= 300:
        raise InvalidSettings(f"channel {name!r}: timeout_s must be above 0 and at most 300")
    more: dict[str, Any] = {
        "environment": environment,
        "timeout_s": settings.timeout_s,
        "level": settings.level,
        "kinds": settings.kinds,
    }
    if isinstance(settings, WebhookSettings):
        url = secret(settings.url_env) or settings.url
        if url is None:
            raise InvalidSettings(f"channel {name!r}: name its address by `url` or `url_env`")
        return Webhook(
            name,
            url=url,
            secret=secret(settings.secret_env),
            allow=settings.allow,
            ca_file=settings.ca_file,
            **more,
        )
    if isinstance(settings, MailSettings):
        return Mail(
            name,
            host=settings.host,
            port=settings.port,
            tls=settings.tls,
            sender=settings.sender,
            to=settings.to,
            user=settings.user,
            password=secret(settings.password_env),
            ca_file=settings.ca_file,
            **more,
        )
    return Command(name, argv=settings.argv, env={one: secret(one) or "" for one in settings.env}, **more)

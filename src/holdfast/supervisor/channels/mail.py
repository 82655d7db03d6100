"""A channel that sends e-mail by SMTP, with STARTTLS unless the settings say otherwise."""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate

from holdfast.errors import InvalidSettings
from holdfast.outbound import in_thread, tls_context
from holdfast.supervisor.channels.channel import Channel, Notice, NotSent


class Mail(Channel):
    type = "email"

    def __init__(
        self,
        name: str,
        *,
        host: str,
        port: int | None,
        tls: str,
        sender: str,
        to: tuple[str, ...],
        user: str | None,
        password: str | None,
        ca_file: str | None,
        **more: object,
    ) -> None:
        super().__init__(name, secrets=[password or ""], **more)  # type: ignore[arg-type]
        if not to:
            raise InvalidSettings(f"channel {name!r}: `to` names nobody")
        if password and tls == "none":
            raise InvalidSettings(f"channel {name!r}: a password without TLS would be sent in the clear")
        self._host, self._port = host, port or {"starttls": 587, "tls": 465}.get(tls, 25)
        self._tls = tls
        self._context = tls_context(f"channel {name!r}", ca_file) if tls != "none" else None
        self._sender, self._to = sender, to
        self._user, self._password = user, password
        try:
            self._message(Notice(delivery="0", event="test", kind="test", level="info", message="test"))
        except ValueError as error:
            raise InvalidSettings(f"channel {name!r}: {error}") from None

    async def send(self, notice: Notice) -> None:
        message = self._message(notice)
        try:
            await in_thread(lambda: self._hand_over(message))
        except smtplib.SMTPResponseException as error:
            raise NotSent(f"the mail server answered {error.smtp_code}") from None
        except smtplib.SMTPRecipientsRefused:
            raise NotSent("the mail server refused every recipient") from None
        except ssl.SSLCertVerificationError as error:
            raise NotSent(f"the mail server's certificate is not valid: {error.verify_message}") from None
        except (smtplib.SMTPException, OSError) as error:
            raise NotSent(f"the mail server: {getattr(error, 'strerror', None) or error}") from None

    def _message(self, notice: Notice) -> EmailMessage:
        message = EmailMessage()
        message["From"] = self._sender
        message["To"] = ", ".join(self._to)
        message["Subject"] = " ".join(f"[holdfast] {notice.level}: {notice.line}".split())[:180]
        message["Date"] = formatdate(self._environment.now())
        message["Message-ID"] = f"<{notice.delivery}@holdfast>"
        lines = [notice.line, ""]
        if notice.run is not None:
            lines += [f"holdfast show {notice.run}", f"holdfast why {notice.run}", ""]
        lines += [f"alert {notice.alert}, {notice.event}", f"delivery {notice.delivery}"]
        message.set_content("\n".join(lines))
        return message

    def _hand_over(self, message: EmailMessage) -> None:
        if self._tls == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                self._host, self._port, timeout=self.timeout_s, context=self._context
            )
        else:
            server = smtplib.SMTP(self._host, self._port, timeout=self.timeout_s)
        with server:
            if self._tls == "starttls":
                server.starttls(context=self._context)
            if self._user is not None and self._password is not None:
                server.login(self._user, self._password)
            server.send_message(message, self._sender, list(self._to))

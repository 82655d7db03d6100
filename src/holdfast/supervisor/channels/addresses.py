"""To which addresses a webhook may connect. Its host name is resolved once, every address of it is checked, and the
webhook connects to a checked address."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from holdfast.supervisor.channels.channel import NotSent, in_thread

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_INSIDE_4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
"""IPv4 networks that are not public. They are listed here because Python's own list differs from version to version."""
_OUTSIDE_6 = IPv6Network("2000::/3")
_INSIDE_6 = tuple(IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))
"""Networks within that one that are not public: tunnels, whose far end nobody knows, and addresses for
documentation."""
_TRANSLATED = IPv6Network("64:ff9b::/96")
"""By such an address a host that has only IPv6 reaches an IPv4 host. Its last 32 bits are the IPv4 address."""


def networks(texts: Sequence[str]) -> list[Network]:
    return [ip_network(text, strict=False) for text in texts]


def carried(address: Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address stands for; None if it stands for none."""
    if not isinstance(address, IPv6Address):
        return None
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped


def is_public(address: Address) -> bool:
    """True if the address means the same host everywhere on the internet."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _INSIDE_4)
    inner = carried(address)
    if inner is not None:
        return is_public(inner)
    return address in _OUTSIDE_6 and not any(address in network for network in _INSIDE_6)


def is_allowed(address: Address, allowed: Sequence[Network]) -> bool:
    """True if the address is public, or is in a network that the settings name."""
    inner = carried(address)
    both = [one for one in (address, inner) if one is not None]
    return is_public(address) or any(
        one.version == network.version and one in network for one in both for network in allowed
    )


async def checked_addresses(host: str, port: int, allowed: Sequence[Network]) -> list[str]:
    """Return the addresses of `host`. Raises NotSent if a webhook may not connect to one of them."""

    def resolve() -> list[str]:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))

    try:
        texts = await in_thread(resolve)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a host name"
        raise NotSent(f"the host cannot be resolved: {reason}") from None
    for text in texts:
        if not is_allowed(ip_address(text), allowed):
            raise NotSent(
                f"the host resolves to {text}, which is not a public address: if that is intended, name its network in `allow`"
            )
    return texts

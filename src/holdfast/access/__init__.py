"""Who may do what: identities, roles and tokens. Pure: nothing here reads a clock, a row or a file."""

from holdfast.access.identity import ALL_NAMESPACES, Identity, Kind, local
from holdfast.access.roles import MAY, STORE_WIDE, Act, Role

__all__ = ["ALL_NAMESPACES", "MAY", "STORE_WIDE", "Act", "Identity", "Kind", "Role", "local"]

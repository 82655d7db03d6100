"""Which file system a path is on, read from Linux's list of mounts."""

import pytest

from holdfast.store.sqlite.filesystem import network_file_system_of, network_kind

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:35 / /srv/share rw,relatime shared:9 - nfs4 server:/share rw,vers=4.2
41 40 0:36 / /srv/share/local rw - xfs /dev/sdb1 rw
42 22 0:37 / /mnt/with\\040space rw - cifs //server/share rw
43 22 0:38 / /home/me/ssh rw - fuse.sshfs me@server: rw
this line is none
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/holdfast.db", None),
        ("/srv/share/holdfast.db", "nfs4"),
        ("/srv/shared.db", None),
        ("/srv/share/local/holdfast.db", None),
        ("/mnt/with space/holdfast.db", "cifs"),
        ("/home/me/ssh/holdfast.db", "fuse.sshfs"),
    ],
)
def test_network_file_systems_are_distinguished_from_local_ones(path: str, kind: str | None) -> None:
    """The innermost mount around the path decides."""
    assert network_kind(path, MOUNTS) == kind


def test_a_local_file_is_not_network_file_system_of(tmp_path: object) -> None:
    """There is no warning on a system that has no list of mounts, either."""
    assert network_file_system_of(f"{tmp_path}/holdfast.db") is None
    assert network_kind("/x", "") is None

"""On which file system a file stands, as far as the system tells: SQLite's locks do not hold on those of the network."""

from __future__ import annotations

from pathlib import Path, PurePath

MOUNTS = Path("/proc/self/mountinfo")
NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "9p",
    "afs",
    "ceph",
    "glusterfs",
    "lustre",
    "fuse.sshfs",
    "fuse.s3fs",
    "fuse.rclone",
)
"""How the names of their kinds begin."""


def network_kind(path: str, mounts: str) -> str | None:
    """The kind of network file system that `path`, an absolute one, is on; None when it is a local one. `mounts` is what
    the system tells of its mounts: the last one that holds the path counts."""
    place, found = PurePath(path), ("", "")
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) < 5 or not kinds:
            continue
        folder = fields[4].replace("\\040", " ")
        if place.is_relative_to(folder) and len(folder) >= len(found[0]):
            found = folder, kinds[0]
    return found[1] if found[1].startswith(NETWORK) else None


def network_file_system_of(path: str) -> str | None:
    """The kind of network file system that a file is on. None where the system does not tell."""
    try:
        return network_kind(str(Path(path).resolve()), MOUNTS.read_text("utf-8", "replace"))
    except OSError:
        return None

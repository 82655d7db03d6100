"""Finds out whether a file is on a network file system, where SQLite's locks do not work."""

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
"""How the names of network file systems begin."""


def network_kind(path: str, mounts: str) -> str | None:
    """Return the kind of network file system that an absolute path is on, or None if its file system is local.

    `mounts` is the text of `mountinfo`. If several mounts contain the path, the one with the longest folder counts, and
    of those the last one.
    """
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
    """Return the kind of network file system that a file is on. None if it is local, or if the system has no
    `mountinfo`."""
    try:
        return network_kind(str(Path(path).resolve()), MOUNTS.read_text("utf-8", "replace"))
    except OSError:
        return None

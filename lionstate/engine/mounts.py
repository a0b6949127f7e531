"""Which file system a store lies on, as far as that decides whether a write-ahead log is safe there."""

from __future__ import annotations

from pathlib import Path

__all__ = ["shared_file_system"]

_MOUNTS = Path("/proc/self/mountinfo")
# Between machines, or between a machine and its guests: the log's index is memory that all processes must share, and
# there each side has its own.
_SHARED = frozenset(
    (
        *("9p", "prl_fs", "vboxsf", "virtiofs", "vmhgfs"),
        *("afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"),
        *("fuse.ceph", "fuse.glusterfs", "fuse.grpcfuse", "fuse.osxfs", "fuse.sshfs", "fuse.vmhgfs-fuse"),
    )
)


def shared_file_system(path: Path) -> str | None:
    """The type of the file system of a path when a write-ahead log is not safe on it.

    Returns:
        None for a local one, and where mounts are not told (anything but Linux).

    Cost: one read of the list of mounts.
    """
    try:
        listed = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return _type_if_shared(listed, path.resolve())


def _type_if_shared(listed: str, path: Path) -> str | None:
    """The same for a list of mounts: the deepest one above the path counts, of several at one place the last."""
    deepest, found = -1, ""
    for line in listed.splitlines():
        # id, parent, device, root, mount point, options, any number of fields, "-", type, source, options
        fields, _, described = line.partition(" - ")
        words = fields.split()
        if len(words) < 5 or not described:
            continue
        point = Path(_unescaped(words[4]))
        depth = len(point.parts)
        if depth >= deepest and path.is_relative_to(point):
            deepest, found = depth, described.split()[0]
    return found if found in _SHARED else None


def _unescaped(text: str) -> str:
    for octal, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, plain)
    return text

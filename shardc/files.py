"""Data files: read up to a size, written whole or not at all."""

import contextlib
import os
import stat
import tempfile
from pathlib import Path

import msgspec

MOST_BYTES = 1 << 28  # of a file of data: plans of thousands of devices have some megabytes

# What reading and decoding a file raises that is no data of ours: RecursionError is how msgspec
# refuses what is nested too deeply.
BAD_DATA = (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def read_data(path: str | Path) -> bytes:
    """The bytes of a regular file.

    Raises:
        OSError: it cannot be read, is a device or a pipe, or has more than `MOST_BYTES`.
    """
    with open(path, "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"'{path}' is no regular file")
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(f"'{path}' has more than {MOST_BYTES >> 20} MiB")
    return data


def write_whole(path: str | Path, data: bytes) -> None:
    """Writes a file by renaming: a reader finds the old one or the new one, and no part of it.

    Several processes may do it at once. The file has the permissions of a new one, or those that a
    file of that name had.

    Raises:
        OSError: it cannot be written; a file that was there is as it was.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        path.write_bytes(data)  # /dev/stdout and the like
        return
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), _mode(path))
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def private_folder(path: Path) -> None:
    """Makes a folder that no other user may look into, if it is not there, or makes it such a one.

    Raises:
        OSError: it belongs to somebody else, or cannot be made.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = path.stat()
    if found.st_uid != os.getuid():
        raise PermissionError(f"'{path}' belongs to another user")
    if stat.S_IMODE(found.st_mode) != 0o700:
        path.chmod(0o700)


def _mode(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _open_at_once(path: str, flags: int) -> int:
    """Opens a pipe that nobody writes to without waiting for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)

"""Data files: size-limited reads, atomic writes."""

import contextlib
import os
import stat
import tempfile
from pathlib import Path

import msgspec

MOST_BYTES = 1 << 28  # of a data file: plans for thousands of devices have a few megabytes

# Errors of reading and decoding a file that is not valid data: msgspec raises RecursionError for
# excessive nesting.
BAD_DATA = (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def as_path(path: object) -> Path:
    """The path of a file that a user named.

    Raises:
        OSError: it is something else, such as a number, which `open` would take for a descriptor.
    """
    if not isinstance(path, str | os.PathLike) or "\0" in (named := os.fspath(path)):
        raise OSError(f"{path!r} is not a path")
    return Path(os.fsdecode(named))


def read_data(path: str | Path) -> bytes:
    """The bytes of a regular file.

    Raises:
        OSError: it cannot be read, is a device or a pipe, or exceeds `MOST_BYTES`.
    """
    with open(as_path(path), "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"'{path}' is not a regular file")
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(f"'{path}' has more than {MOST_BYTES >> 20} MiB")
    return data


def write_whole(path: str | Path, data: bytes) -> None:
    """Writes a file atomically, by renaming: readers see the old file or the new one.

    Several processes may do so at once. A new file gets default permissions; an existing one
    keeps its own.

    Raises:
        OSError: it cannot be written; an existing file is unchanged.
    """
    path = Path(os.path.realpath(as_path(path)))
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
    """Makes a folder that only the user can access, or restricts an existing one.

    Raises:
        OSError: it belongs to another user, or cannot be made.
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
    """Opens a file without blocking, even a pipe that has no writer."""
    return os.open(path, flags | os.O_NONBLOCK)

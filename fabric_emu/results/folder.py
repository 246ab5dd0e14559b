"""Folders and files of results: written whole or not at all, owned by who asked for them.

Everything is opened relative to a folder that is open already, and nothing that is made is
opened through a symbolic link: the writer is often root in a folder that belongs to somebody else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from fabric_emu.errors import FabricError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
_NAMES_MAX = 10_000


def safe_name(text: str, otherwise: str) -> str:
    """Return ``text`` as a file name: ASCII letters, digits, ``._-``; no leading dot."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-").lstrip(".-")[:80]
    return name or otherwise


def refuse_link(folder: Path) -> None:
    """Refuse a folder for results that is a symbolic link: who made it need not be who writes.

    Links further up, such as a home directory's, are the machine's own affair.

    Raises:
        FabricError: it is one.
    """
    if folder.is_symlink():
        raise FabricError(f"{folder} is a link to {os.readlink(folder)}: expected a folder or none")


def write_folder(parent: Path, name: str, files: Mapping[str, bytes]) -> Path:
    """Write a new folder of files, with ``-2``, ``-3`` added to its name when that is taken.

    It appears under its name only when all of it is on disk. Missing parents are made.

    Raises:
        FabricError: it cannot be written, or the parent is a link; nothing is left behind.
    """
    refuse_link(parent)
    with _reported(parent / name), _opened(parent) as parent_fd:
        temporary = f".{name}.{secrets.token_hex(4)}"
        os.mkdir(temporary, dir_fd=parent_fd)
        try:
            fd = os.open(temporary, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent_fd)
            try:
                for file_name, content in files.items():
                    _write_new(fd, file_name, content)
                _hand_over(fd)
                _sync_directory(fd)
            finally:
                os.close(fd)
            final = _rename_to_free_name(parent_fd, temporary, name)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True, dir_fd=parent_fd)
            raise
        _sync_directory(parent_fd)
    return parent / final


def write_file(path: Path, content: bytes) -> None:
    """Write or replace one file, whole; a pipe or a device is written to, also through a link.

    Any other link is refused: whoever put it there need not be who writes.

    Raises:
        FabricError: it cannot be written.
    """
    with _reported(path):
        if path.is_symlink() and (path.is_file() or not path.exists()):
            raise FabricError(f"{path} is a link to {os.readlink(path)}: expected a file or none")
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                file.write(content)
            return
        with _opened(path.parent) as parent_fd:
            temporary = f".{path.name}.{secrets.token_hex(4)}"
            try:
                _write_new(parent_fd, temporary, content)
                os.rename(temporary, path.name, src_dir_fd=parent_fd, dst_dir_fd=parent_fd)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=parent_fd)
                raise


def write_subfolder(folder: Path, name: str, files: Mapping[str, IO[bytes]]) -> None:
    """Write a new folder of files into an existing one, copied from open files: large ones.

    Raises:
        FabricError: it cannot be written.
    """
    with _reported(folder / name), _opened(folder) as folder_fd:
        os.mkdir(name, dir_fd=folder_fd)
        fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=folder_fd)
        try:
            for file_name, source in files.items():
                source.seek(0)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                copy = os.open(file_name, flags, 0o666, dir_fd=fd)
                with open(copy, "wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
                    target.flush()
                    _hand_over(copy)
            _hand_over(fd)
        finally:
            os.close(fd)


@contextlib.contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FabricError(f"{path} cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Open a folder, making what is missing of its path."""
    missing: list[str] = []
    folder = folder.absolute()
    while not folder.exists():
        missing.append(folder.name)
        folder = folder.parent
    fd = os.open(folder, _DIRECTORY)
    try:
        for name in reversed(missing):
            made = True
            try:
                os.mkdir(name, dir_fd=fd)
            except FileExistsError:  # another run was quicker, or a link leads nowhere
                made = False
            child = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = child
            if made:
                _hand_over(fd)
        yield fd
    finally:
        os.close(fd)


def _write_new(folder_fd: int, name: str, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o666, dir_fd=folder_fd)
    with open(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(fd)
        _hand_over(fd)


def _hand_over(fd: int) -> None:
    """Give what was just made to the user behind sudo, if there is one."""
    owner, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() == 0 and owner.isdecimal() and group.isdecimal():
        # Folders that a virtual machine shares with its host have one owner for all.
        with contextlib.suppress(PermissionError):
            os.fchown(fd, int(owner), int(group))


def _sync_directory(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some shared folders
            raise


def _rename_to_free_name(parent_fd: int, temporary: str, name: str) -> str:
    for number in range(1, _NAMES_MAX):
        candidate = name if number == 1 else f"{name}-{number}"
        try:
            # A folder takes the place of nothing or of an empty folder, never of a link or a file.
            os.rename(temporary, candidate, src_dir_fd=parent_fd, dst_dir_fd=parent_fd)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
        else:
            return candidate
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)

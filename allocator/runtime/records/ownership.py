"""That a state folder is of the user who uses it: what is in it is obeyed, so nobody else may have put it there."""

from __future__ import annotations

import grp
import os
import pwd
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path

from throughputs import InputError

_OF_THE_STATE = (
    "lock",
    "socket",
    "token",
    "journal.sqlite",
    "journal.sqlite-wal",
    "journal.sqlite-shm",
    "policy.state",
    "throughputs.csv",
)
_FOLDERS_OF_THE_STATE = ("jobs", "local")
_GROUP, _OTHERS = stat.S_IWGRP, stat.S_IWOTH


def own_folder(folder: Path, *, make: bool = False) -> Path:
    """The state folder without links, once nobody but its user can have changed what is in it, or can replace it.

    Parameters
    ----------
    make : it where it does not exist, private to the user.

    Raises
    ------
    InputError
        It, a folder above it, or a file or folder of the service in it is another user's or can be changed by others.
    """
    check_parents(folder)
    folder = Path(os.path.realpath(folder))
    if make:
        for above in reversed([above for above in folder.parents if not above.exists()]):
            above.mkdir(mode=0o755, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    if folder.exists():
        _check_folder(folder)
        for name in _OF_THE_STATE:
            check_own(folder / name)
        for name in _FOLDERS_OF_THE_STATE:
            with suppress(FileNotFoundError):
                # a link to another disk is as good as a folder, where both are the user's
                _check_owner(folder / name, (folder / name).lstat())
                _check_folder((folder / name).resolve(strict=True))
    return folder


def _check_folder(folder: Path) -> None:
    check_parents(folder)
    status = folder.stat()
    _check_owner(folder, status)
    _check_mode(folder, status)


def check_parents(path: Path) -> None:
    """Raise InputError where others can put something else in the place of a path, by a folder above it or a link.

    Each has to be the user's or the administrator's, who are believed anyway, and closed to others; or sticky, where
    nobody but the owner of an entry replaces it.
    """
    path = path.absolute()
    for link in filter(os.path.islink, (path, *path.parents)):
        _check_trusted(link, link.lstat())
    for folder in dict.fromkeys((*path.parents, *Path(os.path.realpath(path)).parents)):
        with suppress(FileNotFoundError):
            status = folder.stat()
            _check_trusted(folder, status)
            if not status.st_mode & stat.S_ISVTX:
                _check_mode(folder, status)


def check_own(path: Path, status: os.stat_result | None = None) -> None:
    """Raise InputError where a file or socket is another user's, a link, or one that others may write.

    Parameters
    ----------
    path : need not exist. status : of the file that was opened there, if it was.
    """
    with suppress(FileNotFoundError):
        status = status or path.lstat()
        _check_owner(path, status)
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISSOCK(status.st_mode)):
            raise _refusal(path, status, f"a file of the service, no link and no device: rm {path}")
        _check_mode(path, status)


def check_own_peer(connection: socket.socket, source: Path) -> None:
    """Raise InputError where the process at the other end of a Unix socket is another user's."""
    size = struct.calcsize("3i")
    pid, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if user != os.geteuid():
        expected = f"a process of {_name(os.geteuid())}"
        raise InputError(str(source), found=f"process {pid} of {_name(user)}", expected=expected)


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        me = _name(os.geteuid())
        raise _refusal(path, status, f"one of {me}: use another folder, or run this as {_name(status.st_uid)}")


def _check_trusted(path: Path, status: os.stat_result) -> None:
    # who owns the first of all folders can replace everything, inside a container as well
    if status.st_uid not in (0, os.geteuid(), os.stat("/").st_uid):
        who = f"{_name(os.geteuid())} or the administrator"
        raise _refusal(path, status, f"no folder or link on the way but those of {who}: use another place")


def _check_mode(path: Path, status: os.stat_result) -> None:
    who = "go" if status.st_mode & _OTHERS else "g"
    of_user_alone = _is_of_one(status.st_gid) and not _has_access_list(path)
    if status.st_mode & _OTHERS or (status.st_mode & _GROUP and not of_user_alone):
        raise _refusal(path, status, f"one that others cannot write: chmod {who}-w {path}, if all in it is yours")


def _has_access_list(path: Path) -> bool:
    """Whether others than user and group have rights of their own, under which the bits of the group are a mask."""
    try:
        return bool(os.getxattr(path, "system.posix_acl_access"))
    except OSError:
        return False


def _is_of_one(group: int) -> bool:
    """Whether a group is the private one of this user, as distributions make it and set the umask to 002 for it."""
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    named_alike = user.pw_uid != 0 and user.pw_gid == group and found.gr_name == user.pw_name
    return named_alike and set(found.gr_mem) <= {user.pw_name}


def _refusal(path: Path, status: os.stat_result, expected: str) -> InputError:
    kind = "a link, " if stat.S_ISLNK(status.st_mode) else ""
    found = f"{kind}owner {_name(status.st_uid)}, mode {stat.S_IMODE(status.st_mode):04o}"
    return InputError(str(path), found=found, expected=expected)


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"

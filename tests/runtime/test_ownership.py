"""Who else has an account on the machine gets no command, no secret, no process and no file of the service's user."""

from __future__ import annotations

import json
import os
import pwd
import socket
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from allocator.runtime.door.client import Client, NoServiceError
from allocator.runtime.page.access import read_token
from allocator.runtime.records import ownership
from allocator.runtime.records.journal import Journal, ReadOnlyJournal
from allocator.runtime.records.ownership import check_parents, own_folder
from tests.runtime.test_requests import Serving
from throughputs import InputError

MALLORY = 54321

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="to become another user takes root")


@contextmanager
def by_mallory(do, then=lambda: None):
    """What another user has done, and `then` goes on to do, in a process that is gone at the end."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(MALLORY)
            os.setuid(MALLORY)
            do()
            os.write(writer, b"done")
            then()
        except BaseException as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    said = os.read(reader, 1000)
    assert said == b"done", said
    try:
        yield
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(reader)


@pytest.fixture
def place():
    """A folder that everybody can reach, in whose tmp everybody makes folders of their own."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        (folder / "heard").touch()
        (folder / "heard").chmod(0o666)
        (folder / "tmp").mkdir()
        (folder / "tmp").chmod(0o1777)
        yield folder


def refuses(wrong, *words):
    """Asks for a refusal that names a file and says who may do what with it."""
    return pytest.raises(InputError, match=f"{wrong}: found '.*" + ".*".join(words))


@as_root
@pytest.mark.parametrize("ours", [False, True])
def test_another_users_service_is_told_nothing(place, ours):
    """Though it listens where ours would, or has taken a socket of ours over."""
    state, listener = place / "tmp" / "state", socket.socket(socket.AF_UNIX)
    if ours:
        state.mkdir()
        listener.bind(str(state / "socket"))

    def listen():
        if not ours:
            state.mkdir()
            listener.bind(str(state / "socket"))
            (state / "socket").chmod(0o666)
        listener.listen()

    def write_down():
        while True:
            connection, _ = listener.accept()
            with open(place / "heard", "ab", 0) as file:
                file.write(connection.recv(1 << 16))
            connection.sendall(json.dumps({"ok": True, "jobs": []}).encode() + b"\n")
            connection.close()

    named = f"process [0-9]+ of user {MALLORY}" if ours else f"{state}: found 'owner user {MALLORY}, mode 0755"
    with by_mallory(listen, write_down):
        for what in ("submit", "status", "cancel"):
            with pytest.raises(InputError, match=named):
                Client(state).ask(what, jobs=["secret"])
    assert not (place / "heard").read_bytes()


@as_root
def test_a_service_answers_its_user_alone(place):
    """Though somebody has opened the socket to all."""
    state, heard = place / "state", place / "heard"

    def ask():
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(state / "socket"))
            heard.write_bytes(connection.makefile("rb").readline())

    state.mkdir(mode=0o755)
    with Serving(state):
        (state / "socket").chmod(0o666)
        with by_mallory(ask):
            said = json.loads(heard.read_text())
    assert not said["ok"]
    assert f"user {MALLORY}" in said["error"]


@pytest.mark.parametrize("name", ["", "lock", "socket", "token", "journal.sqlite", "policy.state", "jobs", "local"])
def test_what_others_may_write_is_refused(tmp_path, name):
    state = tmp_path / "state"
    state.mkdir()
    if name in ("jobs", "local"):
        (state / name).mkdir()
    elif name:
        (state / name).touch()
    for mode in (0o702, 0o720):
        (state / name).chmod(mode)
        for use in (Journal, ReadOnlyJournal, lambda state: Client(state).ask("status")):
            with refuses(state / name, f"mode {mode:04o}", "chmod g?o?-w"):
                use(state)


def test_what_is_another_users_is_refused(tmp_path, monkeypatch):
    state, mine = tmp_path / "state", os.geteuid()
    Journal(state).close()
    monkeypatch.setattr(ownership.os, "geteuid", lambda: mine + 1)
    with refuses("", f"owner {pwd.getpwuid(mine).pw_name}, mode 0700", "run this as"):
        Journal(state)


def test_folders_above_that_others_can_replace_are_refused(tmp_path):
    shared = tmp_path / "shared"
    state = shared / "state"
    state.mkdir(parents=True)
    shared.chmod(0o777)
    with refuses(shared, "mode 0777", f"chmod go-w {shared}"):
        own_folder(state)
    with refuses(shared):
        read_token(shared / "token")
    # as /tmp: nobody replaces what is another's
    shared.chmod(0o1777)
    assert own_folder(state) == state
    # files on another disk of the user are accepted
    (tmp_path / "disk").mkdir()
    (state / "jobs").symlink_to(tmp_path / "disk")
    own_folder(state)
    (tmp_path / "disk").chmod(0o777)
    with refuses(tmp_path / "disk"):
        own_folder(state)
    with pytest.raises(NoServiceError, match="no such folder"):
        Client(tmp_path / "none").ask("status")
    assert not (tmp_path / "none").exists()


@as_root
def test_a_link_of_another_user_on_the_way_is_refused(place):
    link, mine = place / "tmp" / "link", place / "tmp" / "mine"
    mine.mkdir()
    with by_mallory(lambda: link.symlink_to(mine)):
        # though what it means now is a folder of ours
        for use in (lambda: check_parents(link / "web"), lambda: own_folder(link)):
            with refuses(link, f"a link, owner user {MALLORY}"):
                use()
    (place / "tmp" / "own").symlink_to(mine)
    assert own_folder(place / "tmp" / "own") == mine

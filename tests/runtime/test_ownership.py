"""Who else has an account on the machine gets no command, no secret, no process and no file of the service's user."""

from __future__ import annotations

import json
import os
import pwd
import socket
import tempfile
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from allocator.runtime.door.client import Client, NoServiceError
from allocator.runtime.page.access import read_token
from allocator.runtime.records import ownership
from allocator.runtime.records.journal import Event, Journal, ReadOnlyJournal
from allocator.runtime.records.ownership import check_parents, own_folder
from tests.runtime.test_commands import serve, told
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
    """A folder that everybody can reach, and nobody but its owner changes."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def open_place(place):
    """A folder in which everybody makes folders of their own, as in /tmp."""
    (place / "tmp").mkdir()
    (place / "tmp").chmod(0o1777)
    return place / "tmp"


def write_down(listener, heard):
    """Answer as a service might, and write down whatever is asked."""
    while True:
        connection, _ = listener.accept()
        with open(heard, "ab", 0) as file:
            file.write(connection.recv(1 << 16))
        connection.sendall(json.dumps({"ok": True, "jobs": []}).encode() + b"\n")
        connection.close()


@as_root
def test_another_users_service_is_told_nothing(open_place):
    state, heard = open_place / "state", open_place / "heard"
    listener = socket.socket(socket.AF_UNIX)

    def listen():
        state.mkdir()
        listener.bind(str(state / "socket"))
        (state / "socket").chmod(0o666)
        listener.listen()

    with by_mallory(listen, lambda: write_down(listener, heard)):
        submit = ("submit", "--state", str(state), "--gpus", "1", "--env", "SECRET=1234", "--", "true")
        for command in (submit, ("status", "--state", str(state)), ("cancel", "--state", str(state), "0")):
            code, _, errors = told(*command)
            assert code != 0
            assert str(state) in errors
            assert str(MALLORY) in errors
            assert "mode 0755" in errors
    assert not heard.exists()


@as_root
def test_another_users_process_behind_a_socket_of_ours_is_told_nothing(place):
    state, heard = place / "state", place / "heard"
    state.mkdir()
    heard.touch()
    heard.chmod(0o666)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(state / "socket"))
    refusal = pytest.raises(InputError, match=f"process [0-9]+ of user {MALLORY}.*expected a process of")
    with by_mallory(listener.listen, lambda: write_down(listener, heard)), refusal:
        Client(state).ask("submit", jobs=["secret"])
    assert not heard.read_bytes()


@as_root
def test_a_journal_that_another_user_has_prepared_runs_nothing(open_place):
    state, pwned = open_place / "state", open_place / "pwned"

    def prepare():
        journal = Journal(state)
        job = {"command": ["touch", str(pwned)], "working_directory": "/", "gpus": 1}
        journal.append([Event("submitted", "0" * 32, data=job)])
        journal.append([Event("options", data={"virtual": "v100:1"}), Event("policy", data={"name": "fifo_perf"})])
        journal.close()

    with by_mallory(prepare):
        code, output, errors = told("serve", "--state", str(state))
        assert code != 0
        assert str(state) in errors
        assert f"user {MALLORY}" in errors
        assert "Serving" not in output
        # nor where the folder is ours and only the journal is not
        os.chown(state, 0, 0)
        (state / "lock").unlink()
        with pytest.raises(InputError, match=rf"journal\.sqlite: found 'owner user {MALLORY}"):
            Journal(state)
        with pytest.raises(InputError, match=rf"journal\.sqlite: found 'owner user {MALLORY}"):
            ReadOnlyJournal(state)
    assert not pwned.exists()


@as_root
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_lock_that_is_a_link_costs_nobody_a_file(place, link):
    state, precious = place / "state", place / "precious"
    precious.write_text("precious")
    state.mkdir()
    state.chmod(0o777)
    if link is os.symlink:
        with by_mallory(lambda: link(precious, state / "lock")):
            pass
    else:
        # as mallory may where the kernel does not protect hard links
        link(precious, state / "lock")
    for mode, wrong in ((0o777, state), (0o755, state / "lock")):
        state.chmod(mode)
        code, _, errors = told("serve", "--state", str(state), "--virtual", "v100:1")
        assert code != 0
        assert f"{wrong}: " in errors
        assert precious.read_text() == "precious"
        assert not (state / "journal.sqlite").exists()


@as_root
def test_a_service_answers_its_user_alone(place):
    """Though somebody has opened the socket to all."""
    state, heard = place / "state", place / "heard"
    state.mkdir()
    heard.touch()
    heard.chmod(0o666)
    service = serve(state)
    try:
        (state / "socket").chmod(0o666)

        def ask():
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(state / "socket"))
                heard.write_bytes(connection.makefile("rb").readline())

        with by_mallory(ask):
            said = json.loads(heard.read_text())
        assert not said["ok"]
        assert f"user {MALLORY}" in said["error"]
    finally:
        service.terminate()
        service.communicate()


@pytest.mark.parametrize("name", ["", "lock", "socket", "token", "journal.sqlite", "policy.state", "jobs", "local"])
@pytest.mark.parametrize("mode", [0o702, 0o720])
def test_what_others_may_write_is_refused(tmp_path, name, mode):
    state = tmp_path / "state"
    state.mkdir()
    if name in ("jobs", "local"):
        (state / name).mkdir()
    elif name:
        (state / name).touch()
    (state / name).chmod(mode)
    for use in (Journal, ReadOnlyJournal, lambda state: Client(state).ask("status")):
        with pytest.raises(InputError, match=rf"{state / name}: found 'owner .*mode {mode:04o}'.*chmod g?o?-w"):
            use(state)


def test_what_is_another_users_is_refused(tmp_path, monkeypatch):
    state = tmp_path / "state"
    Journal(state).close()
    mine = os.geteuid()
    monkeypatch.setattr(ownership.os, "geteuid", lambda: mine + 1)
    with pytest.raises(InputError, match=f"found 'owner {pwd.getpwuid(mine).pw_name}, mode 0700'.*run this as"):
        Journal(state)


def test_folders_above_that_others_can_replace_are_refused(tmp_path):
    shared = tmp_path / "shared"
    (shared / "state").mkdir(parents=True)
    shared.chmod(0o777)
    with pytest.raises(InputError, match=f"{shared}: found 'owner .*mode 0777'.*chmod go-w {shared}"):
        own_folder(shared / "state")
    with pytest.raises(InputError, match=f"{shared}: "):
        read_token(shared / "token")
    # as /tmp: nobody replaces what is another's
    shared.chmod(0o1777)
    assert own_folder(shared / "state") == shared / "state"


@as_root
def test_a_link_of_another_user_on_the_way_is_refused(open_place):
    (open_place / "mine").mkdir()
    with by_mallory(lambda: (open_place / "link").symlink_to(open_place / "mine")):
        with pytest.raises(InputError, match=f"{open_place / 'link'}: found 'a link, owner user {MALLORY}"):
            check_parents(open_place / "link" / "web")
        # though what it means now is a folder of ours
        with pytest.raises(InputError, match=f"{open_place / 'link'}: found 'a link, owner user {MALLORY}"):
            own_folder(open_place / "link")
    (open_place / "own").symlink_to(open_place / "mine")
    assert own_folder(open_place / "own") == open_place / "mine"


def test_under_umask_002_with_a_group_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setattr(ownership, "pwd", SimpleNamespace(getpwuid=lambda _: me))
    monkeypatch.setattr(ownership, "grp", SimpleNamespace(getgrgid=lambda _: group))
    me = SimpleNamespace(pw_uid=1000, pw_gid=os.getegid(), pw_name="alice")
    group = SimpleNamespace(gr_name="alice", gr_mem=["alice"])
    tmp_path.chmod(0o775)
    own_folder(tmp_path)
    with monkeypatch.context() as listed:
        # an access list names others, and the bits of the group are its mask
        listed.setattr(os, "getxattr", lambda _path, name: name.encode())
        with pytest.raises(InputError, match=f"chmod g-w {tmp_path}"):
            own_folder(tmp_path)
    for field, value in (("gr_name", "users"), ("gr_mem", ["alice", "bob"])):
        group = SimpleNamespace(**{**vars(group), field: value})
        with pytest.raises(InputError, match=f"chmod g-w {tmp_path}"):
            own_folder(tmp_path)
    # the group of root has others in it on some systems
    group = SimpleNamespace(gr_name="root", gr_mem=[])
    me = SimpleNamespace(pw_uid=0, pw_gid=os.getegid(), pw_name="root")
    with pytest.raises(InputError, match=f"chmod g-w {tmp_path}"):
        own_folder(tmp_path)


def test_what_a_service_makes_it_accepts_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        state = own_folder(tmp_path / "new" / "deep" / "state", make=True)
    finally:
        os.umask(before)
    assert state.stat().st_mode & 0o777 == 0o700
    assert own_folder(state) == state


def test_a_folder_that_is_not_there_is_no_service(tmp_path):
    with pytest.raises(NoServiceError, match="no such folder"):
        Client(tmp_path / "none").ask("status")
    assert not (tmp_path / "none").exists()


def test_files_on_another_disk_of_the_user_are_accepted(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "disk").mkdir()
    (tmp_path / "state" / "jobs").symlink_to(tmp_path / "disk")
    own_folder(tmp_path / "state")
    (tmp_path / "disk").chmod(0o777)
    with pytest.raises(InputError, match=f"{tmp_path / 'disk'}: "):
        own_folder(tmp_path / "state")

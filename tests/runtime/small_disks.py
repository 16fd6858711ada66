"""Disks that are soon full."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager, suppress

import pytest


@contextmanager
def small_disk_at(folder, size):
    """A file system of a size, as tmpfs takes it; skips the test where none can be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path):
    """Write into a file until the disk is full to the last byte."""
    with path.open("ab", buffering=0) as file:
        for size in (65536, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)

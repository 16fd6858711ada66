"""One file over HTTP, continued where it was cut off.

A partial file is continued where the SHA-256 of the whole is known, which settles at the end whether the two halves
belong together; any other is begun again.

Addresses are http or https, also those that servers redirect to. Never more is received than the known length of the
file, or `MOST_BYTES` where it is not known, whatever the server announces or fails to.
"""

from __future__ import annotations

import errno
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from allocator.data.registry import DataError, sha256_of

MOST_BYTES = 10_000_000_000
"""Length of a file whose right one is not known, at most."""

ATTEMPTS, PAUSE_SECONDS, TIMEOUT_SECONDS = 5, 0.5, 30.0
"""Attempts in a row without progress that end a download, the pause after the first of them, which then doubles, and
how long a server may say nothing."""

CHUNK = 1 << 18
POINTER = b"version https://git-lfs.github.com/spec/"
ELSEWHERE = "look at the page of the data set, or name a mirror with --url-base"

Advance = Callable[[int, int | None], None]
"""Told of the bytes on disk and of all bytes of the file, None where the server does not say."""


class _CutOffError(Exception):
    """The connection ended before the file did."""


def is_address(url: str) -> bool:
    """Whether `url` can be asked for: http or https, with a host, and nothing in it that no address has."""
    try:
        parts = urlsplit(url)
        plain = url.isascii() and url.isprintable() and " " not in url
        return plain and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to addresses of http and https, and to no others."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if not is_address(newurl):
            raise ValueError(f"the server redirects to {newurl!r}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@dataclass(frozen=True)
class Download:
    """A file that is to be had.

    Parameters
    ----------
    url : its address.
    partial : where it is written; what is there is continued.
    size, sha256 : of the whole; None where they are not known.
    advance : told of every piece that arrives.
    """

    url: str
    partial: Path
    size: int | None
    sha256: str | None
    advance: Advance

    def run(self) -> str:
        """Bring the file, and return its SHA-256.

        An attempt that gets further than all before it does not count: only `ATTEMPTS` of them in a row without
        progress end the download.

        Raises
        ------
        DataError
            The server cannot be reached or refuses, redirects to what is no address of http or https, or announces or
            sends more than `size` bytes (`MOST_BYTES` if that is None); the connection keeps breaking, the disk is
            full, or the length or hash is wrong. What came is kept: as `partial` to be continued, or with
            ``.rejected`` for ``.part`` if wrong.
        """
        self.partial.parent.mkdir(parents=True, exist_ok=True)
        furthest, failures = self._length, 0
        while True:
            try:
                self._attempt()
                return self._verified()
            except _CutOffError as cut:
                if self._length > furthest:
                    furthest, failures = self._length, 0
                failures += 1
                if failures >= ATTEMPTS:
                    again = "what came is kept, run the same command again to continue"
                    raise DataError(f"{self.url}: {cut} after {self._length:,} bytes; {again}") from cut
                time.sleep(PAUSE_SECONDS * 2 ** (failures - 1))

    @property
    def _length(self) -> int:
        return self.partial.stat().st_size if self.partial.exists() else 0

    def _attempt(self) -> None:
        """One request, from the end of the partial file on; raises _CutOffError if it ends early."""
        start = 0 if self.sha256 is None or self._length > (self.size or MOST_BYTES) else self._length
        if start == self.size:
            return
        headers = {"Accept-Encoding": "identity", "User-Agent": "cluster-allocator"}
        headers |= {"Range": f"bytes={start}-"} if start else {}
        try:
            asked = urllib.request.Request(self.url, headers=headers)
            with urllib.request.build_opener(_Redirects).open(asked, timeout=TIMEOUT_SECONDS) as response:
                self._receive(response, start)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and start:
                return  # there is nothing after the part that is here: its hash says whether it is all
            answer = f"the server answers {error.code} {' '.join(str(error.reason).split())}"
            if error.code in (408, 429) or error.code >= 500:
                raise _CutOffError(answer) from error
            raise DataError(f"{self.url}: {answer}; {ELSEWHERE}") from error
        except (ValueError, OverflowError) as error:
            raise DataError(f"{self.url}: {error}, which is no address of http or https; {ELSEWHERE}") from error
        except (http.client.HTTPException, OSError) as error:
            raise self._told(getattr(error, "reason", error)) from error

    def _told(self, reason: object) -> Exception:
        """What a failure of the network or of the disk means."""
        if isinstance(reason, OSError) and reason.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "make room and run the same command again to continue, or name another directory with --cache"
            return DataError(f"{self.partial.parent}: the disk is full; {remedy}")
        if isinstance(reason, http.client.HTTPException | TimeoutError | ConnectionResetError | BrokenPipeError):
            return _CutOffError("the connection broke off")
        said = getattr(reason, "strerror", None) or reason
        there = str(self.partial).removesuffix(".part")
        remedy = f"check the network, or name a mirror with --url-base, or put the file there yourself: {there}"
        return DataError(f"cannot reach {urlsplit(self.url).netloc} ({said}); {remedy}")

    def _receive(self, response: http.client.HTTPResponse, start: int) -> None:
        """Write the body at the end of the partial file, or over it if the server begins at the beginning."""
        if response.headers.get_content_type() == "text/html":
            remedy = "look at the page of the data set, or whether the network asks for a login"
            raise DataError(f"{self.url}: a web page came instead of the file; {remedy}")
        done = start if response.status == http.client.PARTIAL_CONTENT else 0
        longest = MOST_BYTES if self.size is None else self.size
        bound = f"expected {longest:,}; the public file has changed, or try another mirror"
        if self.size is None:
            bound = f"expected at most {longest:,}, as its right length is not known"
        total = self.size if response.length is None else done + response.length
        if total is not None and total > longest:
            raise DataError(f"{self.url}: the server announces {total:,} bytes, {bound}")
        announced = response.length is not None
        with self.partial.open("ab" if done else "wb") as stream:
            while done <= longest and (chunk := response.read1(CHUNK)):
                stream.write(chunk[: longest - done])
                done += len(chunk)
                self.advance(min(done, longest), total)
            stream.flush()
            os.fsync(stream.fileno())
        if done > longest:
            raise DataError(f"{self.url}: more bytes came than there should be, {bound} ({self._set_aside()})")
        if announced and done < (total or 0):
            raise _CutOffError("the connection broke off")

    def _set_aside(self) -> str:
        """Put what came where nobody reads it; says where."""
        aside = self.partial.with_suffix(".rejected")
        os.replace(self.partial, aside)
        return f"what came is kept as {aside}"

    def _verified(self) -> str:
        """SHA-256 of the finished file; sets it aside and raises DataError if it is not the file that was wanted."""
        found, length = sha256_of(self.partial), self._length
        with self.partial.open("rb") as stream:
            pointer = stream.read(len(POINTER)) == POINTER
        if pointer:
            problem = "a pointer of Git LFS came instead of the file; use git lfs, or name a mirror with --url-base"
        elif self.size not in (None, length):
            problem = f"{length:,} bytes came where {self.size:,} were expected; fetch again, or try another mirror"
        elif self.sha256 in (None, found):
            return found
        else:
            problem = (
                f"its SHA-256 is {found}, not {self.sha256}; the public file has changed or came damaged: "
                "fetch again, or try another mirror"
            )
        raise DataError(f"{self.url}: {problem} ({self._set_aside()})")

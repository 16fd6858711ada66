"""One file over HTTP, continued where it was cut off.

A partial file is continued only if what follows is sure to belong to it: the server confirms that the file is the
one begun (``If-Range`` with its entity tag or date), or the SHA-256 is known and settles it at the end.

Addresses are http or https, also those that servers redirect to. Never more is received than the known length of the
file, or `MOST_BYTES` where it is not known, whatever the server announces or fails to.
"""

from __future__ import annotations

import errno
import http.client
import os
import re
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urljoin, urlsplit

from allocator.data.cache import CACHE_VARIABLE, CHUNK, DataError, sha256_of

MOST_BYTES = 10_000_000_000
"""Length of a file whose right one is not known, at most."""

ATTEMPTS, PAUSE_SECONDS, TIMEOUT_SECONDS = 5, 0.5, 30.0
"""Attempts in a row without progress that end a download, the pause after the first of them, which then doubles, and
how long a server may say nothing."""

Advance = Callable[[int, int | None], None]
"""Told of the bytes on disk and of all bytes of the file, None where the server does not say."""

POINTER = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True)
class _Request:
    """What is wanted; everything that stays the same between two attempts."""

    url: str
    partial: Path
    size: int | None
    sha256: str | None
    advance: Advance

    @property
    def longest(self) -> int:
        """Bytes of the file, at most."""
        return MOST_BYTES if self.size is None else self.size

    @property
    def tag_file(self) -> Path:
        """Holds the entity tag or date under which the partial file was begun."""
        return self.partial.with_name(self.partial.name + ".tag")


class _CutOffError(Exception):
    """The connection ended before the file did."""


def download(
    url: str,
    partial: Path,
    *,
    size: int | None = None,
    sha256: str | None = None,
    advance: Advance | None = None,
) -> str:
    """Bring `url` to the file `partial`, continuing what is there, and return its SHA-256.

    An attempt that gets further than all before it does not count: only `ATTEMPTS` of them in a row without progress
    end the download.

    Raises
    ------
    DataError
        The server cannot be reached or refuses, redirects to what is no address of http or https, announces or sends
        more than `size` bytes (`MOST_BYTES` if that is None), or says nonsense about the length; the connection keeps
        breaking, the disk is full, or the length or hash is wrong. What came is kept: as `partial` to be continued, or
        with ``.rejected`` for ``.part`` if wrong.
    """
    request = _Request(url, partial, size, sha256, advance or (lambda _done, _total: None))
    partial.parent.mkdir(parents=True, exist_ok=True)
    furthest, failures = _length(partial), 0
    while True:
        try:
            _attempt(request)
            break
        except _CutOffError as cut:
            if _length(partial) > furthest:
                furthest, failures = _length(partial), 0
            failures += 1
            if failures >= ATTEMPTS:
                raise DataError(
                    f"{url}: {cut} after {_length(partial):,} bytes; what came is kept, "
                    "run the same command again to continue"
                ) from cut
            time.sleep(PAUSE_SECONDS * 2 ** (failures - 1))
    return _verified(request)


def is_address(url: str) -> bool:
    """Whether `url` can be asked for: http or https, with a host, and nothing in it that no address has."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname)
        return (
            known and (parts.port is None or parts.port > 0) and url.isascii() and url.isprintable() and " " not in url
        )
    except ValueError:
        return False


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to addresses of http and https, and to no others."""

    def http_error_302(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage
    ) -> Any:
        location = headers.get("Location")
        try:
            target = None if location is None else urljoin(req.full_url, location.replace(" ", "%20"))
        except ValueError:
            target = ""
        if target is not None and not is_address(target):
            raise DataError(
                f"{req.full_url}: the server redirects to {location!r}, which is no address of http or https; "
                "look at the page of the data set, or name a mirror with --url-base"
            )
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _attempt(request: _Request) -> None:
    """One request, from the end of the partial file on; raises _CutOffError if it ends early."""
    start = _length(request.partial)
    if request.size is not None and start == request.size:
        request.advance(start, start)
        return
    tag = _read_tag(request.tag_file)
    if (tag is None and request.sha256 is None) or (request.size is not None and start > request.size):
        start = 0  # nobody could tell whether the two halves belong together
    headers = {"Accept-Encoding": "identity", "User-Agent": "cluster-allocator"}
    if start:
        headers["Range"] = f"bytes={start}-"
        if tag is not None:
            headers["If-Range"] = tag
    try:
        asked = urllib.request.Request(request.url, headers=headers)
        with urllib.request.build_opener(_Redirects).open(asked, timeout=TIMEOUT_SECONDS) as response:
            _receive(request, response, start)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and start:
                _beyond_the_end(request, error.headers.get("Content-Range"), start)
                return
            if error.code in (408, 429) or error.code >= 500:
                raise _CutOffError(f"the server answers {error.code} {error.reason}") from error
            raise DataError(
                f"{request.url}: the server answers {error.code} {' '.join(str(error.reason).split())}; "
                "look at the page of the data set, or name a mirror with --url-base"
            ) from error
    except urllib.error.URLError as error:
        if _is_disk_full(error.reason):
            raise _disk_full(request.partial) from error
        if isinstance(error.reason, TimeoutError | ConnectionResetError):
            raise _CutOffError("the connection broke off") from error
        target = str(request.partial).removesuffix(".part")
        raise DataError(
            f"cannot reach {urlsplit(request.url).netloc} ({_reason(error.reason)}); check the network, "
            f"or name a mirror with --url-base, or put the file there yourself: {target}"
        ) from error
    except (http.client.HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
        raise _CutOffError("the connection broke off") from error
    except OSError as error:
        if _is_disk_full(error):
            raise _disk_full(request.partial) from error
        raise


def _receive(request: _Request, response: http.client.HTTPResponse, start: int) -> None:
    """Write the body at the end of the partial file, or over it if the server begins at the beginning."""
    if response.headers.get_content_type() == "text/html":
        raise DataError(
            f"{request.url}: a web page came instead of the file; "
            "look at the page of the data set, or whether the network asks for a login"
        )
    done = start if response.status == http.client.PARTIAL_CONTENT else 0
    if done and not _continues(response.headers.get("Content-Range"), start):
        done = 0
        request.partial.unlink(missing_ok=True)
        raise _CutOffError("the server sent another part than the one asked for")
    if not done:
        _write_tag(request.tag_file, response)
    announced = _announced(request, response)
    total = done + announced if announced is not None else request.size
    if total is not None and total > request.longest:
        raise DataError(f"{request.url}: the server announces {total:,} bytes, {_bound(request)}")
    _check_space(request.partial, total, done)
    with request.partial.open("ab" if done else "wb") as stream:
        while chunk := response.read1(CHUNK):
            wanted = chunk[: request.longest - done]
            stream.write(wanted)
            done += len(wanted)
            request.advance(done, total)
            if len(wanted) < len(chunk):
                break
        stream.flush()
        os.fsync(stream.fileno())
    if chunk:  # there is more than there may be
        raise DataError(
            f"{request.url}: more bytes came than there should be, {_bound(request)} ({_set_aside(request)})"
        )
    if announced is not None and total is not None and done < total:
        raise _CutOffError("the connection broke off")


def _announced(request: _Request, response: http.client.HTTPResponse) -> int | None:
    """Bytes that are to come, None where the server does not say."""
    text = response.headers.get("Content-Length")
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()):
        raise DataError(
            f"{request.url}: the server answers with Content-Length {text[:40]!r}, expected a number of bytes; "
            "try again later, or name a mirror with --url-base"
        )
    return int(text)


def _bound(request: _Request) -> str:
    if request.size is None:
        return f"expected at most {MOST_BYTES:,}, as its right length is not known"
    return f"expected {request.size:,}; the public file has changed, or try another mirror"


def _set_aside(request: _Request) -> str:
    """Put what came where nobody reads it; says where."""
    aside = request.partial.with_name(request.partial.name.removesuffix(".part") + ".rejected")
    os.replace(request.partial, aside)
    request.tag_file.unlink(missing_ok=True)
    return f"what came is kept as {aside}"


def _beyond_the_end(request: _Request, content_range: str | None, start: int) -> None:
    """The server has nothing after `start`: either the partial file is whole, or it is not a part of this file."""
    match = re.fullmatch(r"bytes \*/(\d{1,18})", content_range or "")
    if match is not None and int(match.group(1)) == start:
        return
    request.partial.unlink(missing_ok=True)
    raise _CutOffError("the file on the server is shorter than the part that was kept")


def _verified(request: _Request) -> str:
    """SHA-256 of the finished file; sets it aside and raises DataError if it is not the file that was wanted."""
    found = sha256_of(request.partial)
    length = _length(request.partial)
    if _is_pointer(request.partial):
        problem = "a pointer of Git LFS came instead of the file; use git lfs, or name a mirror with --url-base"
    elif request.sha256 == found or (request.sha256 is None and request.size in (None, length)):
        request.tag_file.unlink(missing_ok=True)
        return found
    elif request.size is not None and length != request.size:
        problem = f"{length:,} bytes came where {request.size:,} were expected; fetch again, or try another mirror"
    else:
        problem = (
            f"its SHA-256 is {found}, not {request.sha256}; the public file has changed or came damaged: "
            "fetch again, or try another mirror"
        )
    raise DataError(f"{request.url}: {problem} ({_set_aside(request)})")


def _is_pointer(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(POINTER)) == POINTER


def _continues(content_range: str | None, start: int) -> bool:
    match = re.match(r"bytes (\d{1,18})-", content_range or "")
    return match is not None and int(match.group(1)) == start


def _read_tag(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip() or None
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def _write_tag(path: Path, response: http.client.HTTPResponse) -> None:
    """Keep what ``If-Range`` may name: a strong entity tag, else the date of the last change."""
    tag = response.headers.get("ETag")
    if tag is None or tag.startswith("W/"):
        tag = response.headers.get("Last-Modified")
    if tag is None or not tag.isascii():
        path.unlink(missing_ok=True)
    else:
        path.write_text(tag, encoding="ascii")


def _check_space(partial: Path, total: int | None, done: int) -> None:
    # What an earlier attempt left is freed when the file is written from the beginning.
    freed = _length(partial) if done == 0 else 0
    if total is not None and total - done > shutil.disk_usage(partial.parent).free + freed:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _is_disk_full(error: object) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _disk_full(partial: Path) -> DataError:
    return DataError(
        f"{partial.parent}: the disk is full; make room and run the same command again to continue, "
        f"or name another directory with --cache or {CACHE_VARIABLE}"
    )


def _reason(reason: object) -> str:
    return (reason.strerror or str(reason)) if isinstance(reason, OSError) else str(reason)


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0

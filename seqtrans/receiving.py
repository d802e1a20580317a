"""A URL's bytes into a file, going on where a cut connection, or a former process, left it.

What has come lies in ``NAME.part``, and what it is a part of in ``NAME.part.json``: range requests
(RFC 9110, section 14), with ``If-Range`` (section 13.1.5), so that what has changed begins anew.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import IO, Any

from seqtrans.files import delete, write_whole, writing

BLOCK = 1 << 16
PATIENCE = 60.0
"""Seconds without a byte after which a connection counts as cut."""
TRIES = 5
"""How often a cut connection is taken up again without a byte's gain, before it is given up."""
PASSING = (408, 425, 429, 500, 502, 503, 504)
"""Statuses of a server that may answer otherwise in a moment (RFC 9110, section 15)."""

Progress = Callable[[int, int | None], None]
"""Told how many bytes are there, and of how many, if that is known."""


class UnavailableError(Exception):
    """A URL can't be had, now or at all; the message is the reason, without the URL."""


class CutError(UnavailableError):
    """It may go on in a moment."""


def receive(
    url: str,
    part: Path,
    *,
    interchangeable: bool,
    size: int | None = None,
    progress: Progress = lambda have, total: None,
    pause: float = 1.0,
) -> None:
    """Get ``url`` into ``part``, which on return is whole, as far as the server says.

    Args:
        part: where the bytes go; what it holds already is not asked for again.
        interchangeable: the content will be checked afterwards, so that what another URL began, or
            what the server can't tell from a newer version, may be gone on with.
        size: the size that is expected; another one is refused before a byte is written.
        pause: seconds before a cut connection is taken up, twice as many the second time in
            succession, and so on.

    Raises:
        UnavailableError: the URL can't be had. What has come is kept, to be gone on with.
        SeqtransError: ``part`` can't be written.
    """
    tries = 0
    while True:
        before = length(part)
        try:
            return _receive_once(url, part, interchangeable, size, progress)
        except CutError:
            tries = 0 if length(part) > before else tries + 1
            if tries >= TRIES:
                raise
            time.sleep(pause * max(tries, 1))


def length(path: Path) -> int:
    """The bytes in a file; 0 if there is none."""
    return path.stat().st_size if path.is_file() else 0


def forget(part: Path) -> None:
    """Delete a part and what is known of it."""
    delete(part)
    delete(_state_of(part))


def _receive_once(
    url: str, part: Path, interchangeable: bool, size: int | None, progress: Progress
) -> None:
    state = _read_state(part)
    validator = state.get("validator") if state.get("url") == url else None
    have = length(part) if validator or interchangeable else 0
    if have and have == size:
        return
    # Some servers would pack what is not packed, and count other bytes.
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if validator:
            headers["If-Range"] = validator
    response = _ask(urllib.request.Request(url, headers=headers), part, have)
    if response is None:
        return
    with response:
        if response.status == http.client.PARTIAL_CONTENT:
            first, total = _range(response.headers)
            if first != have:
                forget(part)
                raise CutError("the server sent another part than was asked for")
        else:
            have, total = 0, _number(response.headers.get("Content-Length"))
        if size is not None and total is not None and total != size:
            raise UnavailableError(f"it has {total:,} bytes there, not {size:,}")
        if not have:
            delete(part)
            tag = response.headers.get("ETag", "")
            known = tag if tag.startswith('"') else response.headers.get("Last-Modified")
            write_whole(_state_of(part), json.dumps({"url": url, "validator": known}))
        have = _copy(response, part, have, total, progress)
    if total is not None and have != total:
        raise CutError(f"the connection was cut after {have:,} of {total:,} bytes")


def _ask(request: urllib.request.Request, part: Path, have: int) -> Any:
    """The answer; ``None`` if the server says that there is nothing beyond what is there."""
    try:
        return urllib.request.urlopen(request, timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and have:
                if _range(error.headers)[1] == have:
                    return None
                forget(part)
                raise CutError("the server has less of it than is there already") from None
            kind = CutError if error.code in PASSING else UnavailableError
            raise kind(f"{error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        lasting = isinstance(error.reason, socket.gaierror | ssl.SSLError | FileNotFoundError)
        raise (UnavailableError if lasting else CutError)(_in_words(error.reason)) from None
    except (OSError, http.client.HTTPException) as error:
        raise CutError(_in_words(error)) from None


def _copy(response: IO[bytes], part: Path, have: int, total: int | None, progress: Progress) -> int:
    """Append what is left of an answer; gives the bytes that are there then."""
    with writing(part), part.open("ab") as file:
        progress(have, total)
        while True:
            try:
                block = response.read(BLOCK)
            except http.client.IncompleteRead as error:
                block = error.partial
                if not block:
                    raise CutError(f"the connection was cut after {have:,} bytes") from None
            except OSError as error:
                raise CutError(f"{_in_words(error)}, after {have:,} bytes") from None
            if not block:
                return have
            file.write(block)
            have += len(block)
            progress(have, total)


def _range(headers: Message) -> tuple[int | None, int | None]:
    """The first byte and the total that an answer to a range request names."""
    found = re.fullmatch(
        r"bytes (?:(\d+)-\d+|\*)/(?:(\d+)|\*)", headers.get("Content-Range", "").strip()
    )
    return (_number(found[1]), _number(found[2])) if found else (None, None)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _in_words(reason: object) -> str:
    """Why a connection failed, in the system's words."""
    if isinstance(reason, TimeoutError):
        return f"no byte came for {PATIENCE:.0f} seconds"
    text = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
    return text or type(reason).__name__


def _state_of(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _read_state(part: Path) -> dict[str, Any]:
    try:
        state = json.loads(_state_of(part).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}

"""Reading what came from the web, in a child process with limits, so that no page can hold the bot up or take its memory."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from bubbot.features.web.client import WebError
from bubbot.packages import requirements_command

T = TypeVar("T")
READING_TIMEOUT_SECONDS = 30.0
MAX_PDF_PAGES = 200
MAX_OUTPUT_BYTES = 20_000_000
READER_FILE = Path(__file__).with_name("reader.py")
"""The program of the child process."""
_PACKAGES = ("trafilatura", "ddgs")


class PdfLocked(WebError):
    """The PDF opens with a password only."""


class PageText(Struct, frozen=True):
    """The readable text of a page or PDF.

    Attributes:
        text: Markdown of a page; lines of a PDF.
        title: what it calls itself; empty if it does not say.
        date: the day on which it was written, as far as it says.
        pages: the pages of a PDF; 0 for anything else.
    """

    text: str
    title: str = ""
    date: str = ""
    pages: int = 0


class WebResult(Struct, frozen=True):
    """A result of a search engine."""

    title: str
    url: str
    text: str


class EngineQuery(Struct, frozen=True):
    """How a search engine is asked: `payload` is the query of a GET or the form of a POST."""

    method: str
    url: str
    payload: Mapping[str, Any]


def list_missing_packages() -> list[str]:
    """List the packages of the extra `web` that are not installed; import none of them."""
    return [name for name in _PACKAGES if find_spec(name) is None]


def format_install_command() -> str:
    """Format the command that installs the extra into the environment of this bot, in the locked versions."""
    return requirements_command(__file__)


class PageReader:
    """Reads pages, one child process for each, and at most two at the same time."""

    def __init__(self, timeout: float = READING_TIMEOUT_SECONDS) -> None:
        self._timeout = timeout
        self._slots = asyncio.Semaphore(2)

    async def read_page(self, data: bytes, *, charset: str, url: str) -> PageText:
        """Return the text of a page as Markdown. Raise `WebError` if it cannot be read."""
        return _parse(await self._run({"job": "page", "charset": charset, "url": url}, data), PageText)

    async def read_pdf(self, data: bytes) -> PageText:
        """Return the text of a PDF. Raise `WebError` if it cannot be read, `PdfLocked` if a password is missing."""
        return _parse(await self._run({"job": "pdf", "max_pages": MAX_PDF_PAGES}, data), PageText)

    async def build_query(self, engine: str, query: str) -> EngineQuery:
        """Return how a search engine is asked. Raise `WebError`."""
        return _parse(await self._run({"job": "query", "engine": engine, "query": query}, b""), EngineQuery)

    async def read_results(self, engine: str, query: str, page: bytes) -> list[WebResult]:
        """Return what the page of a search engine lists. Raise `WebError`."""
        answer = await self._run({"job": "results", "engine": engine, "query": query}, page)
        return _parse(answer["results"], list[WebResult])

    async def _run(self, job: Mapping[str, Any], data: bytes) -> dict[str, Any]:
        line = json.dumps({**job, "size": len(data)}).encode() + b"\n"
        async with self._slots:
            try:
                async with asyncio.timeout(self._timeout):
                    output = await _run_child(line + data)
            except TimeoutError:
                raise WebError(f"reading it took more than {self._timeout:g} seconds") from None
        answer: dict[str, Any] = json.loads(output)
        if "error" in answer:
            raise (PdfLocked if answer.get("locked") else WebError)(answer["error"])
        return answer


def _parse(answer: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise WebError(f"what was read has another form than expected: {error}") from error


async def _run_child(job: bytes) -> bytes:
    # Run by path with -P, so that Python searches neither the working directory nor a folder of bubbot for modules. It
    # inherits nothing of this process's environment, and no file but its three pipes.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", str(READER_FILE)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=MAX_OUTPUT_BYTES,
        close_fds=True,
        start_new_session=True,
        cwd="/",
        env={"LANG": "C.UTF-8"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with suppress(ConnectionError):  # it ended before it had read everything; what it says is read below
            process.stdin.write(job)
            await process.stdin.drain()
        output = await process.stdout.readline()
        if output.endswith(b"\n"):
            await process.wait()
    except ValueError:
        raise WebError("its text is too long") from None
    finally:
        if process.returncode is None:
            # Not `process.kill`, which would take the exit status away from the loop that waits for it.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if not output.endswith(b"\n"):
        raise WebError("reading it took more time or memory than it may")
    return output

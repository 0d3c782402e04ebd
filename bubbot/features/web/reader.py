"""The child process that reads pages: trafilatura, pypdf and the parsers of ddgs behind one job on stdin.

`bubbot.features.web.reading` starts it as `python -P reader.py`; it imports nothing of bubbot. The job is a line of JSON with
`job`, `size` and what the job needs, then `size` bytes; stdin stays open, and if it closes the process ends. The output is
one line of JSON, `{"error": sentence}` or what the job returns:

    page     charset, url         {"title", "date", "text"}: a page as Markdown
    pdf      max_pages            {"title", "date", "text", "pages"}: the text of a PDF; {"error", "locked"}
    query    engine, query        {"method", "url", "payload"}: how a search engine is asked
    results  engine, query        {"results": [{"title", "url", "text"}]}: what its answer says

Its limits are its own first deed, before a byte of what came from outside is looked at.
"""

from __future__ import annotations

import codecs
import json
import logging
import os
import re
import resource
import signal
import sys
import threading
from collections.abc import Callable
from io import BytesIO
from typing import Any

CPU_SECONDS = 15
MEMORY_BYTES = 1_200_000_000
"""Of addresses, not of memory: an interpreter with these libraries alone takes a third."""
EXTRACTION_SECONDS = 4.0
"""Processor time after which a page becomes all of its text, menus included."""
METADATA_SECONDS = 1.0
"""Processor time after which a page has no title and no date."""
MAX_TAGS = 100_000
"""A page with more has no article that could be found in time."""
_LONG_TAG = r"<[A-Za-z!?/][^<>]{10000,}>?"
"""A tag as long as no page writes one to be read: the parser compares each attribute of a tag with all before it."""
FAST_ABOVE_CHARS = 300_000
"""Longer pages are not tried with a second method."""


class ExtractionTooSlow(BaseException):
    """The time for finding the article of a page is over. No `Exception`, which the library would catch."""


def set_limits() -> None:
    """Limit processor time and memory; write no files, start no programs, leave no core."""
    for kind, limit in (
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))


def read_page(data: bytes, job: dict[str, Any]) -> dict[str, Any]:
    """Return the text of a page as Markdown, without menus and the like."""
    import trafilatura

    html = _tame(_decode(data, job["charset"]))
    text = metadata = None
    if html.count(b"<" if isinstance(html, bytes) else "<") <= MAX_TAGS:  # type: ignore[arg-type]
        text = _within(
            EXTRACTION_SECONDS,
            lambda: trafilatura.extract(
                html,
                url=job["url"],
                output_format="markdown",
                include_links=True,
                include_comments=False,
                favor_recall=True,
                fast=len(html) > FAST_ABOVE_CHARS,
            ),
        )
        metadata = _within(METADATA_SECONDS, lambda: trafilatura.extract_metadata(html, default_url=job["url"]))
    # A page that is one short notice, or a list of links, has no article to find: then all of its text.
    return {
        "title": metadata.title or "" if metadata else "",
        "date": metadata.date or "" if metadata else "",
        "text": text or trafilatura.html2txt(html) or "",
    }


def _tame(html: str | bytes) -> str | bytes:
    """Remove what a page needs only to hold a reader up."""
    if isinstance(html, bytes):
        return re.sub(_LONG_TAG.encode(), b"", html.replace(b"\0", b""))
    return re.sub(_LONG_TAG, "", html.replace("\0", ""))


def _within(seconds: float, work: Callable[[], Any]) -> Any:
    """Return what the work returns; None if it takes more processor time."""
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        return work()
    except ExtractionTooSlow:
        return None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _stop_extraction(_signal: int, _frame: object) -> None:
    raise ExtractionTooSlow


def _decode(data: bytes, charset: str) -> str | bytes:
    """Decode with the charset that the server said; without a known one the library finds it in the page."""
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            return data.decode(name, "replace")
    try:
        return data.decode(charset, "replace") if charset else data
    except LookupError:
        return data


def read_pdf(data: bytes, job: dict[str, Any]) -> dict[str, Any]:
    """Return the text of a PDF, page by page."""
    from pypdf import PdfReader

    reader = PdfReader(BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        return {"error": "the PDF is locked by a password", "locked": True}
    pages = [page.extract_text() for page in reader.pages[: job["max_pages"]]]
    title = reader.metadata.title if reader.metadata else ""
    created = reader.metadata.creation_date if reader.metadata else None
    return {
        "title": title or "",
        "date": created.date().isoformat() if created else "",
        "text": "\n\n".join(page.strip() for page in pages).strip(),
        "pages": len(reader.pages),
    }


def _engine(name: str) -> Any:
    from ddgs.engines.duckduckgo import Duckduckgo
    from ddgs.engines.mojeek import Mojeek

    return {"duckduckgo": Duckduckgo, "mojeek": Mojeek}[name]()


def build_query(_: bytes, job: dict[str, Any]) -> dict[str, Any]:
    """Return how a search engine is asked; nothing is sent from here."""
    engine = _engine(job["engine"])
    payload = engine.build_payload(query=job["query"], region="us-en", safesearch="moderate", timelimit=None, page=1)
    return {"method": engine.search_method, "url": engine.search_url, "payload": payload}


def read_results(data: bytes, job: dict[str, Any]) -> dict[str, Any]:
    """Return what the page of a search engine lists."""
    engine = _engine(job["engine"])
    found = engine.post_extract_results(engine.extract_results(data.decode("utf-8", "replace")))
    return {"results": [{"title": item.title, "url": item.href, "text": item.body} for item in found if item.href]}


JOBS = {"page": read_page, "pdf": read_pdf, "query": build_query, "results": read_results}


def end_with_parent() -> None:
    """Wait until stdin closes, which means that nobody waits for the answer; then end."""
    os.read(0, 1)
    os._exit(1)


def main() -> None:
    """Do one job."""
    set_limits()
    signal.signal(signal.SIGVTALRM, _stop_extraction)
    logging.disable(logging.CRITICAL)
    job = json.loads(sys.stdin.buffer.readline())
    data = sys.stdin.buffer.read(job["size"])
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        answer = JOBS[job["job"]](data, job)
    except MemoryError:
        answer = {"error": "it takes more memory than it may"}
    except Exception as error:  # noqa: BLE001 - whatever a library raises about what came from outside
        answer = {"error": f"it cannot be read ({type(error).__name__})"}
    line = json.dumps(answer).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]
    os._exit(0)  # at once: the thread still reads


if __name__ == "__main__":
    main()

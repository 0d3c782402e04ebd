"""The tools that read the web. What they return is marked with its address and date; its words are only words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from bubbot.errors import ToolFailed, ToolRetry
from bubbot.features.web.client import HTTP_ERROR, WebClient, WebError, WebResponse
from bubbot.features.web.reading import (
    PageReader,
    PageText,
    WebResult,
    format_install_command,
    list_missing_packages,
)
from bubbot.features.web.search import SearchEngine, search
from bubbot.features.web.site import find_site
from bubbot.ports.text import clean, format_bytes, replace_controls
from bubbot.ports.tool import (
    READS_WEB,
    CallPlan,
    CommandHelp,
    GrantKind,
    GrantTarget,
    HelpTopic,
    Tool,
    ToolArgs,
    tool,
)
from bubbot.ports.turn import Turn
from bubbot.runtime.attachments import image_type

WEB_IMAGE = "web/image"
MAX_RESULTS = 10
MAX_SNIPPET_CHARS = 500
MAX_TITLE_CHARS = 200
PAGE_TYPES = frozenset(("text/html", "application/xhtml+xml"))
UNKNOWN_TYPES = ("", "application/octet-stream")
PDF_MARK = b"%PDF-"
_PROVIDER_TEST_STRING = re.compile(r"[A-Z]+_MAGIC_STRING_TRIGGER_\w+")
TEXT_TYPES = frozenset(
    (
        "application/json", "application/ld+json", "application/xml", "application/rss+xml", "application/atom+xml",
        "application/yaml", "application/javascript", "application/x-ndjson", "application/toml", "image/svg+xml",
    )
)  # fmt: skip


class FetchArgs(ToolArgs):
    """The arguments of `web.fetch`."""

    url: str = Field(description="the address, with https:// or http://")


class WebSearchArgs(ToolArgs):
    """The arguments of `web.search`."""

    query: str = Field(description="the words to look for")
    limit: int = Field(default=5, ge=1, le=MAX_RESULTS, description="at most so many results")
    positional = ("query",)


def web_tools(client: WebClient, reader: PageReader, engines: Sequence[SearchEngine]) -> list[Tool]:
    """Build the tools.

    Args:
        client: sends the requests of `web.fetch`.
        reader: reads pages and PDFs.
        engines: the search engines, in the order in which they are asked.
    """

    async def plan_fetch(turn: Turn, args: FetchArgs) -> CallPlan:
        try:
            address = client.check(args.url)
        except WebError as error:
            raise ToolRetry(turn.result_texts.say("web_failed", what=args.url, reason=error)) from None
        target = GrantTarget(GrantKind.DOMAIN, address.host)
        return CallPlan(READS_WEB, f"GET {address.url}", target, address=args.url, site=find_site(address.host))

    @tool(
        "web.fetch",
        effect=READS_WEB,
        plan=plan_fetch,
        help=CommandHelp(HelpTopic.OTHER, "Read a page of the web", (",web.fetch https://example.org/",)),
    )
    async def web_fetch(turn: Turn, args: FetchArgs) -> str:
        """Read an address of the web: a page as Markdown, a PDF as text, a text as it is; an image is kept under a handle."""
        texts = turn.result_texts
        try:
            response = await client.get(args.url)
            if response.redirect:
                return texts.say("web_moved", address=response.address, target=_one_line(response.redirect, 2000))
            if response.status >= HTTP_ERROR:
                raise WebError(texts.say("web_status", status=response.status))
            return await _read_response(turn, reader, response)
        except WebError as error:
            raise ToolFailed(texts.say("web_failed", what=args.url, reason=error)) from None

    async def plan_search(_turn: Turn, args: WebSearchArgs) -> CallPlan:
        return CallPlan(READS_WEB, args.query, query=args.query.strip())

    @tool(
        "web.search",
        effect=READS_WEB,
        plan=plan_search,
        help=CommandHelp(HelpTopic.OTHER, "Search the web", (",web.search tape recorders",)),
    )
    async def web_search(turn: Turn, args: WebSearchArgs) -> str:
        """Search the web; each result has a title, an address that web.fetch reads, and a few words."""
        texts, query = turn.result_texts, args.query.strip()
        if not query:
            raise ToolRetry(texts.say("web_no_query"))
        try:
            # Engines are asked for as many each time: how many somebody wants is not theirs to know.
            answer = await search(engines, query, MAX_RESULTS)
        except WebError as error:
            raise ToolFailed(texts.say("web_failed", what=query, reason=error)) from None
        # Without the query: words of the model must not look like words of the web.
        head = texts.say("web_source", address=answer.engine, time=_format_time(turn.now()))
        if not answer.results:
            return f"{_mark(head)}\n{texts.say('web_nothing')}"
        results = answer.results[: args.limit]
        return "\n".join([_mark(head), *(_format_result(number, item) for number, item in enumerate(results, 1))])

    return [web_fetch, web_search]


async def _read_response(turn: Turn, reader: PageReader, response: WebResponse) -> str:
    """Return what a model is shown of an answer. Raise `WebError` if it has no text, and `ToolFailed` without a reader."""
    texts, body = turn.result_texts, response.body
    head = _mark(texts.say("web_source", address=response.address, time=_format_time(turn.now())))
    if media_type := image_type(body):
        return f"{head}\n{await _keep_image(turn, response, media_type)}"
    is_pdf, is_page = body.startswith(PDF_MARK), _is_page(response)
    if is_page and not is_pdf and list_missing_packages():
        raise ToolFailed(_say_missing(turn))
    if is_pdf:
        page = await reader.read_pdf(body)
    elif is_page:
        page = await reader.read_page(body, charset=response.charset, url=response.address)
    elif (text := _decode_text(response)) is not None:
        page = PageText(text)
    else:
        named = response.media_type or texts.say("web_unknown_type")
        raise WebError(texts.say("web_not_text", media_type=named, size=format_bytes(len(body))))
    about = [part for part in (page.title, page.date) if part]
    if page.pages:
        about.append(texts.say("web_pages", count=page.pages))
    lines = [head, *([_indent(_one_line(", ".join(about), MAX_TITLE_CHARS))] if about else []), ""]
    if text := _neutralise(page.text).strip():
        return "\n".join([*lines, _indent(text)])
    return "\n".join([*lines, texts.say("web_no_text")])


async def _keep_image(turn: Turn, response: WebResponse, media_type: str) -> str:
    """Keep an image with the tape, cited by a fact; return a sentence with its handle."""
    digest, size = await turn.tape.put_blob(response.body), len(response.body)
    await turn.tape.append_event(
        WEB_IMAGE, {"address": response.address, "media_type": media_type, "size": size, "digest": digest}
    )
    return turn.result_texts.say("web_image", media_type=media_type, size=format_bytes(size), handle=digest)


def _say_missing(turn: Turn) -> str:
    if turn.has_power_over_other_chats:
        return turn.result_texts.say("web_no_reader", command=format_install_command())
    return turn.result_texts.say("web_no_reader_here")


def _is_page(response: WebResponse) -> bool:
    if response.media_type in PAGE_TYPES:
        return True
    beginning = response.body[:500].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return response.media_type in UNKNOWN_TYPES and beginning.startswith((b"<!doctype html", b"<html"))


def _decode_text(response: WebResponse) -> str | None:
    """Decode a text; None for anything else. Without a known charset it is UTF-8, as far as it goes."""
    media, body = response.media_type, response.body
    if not (media.startswith("text/") or media in TEXT_TYPES or media.endswith(("+json", "+xml"))):
        if media not in UNKNOWN_TYPES or b"\0" in body:
            return None
        try:
            return body.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None
    return body.decode(response.charset or "utf-8-sig", "replace")


def _format_result(number: int, result: WebResult) -> str:
    lines = [f"{number}. {_one_line(result.title, MAX_TITLE_CHARS)}", f"   {_one_line(result.url, 2000)}"]
    if result.text:
        lines.append(f"   {_one_line(result.text, MAX_SNIPPET_CHARS)}")
    return "\n".join(lines)


def _mark(text: str) -> str:
    """Put the line about the source in brackets that nothing in it can close."""
    return f"[{_neutralise(text).replace('[', '(').replace(']', ')')}]"


def _indent(text: str) -> str:
    """Indent what a page says: a line of it cannot look like the one about its source, which begins at the margin."""
    return "\n".join(f"  {line}" if line else "" for line in text.split("\n"))


def _one_line(text: str, limit: int) -> str:
    line = " ".join(_neutralise(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _neutralise(text: str) -> str:
    """Make foreign text harmless for terminals, and for providers that refuse every request with a certain test string."""
    return _PROVIDER_TEST_STRING.sub(lambda found: found[0].replace("_", " "), replace_controls(clean(text)))


def _format_time(now: datetime) -> str:
    return f"{now:%Y-%m-%d %H:%M} UTC"

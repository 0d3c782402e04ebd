"""The commands that read the web. What they return is marked with its address and date; its words are only words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.command import Caller, command, make_tools
from bubbot.errors import CommandRefused
from bubbot.features.web.address import find_site
from bubbot.features.web.client import HTTP_ERROR, WebClient, WebError, WebResponse
from bubbot.features.web.facts import WebImageKept
from bubbot.features.web.reading import (
    PageReader,
    PageText,
    WebResult,
    format_install_command,
    list_missing_packages,
)
from bubbot.features.web.search import SearchEngine, search
from bubbot.formatting import clean, format_bytes, replace_controls
from bubbot.ports.turn import Turn
from bubbot.runtime.attachments import image_type
from bubbot.tool import READS_WEB, CallPlan, CommandHelp, GrantKind, GrantTarget, HelpTopic, Tool

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


class FetchArgs(Args, frozen=True):
    """What to read."""

    url: Annotated[str, Meta(description="the address, with https:// or http://")]


class WebSearchArgs(Args, frozen=True):
    """What to look for."""

    query: Annotated[str, Meta(description="the words to look for")]
    limit: Annotated[int, Meta(ge=1, le=MAX_RESULTS, description="at most so many results")] = 5


class WebPage(Struct, frozen=True, kw_only=True):
    """What an address of the web holds: a text, an image, or the way to another host.

    Attributes:
        address: where it was read, after redirects.
        time: when.
        page: its text; None for an image, and if nothing was read.
        image: the image that was kept.
        redirect: the address at another host to which it leads, where nothing was read.
    """

    address: str
    time: datetime
    page: PageText | None = None
    image: WebImageKept | None = None
    redirect: str = ""

    def describe(self, caller: Caller) -> str:
        """Show it below a line about its source."""
        texts = caller.result_texts
        if self.redirect:
            return texts.say("WebPage.moved", address=self.address, target=_one_line(self.redirect, 2000))
        head = _mark(texts.say("web_source", address=self.address, time=_format_time(self.time)))
        if self.image:
            size, kind = format_bytes(self.image.size), self.image.media_type
            return f"{head}\n{texts.say('WebPage.image', media_type=kind, size=size, handle=self.image.digest)}"
        page = self.page or PageText("")
        about = [part for part in (page.title, page.date) if part]
        if page.pages:
            about.append(texts.say("web_pages", count=page.pages))
        lines = [head, *([_indent(_one_line(", ".join(about), MAX_TITLE_CHARS))] if about else []), ""]
        if text := _neutralise(page.text).strip():
            return "\n".join([*lines, _indent(text)])
        return "\n".join([*lines, texts.say("web_no_text")])


class WebResults(Struct, frozen=True):
    """What a search engine found.

    Attributes:
        engine: its name.
        time: when it was asked.
        results: the best ones first.
    """

    engine: str
    time: datetime
    results: tuple[WebResult, ...]

    def describe(self, caller: Caller) -> str:
        """List them below a line about their source."""
        texts = caller.result_texts
        # Without the query: words of the model must not look like words of the web.
        head = _mark(texts.say("web_source", address=self.engine, time=_format_time(self.time)))
        if not self.results:
            return f"{head}\n{texts.say('WebResults.none')}"
        return "\n".join([head, *(_format_result(number, item) for number, item in enumerate(self.results, 1))])


class WebCommands:
    """Read the web, for people in chats and for models."""

    def __init__(self, client: WebClient, reader: PageReader, engines: Sequence[SearchEngine]) -> None:
        """Build them. The `engines` are asked in this order."""
        self._client = client
        self._reader = reader
        self._engines = engines

    @command(
        "web fetch",
        chat=("web.fetch",),
        in_shell=False,
        effect=READS_WEB,
        for_model=True,
        help=CommandHelp(HelpTopic.OTHER, "Read a page of the web", (",web.fetch https://example.org/",)),
    )
    async def fetch(self, caller: Caller, args: FetchArgs) -> WebPage:
        """Read an address of the web: a page as Markdown, a PDF as text, a text as it is; an image is kept under a handle."""
        texts = caller.result_texts
        try:
            response = await self._client.get(args.url)
            if response.redirect:
                return WebPage(address=response.address, time=caller.required_turn.now(), redirect=response.redirect)
            if response.status >= HTTP_ERROR:
                raise WebError(texts.say("web_status", status=response.status))
            return await self._read(caller.required_turn, response)
        except WebError as error:
            raise CommandRefused("web_failed", what=args.url, reason=str(error)) from None

    @command(
        "web search",
        chat=("web.search",),
        in_shell=False,
        effect=READS_WEB,
        for_model=True,
        help=CommandHelp(HelpTopic.OTHER, "Search the web", (",web.search tape recorders",)),
    )
    async def search(self, caller: Caller, args: WebSearchArgs) -> WebResults:
        """Search the web; each result has a title, an address that web.fetch reads, and a few words."""
        query = args.query.strip()
        if not query:
            raise CommandRefused("web_no_query")
        try:
            # Engines are asked for as many each time: how many somebody wants is not theirs to know.
            answer = await search(self._engines, query, MAX_RESULTS)
        except WebError as error:
            raise CommandRefused("web_failed", what=query, reason=str(error)) from None
        return WebResults(answer.engine, caller.required_turn.now(), tuple(answer.results[: args.limit]))

    async def plan_fetch(self, _turn: Turn, args: FetchArgs) -> CallPlan:
        """Name the host that a call asks, and the address as it stands in the call."""
        try:
            address = self._client.check(args.url)
        except WebError as error:
            raise CommandRefused("web_failed", what=args.url, reason=str(error)) from None
        target = GrantTarget(GrantKind.DOMAIN, address.host)
        return CallPlan(READS_WEB, f"GET {address.url}", target, address=args.url, site=find_site(address.host))

    async def plan_search(self, _turn: Turn, args: WebSearchArgs) -> CallPlan:
        """Name the words that a call sends to others."""
        return CallPlan(READS_WEB, args.query, query=args.query.strip())

    async def _read(self, turn: Turn, response: WebResponse) -> WebPage:
        """Read an answer. Raise `WebError` if it has no text, and `CommandRefused` without a reader."""
        texts, body, time = turn.result_texts, response.body, turn.now()
        if media_type := image_type(body):
            image = WebImageKept(response.address, media_type, len(body), await turn.tape.put_blob(body))
            await turn.tape.append([image.to_entry()])
            return WebPage(address=response.address, time=time, image=image)
        is_pdf, is_page = body.startswith(PDF_MARK), _is_page(response)
        if is_page and not is_pdf and list_missing_packages():
            if turn.has_power_over_other_chats:
                raise CommandRefused("web_no_reader", command=format_install_command())
            raise CommandRefused("web_no_reader_here")
        if is_pdf:
            page = await self._reader.read_pdf(body)
        elif is_page:
            page = await self._reader.read_page(body, charset=response.charset, url=response.address)
        elif (text := _decode_text(response)) is not None:
            page = PageText(text)
        else:
            named = response.media_type or texts.say("web_unknown_type")
            raise WebError(texts.say("web_not_text", media_type=named, size=format_bytes(len(body))))
        return WebPage(address=response.address, time=time, page=page)


def web_tools(client: WebClient, reader: PageReader, engines: Sequence[SearchEngine]) -> list[Tool]:
    """Build the tools; see `WebCommands`."""
    commands = WebCommands(client, reader, engines)
    return make_tools(
        WebCommands,
        lambda: commands,
        web_fetch={"plan": commands.plan_fetch},
        web_search={"plan": commands.plan_search},
    )


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

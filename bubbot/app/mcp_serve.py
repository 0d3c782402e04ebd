"""The views of other features for programs that read tapes through MCP, and the address at which these ask."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec

from bubbot.app.installed import load_features
from bubbot.app.tapes import now
from bubbot.arguments.fields import dump_given
from bubbot.errors import BubbotError, ConfigError, ControlError, EntryNotFound, ValueInvalid
from bubbot.features.conversation.anchors import AnchorsView
from bubbot.features.mcp.serve.answers import (
    AnswerExplanation,
    AnswerStep,
    DayNote,
    Hit,
    Memory,
    SearchMessagesArgs,
    ToolUse,
)
from bubbot.features.mcp.serve.options import ServeOptions
from bubbot.features.mcp.serve.results import AskSendArgs, MessageState
from bubbot.features.mcp.serve.views import FoundTopic, QuotedEntry
from bubbot.features.memory.views import MemoryView
from bubbot.features.search.commands import SearchArgs, build_search
from bubbot.features.topics.reading import ReadChatView
from bubbot.features.topics.view import TopicListView
from bubbot.features.why.foreign import read_foreign
from bubbot.features.why.lineage import read_step_lineage
from bubbot.features.why.view import find_explained, find_original
from bubbot.home import Home
from bubbot.ports.asgi import AsgiApp, FindClient
from bubbot.server.asgi import serve_asgi
from bubbot.server.client import DaemonNotRunning, connect
from bubbot.server.protocol import decode
from bubbot.settings.loader import Settings
from bubbot.shell_command import CommandResult
from bubbot.tape.entry import Kind
from bubbot.tape.handle import TapeHandle
from bubbot.texts import Texts

LOOPBACK = "127.0.0.1"
SEND_COMMAND = "mcp client-send"
SEND_TIMEOUT_SECONDS = 30.0


class FeatureViews:
    """The views of the features. See `TapeViews`."""

    def __init__(self, zone: ZoneInfo) -> None:
        """Take the time zone of days that are named."""
        self._zone = zone

    async def search(self, tape: TapeHandle, args: SearchMessagesArgs, limit: int) -> tuple[Sequence[Hit], bool]:
        """See `TapeViews.search`."""
        asked = SearchArgs(
            args.query,
            (Kind.MESSAGE.value,),
            args.person,
            since=args.since or None,
            until=args.until or None,
            limit=limit,
        )
        try:
            view = build_search(asked, now(), self._zone)
        except ValueInvalid as error:
            raise BubbotError(Texts().say_on("model", error.code, **{"command": "search", **error.values})) from error
        found = await tape.read(view)
        hits = [
            Hit("", hit.id, hit.date, hit.author, hit.snippet, hit.match.value, hit.superseded_by or 0)
            for hit in found.hits
        ]
        return hits, found.incomplete

    async def read_messages(self, tape: TapeHandle, limit: int, before: int) -> Sequence[QuotedEntry]:
        """See `TapeViews.read_messages`."""
        return await tape.read(ReadChatView(None, limit, before))

    async def list_anchors(self, tape: TapeHandle, limit: int) -> Sequence[int]:
        """See `TapeViews.list_anchors`."""
        return [anchor.id for anchor in await tape.read(AnchorsView(limit))]

    async def read_memory(self, tape: TapeHandle) -> Memory:
        """See `TapeViews.read_memory`."""
        found = await tape.read(MemoryView())
        notes = tuple([DayNote(note.date, note.content) for note in reversed(found.dailies)])
        return Memory(session="", version=found.version, entry=found.seal_id, long_term=found.long_term, notes=notes)

    async def explain(self, tape: TapeHandle, turn: str) -> AnswerExplanation:
        """See `TapeViews.explain`."""
        record = await find_explained(tape, turn)
        if record is None:
            if turn:
                raise EntryNotFound(f"turn is {turn!r}, and no turn of this chat has an id that begins so")
            return AnswerExplanation(session="")
        writer = await find_original(tape, record) or record
        lineage, foreign = await read_step_lineage(tape, writer), await read_foreign(tape, writer)
        return AnswerExplanation(
            session="",
            turn=record.id,
            status=record.status,
            first=record.entries[0].id,
            last=record.entries[-1].id,
            answer=record.answer.id if record.answer else 0,
            agent=record.agent,
            steps=tuple(
                [
                    AnswerStep(
                        step.id,
                        step.status,
                        step.model,
                        step.shown,
                        len(dict(step.shown_elsewhere)),
                        step.input_tokens,
                        step.output_tokens,
                        step.elapsed_ms,
                    )
                    for step in writer.steps
                ]
            ),
            tools=tuple([ToolUse(entry, call.name) for entry, call in writer.calls]),
            window=tuple([anchor.id for anchor in lineage.anchors]) if lineage else (),
            foreign=tuple([each.entry for each in foreign if not each.tape]),
            foreign_elsewhere=len([each for each in foreign if each.tape]),
        )

    async def list_topics(self, tape: TapeHandle) -> Sequence[FoundTopic]:
        """See `TapeViews.list_topics`."""
        return [
            FoundTopic(
                topic.name.title,
                topic.opened.id if topic.opened else 0,
                topic.date,
                topic.messages,
                topic.is_current,
                topic.state,
            )
            for topic in await tape.read(TopicListView())
        ]


async def ask_to_send(home: Path, args: AskSendArgs) -> MessageState:
    """Ask the running bot of a home about a message that a program wants to send: this process writes nothing.

    Raises:
        ConfigError: no bot runs.
        BubbotError: the bot refuses.
    """
    _, address = Home(home).read_lock_holder()
    try:
        if not address:
            raise DaemonNotRunning
        async with connect(address) as bot:
            body = {"name": SEND_COMMAND, "arguments": dump_given(args), "confirmed": True}
            reply = await bot.request("command", body, timeout=SEND_TIMEOUT_SECONDS)
    except DaemonNotRunning as error:
        raise ConfigError(Texts().say("mcp_send_no_bot")) from error
    answered = decode(reply.get("told"), CommandResult)
    try:
        return msgspec.convert(answered.data, MessageState)
    except msgspec.ValidationError as error:
        raise ControlError(f"the running bot answered something else ({error}): restart it after an update") from error


def serve_options(settings: Settings) -> ServeOptions:
    """Return what `bubbot mcp serve` needs of the rest of bubbot."""

    @asynccontextmanager
    async def serve_http(app: AsgiApp, port: int, find_client: FindClient) -> AsyncIterator[int]:
        async with serve_asgi(app, LOOPBACK, port, find_client) as bound:
            yield bound

    return ServeOptions(
        FeatureViews(ZoneInfo(settings.bot.timezone)), load_features().references, serve_http, ask_to_send
    )

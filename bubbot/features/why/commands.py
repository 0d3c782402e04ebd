"""The commands that explain an answer from the tape, without asking a model, and vouch for an entry that it rests on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.command import Caller, command, make_group
from bubbot.errors import CommandRefused, ConfigError, EntryNotFound
from bubbot.features.why.foreign import ForeignSource, read_foreign
from bubbot.features.why.formats import CheckedCall, find_checks, format_explanation
from bubbot.features.why.lineage import Lineage, check_citations, read_step_lineage
from bubbot.features.why.parts import ShownPart, find_parts
from bubbot.features.why.view import find_explained, find_original
from bubbot.ports.channel import Role
from bubbot.ports.session_names import read_session
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import has_request, rebuild_sent
from bubbot.runtime.context.copies import FindHeads, find_no_heads
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.context.view import CONTEXT_VERSION, records_view
from bubbot.runtime.turns import StepRecord, TurnRecord
from bubbot.shell_command import DEFAULT_SESSION, EXIT_NO_ANSWER, Argument
from bubbot.tape.entry import JsonObject, text_field
from bubbot.tape.handle import TapeHandle, spans_of
from bubbot.tape.provenance import VOUCHED, Source, source_of
from bubbot.texts import Texts
from bubbot.tool import INSIDE, READS_STORED, CommandHelp, CommandPlace, HelpTopic

_TRACE = r"[0-9a-f]{4,32}"


class WhyArgs(Args, frozen=True):
    """Which answer of a chat."""

    request: Annotated[bool, Meta(description="print the request of the last step")] = False
    turn: Annotated[str, Meta(description="the turn to explain: its trace, which a failure tells")] = ""

    @classmethod
    def normalize(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read a trace that was typed as a plain word; no word for yes or no looks like one."""
        word = values.get("request")
        is_trace = len(values) == 1 and isinstance(word, str) and re.fullmatch(_TRACE, word)
        return {"turn": word} if is_trace else values


class WhySessionArgs(Args, frozen=True):
    """Which answer of a session."""

    session: Annotated[str, Argument(f"a session such as telegram:42 (default: {DEFAULT_SESSION})")] = DEFAULT_SESSION
    trace: Annotated[str, Argument("the turn whose id begins so, which failure messages show (default: the last)")] = ""


class EntryArgs(Args, frozen=True):
    """An entry of the chat."""

    entry: Annotated[int, Meta(description="the id of the entry, as ,why names it", ge=1)]


class StepLine(Struct, frozen=True):
    """A step of a turn.

    Attributes:
        entry: its entry.
        status: how it ended.
        model: the model that was asked.
        shown: the ranges of entries that the model was shown, each as its first and last id.
        request: the digest of the request.
        parts: what a step for a node of a task was shown, part by part.
        weights: the digest of the weights that answered; empty if nobody was certain of them.
    """

    entry: int
    status: str
    model: str
    shown: tuple[tuple[int, ...], ...]
    request: str
    parts: tuple[ShownPart, ...] = ()
    weights: str = ""

    @classmethod
    def of(cls, turn: TurnRecord, step: StepRecord) -> StepLine:
        """Describe a step of a turn."""
        model, request = text_field(step.data, "model"), text_field(step.data, "request")
        return cls(step.id, step.status, model, step.shown, request, find_parts(turn, step), step.weights)


class ToolRun(Struct, frozen=True):
    """A tool that ran.

    Attributes:
        entry: the entry of its call.
        name: its name.
    """

    entry: int
    name: str


class CallCheck(Struct, frozen=True):
    """Whether a call ran, and what that rests on.

    Attributes:
        entry: the fact.
        tool: the tool.
        verdict: run, confirm, ask or refuse.
        effect: what the call does, as its tool declares it.
        role: of the person for whom the turn ran.
        place: direct, group, job or subtask.
        tainted_by: the entries that made the turn tainted for it.
        grant: the number of the grant under which it ran; 0 for what a job was allowed, None without one.
        approval: the card that asked for it, or that allowed it; None without one.
    """

    entry: int
    tool: str
    verdict: str
    effect: str
    role: str
    place: str
    tainted_by: tuple[int, ...] = ()
    grant: int | None = None
    approval: str | None = None

    @classmethod
    def of(cls, entry: int, call: CheckedCall) -> CallCheck:
        """Read the fact on which it was decided, by its id."""
        tainted_by = tuple([tainting for _, tainting in call.tainted_by])
        return cls(
            entry, call.tool, call.verdict, call.effect, call.role, call.place, tainted_by, call.grant, call.approval
        )


class WhyResult(Struct, frozen=True):
    """The explanation of an answer.

    Attributes:
        session: the session, as it was named.
        turn: the id of the turn; empty if no model has answered there.
        status: how the turn ended.
        first: its first entry.
        last: its last entry.
        answer: the entry of the answer; None without one.
        steps: its steps, in order.
        tools: the tools that ran, in order.
        calls: the calls that needed more than a look at what their tools declare, in order.
        lineage: where the window of the last step comes from; None if there was none.
        foreign: the entries that made its words foreign, the most foreign first.
        original: the ranges of what wrote the answer, if that is a copy: a branch that was chosen. The steps, calls and foreign
            entries are those of it.
        agent: the agent that answered; empty for the bot itself.
    """

    session: str
    turn: str = ""
    status: str = ""
    first: int = 0
    last: int = 0
    answer: int | None = None
    steps: tuple[StepLine, ...] = ()
    tools: tuple[ToolRun, ...] = ()
    calls: tuple[CallCheck, ...] = ()
    lineage: Lineage | None = None
    foreign: tuple[ForeignSource, ...] = ()
    original: tuple[tuple[int, ...], ...] = ()
    agent: str = ""

    @property
    def exit_code(self) -> int:
        """1 if there is nothing to explain."""
        return 0 if self.turn else EXIT_NO_ANSWER


class WhyAnswer(WhyResult, frozen=True, kw_only=True):
    """An explanation with what people read.

    Attributes:
        text: the explanation line by line, or the request that was asked for.
    """

    text: str

    def describe(self, caller: Caller) -> str:  # noqa: ARG002 - as those of other results
        """Return the text."""
        return self.text


class Voucher(Struct, frozen=True):
    """An owner vouches for an entry.

    Attributes:
        entry: its id.
    """

    entry: int


class WhyCommands:
    """Explanations of answers, and the entries that owners vouch for."""

    def __init__(
        self, strategies: ContextStrategies | None = None, page: str = "", find_heads: FindHeads = find_no_heads
    ) -> None:
        """Set what only the running bot has.

        Args:
            strategies: rebuild requests.
            page: the address of the trace page; empty: nobody serves it.
            find_heads: returns how far a turn may read other tapes now.
        """
        self._strategies = strategies
        self._page = page
        self._find_heads = find_heads

    @command(
        "why [session] [trace]",
        chat=("session.why", "why"),
        form="[request]",
        example="telegram:42",
        effect=READS_STORED,
        help=CommandHelp(HelpTopic.HISTORY, "How the last answer came about", (",why", ",why 1a2b3c4d")),
    )
    async def explain(self, caller: Caller, args: WhyArgs | WhySessionArgs) -> WhyResult:
        """Explain the last answer, or a turn by its trace, without asking a model: entries, tools, tokens, time."""
        if isinstance(args, WhyArgs):
            tape, session, trace = caller.required_turn.tape, caller.required_turn.session, args.turn.strip()
            record = await find_explained(tape, trace)
            writer = None if record is None else await find_original(tape, record) or record
            if (
                record is not None
                and writer is not None
                and args.request
                and (step := _find_requested(writer)) is not None
            ):
                text = await self._format_request(caller.required_turn, step, caller.texts)
                return WhyAnswer(session, record.id, text=text)
            return await self._explain(caller, tape, session, trace, record)
        assert caller.context is not None
        async with caller.context.open_session(args.session, usage="explained") as opened:
            record = await find_explained(opened, args.trace)
            return await self._explain(caller, opened, args.session, args.trace, record)

    async def _explain(
        self, caller: Caller, tape: TapeHandle, session: str, trace: str, record: TurnRecord | None
    ) -> WhyResult:
        if record is None and trace:
            raise EntryNotFound(caller.texts.say("why_unknown", trace=trace))
        if record is None:
            return WhyResult(session)
        original = await find_original(tape, record)
        writer = original or record
        lineage, foreign = await read_step_lineage(tape, writer), await read_foreign(tape, writer)
        is_in_chat = caller.turn is not None
        names = {name: await read_session(tape, name) for step in writer.steps for name, _ in step.shown_elsewhere}
        find_heads = None if caller.turn is None else partial(self._find_heads, caller.turn)
        citations = await check_citations(tape, lineage, find_heads)
        text = format_explanation(
            record, caller.texts, lineage, foreign, names, citations=citations, original=original, with_hint=is_in_chat
        )
        if self._page and is_in_chat and caller.has_power:
            # Without a token: the answer goes onto the tape, and through the platform.
            address = f"{self._page}/session/{quote(tape.name, safe='')}/turn/{record.entries[0].id}"
            text += f"\n{caller.texts.say('why_page', address=address)}"
        return WhyAnswer(
            session,
            record.id,
            record.status,
            record.entries[0].id,
            record.entries[-1].id,
            record.answer.id if record.answer else None,
            tuple([StepLine.of(writer, step) for step in writer.steps]),
            tuple([ToolRun(entry, call.name) for entry, call in record.calls]),
            tuple(CallCheck.of(entry, call) for entry, call in find_checks(writer)),
            lineage,
            foreign,
            () if original is None else tuple(spans_of([entry.id for entry in original.entries])),
            record.agent,
            text=text,
        )

    async def _format_request(self, turn: Turn, step: JsonObject, texts: Texts) -> str:
        """Rebuild a step's request from the tape and check it against its recorded digest.

        What it quoted from chats that this one may not read any more is left out.
        """
        assert self._strategies is not None
        find_heads = partial(self._find_heads, turn)
        try:
            rebuilt = await rebuild_sent(step, turn.tape, strategies=self._strategies, find_heads=find_heads)
        except ConfigError as error:
            return str(error)
        verdict = texts.say("why_equal" if rebuilt.is_equal else "why_not_equal")
        if not rebuilt.is_equal and records_view(step) and step["view"].get("version", 1) != CONTEXT_VERSION:
            verdict = texts.say("why_other_version")
        # Printed with the digests of images: the output goes onto the tape, which must not hold their bytes.
        # The translation for the provider adds the model's name and orders keys in its own way; nothing records that.
        request = rebuilt.sent.as_bytes().decode()
        return f"{request}\n{texts.say('why_request', model=text_field(step, 'model'), verdict=verdict)}"

    @command(
        "tape vouch <entry>",
        chat=("tape.vouch", "vouch"),
        in_shell=False,
        form="<entry>",
        role=Role.OWNER,
        effect=INSIDE,
        help=CommandHelp(
            HelpTopic.ADMIN, "Vouch for an entry", (",vouch 12", ",vouch entry=12"), place=CommandPlace.DIRECT
        ),
    )
    async def vouch(self, caller: Caller, args: EntryArgs) -> Voucher:
        """Vouch for one entry of this chat: its words count as yours from now on. What was made of it stays as it is."""
        tape = caller.required_turn.tape
        if tape.source is not Source.OWN or not caller.has_power:
            raise CommandRefused("vouch_not_own")  # a forwarded command, or one that a job runs
        if args.entry > (last := await tape.head()):
            raise CommandRefused("no_entry", entry=args.entry, last=last)
        entry = await tape.entry(args.entry)
        if entry.erased or source_of(entry) is Source.OWN:
            raise CommandRefused("vouch_needless", entry=entry.id)
        await tape.append_event(VOUCHED, {"entry": entry.id})
        return Voucher(entry.id)


def _find_requested(turn: TurnRecord) -> JsonObject | None:
    """Find the step whose request is printed: the last that led to the answer, else the last for a purpose; None: none."""
    steps = turn.answering_steps or [step for step in turn.steps if has_request(step.data)]
    return steps[-1].data if steps else None


COMMANDS = make_group(
    "why",
    WhyCommands,
    None,
    "Explain the last answer of a session without asking a model: the entries that the model was shown, the window and "
    "where it comes from, tools, tokens and time. Read-only; works while the bot runs.",
    section="Look",
    help_line="explain the last answer of a session",
    why={"is_answered_without_home": False},
)

"""The commands that explain an answer, and vouch for an entry that it rests on."""

import re
from typing import Any, ClassVar
from urllib.parse import quote

from pydantic import Field, model_validator

from bubbot.errors import ConfigError, ToolRetry
from bubbot.features.why.view import find_explained
from bubbot.ports.channel import Role
from bubbot.ports.tool import INSIDE, READS_STORED, CommandHelp, CommandPlace, HelpTopic, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import has_request, rebuild_sent
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.context.view import CONTEXT_VERSION, records_view
from bubbot.runtime.turns import TurnRecord
from bubbot.tape.entry import JsonObject, text_field
from bubbot.tape.provenance import VOUCHED, Source, source_of

_TRACE = r"[0-9a-f]{4,32}"


class WhyArgs(ToolArgs):
    """The arguments of `session.why`."""

    request: bool = Field(default=False, description="print the request of the last step")
    turn: str = Field(default="", description="the turn to explain: its trace, which a failure tells")
    positional: ClassVar[tuple[str, ...]] = ("request",)

    @model_validator(mode="before")
    @classmethod
    def _parse_trace(cls, arguments: Any) -> Any:
        """Read a trace that was typed as a plain word; no word for yes or no looks like one."""
        word = arguments.get("request")
        is_trace = len(arguments) == 1 and isinstance(word, str) and re.fullmatch(_TRACE, word)
        return {"turn": word} if is_trace else arguments


def why_tool(strategies: ContextStrategies, page: str = "") -> Tool:
    """Make the command; the strategies rebuild requests, and `page` is the address of the trace page, if there is one."""

    @tool(
        "session.why",
        effect=READS_STORED,
        commands=("why",),
        for_model=False,
        help=CommandHelp(HelpTopic.HISTORY, "How the last answer came about", (",why", ",why 1a2b3c4d")),
    )
    async def session_why(turn: Turn, args: WhyArgs) -> str:
        """Explain the last answer, or a turn by its trace, without asking a model: entries, tools, tokens, time."""
        trace = args.turn.strip()
        explained = await find_explained(turn.tape, trace)
        if explained is not None:
            if args.request and (step := _find_requested(explained)) is not None:
                return await _format_request(turn, step, strategies)
            # Imported here: `bubbot status` loads this module and explains nothing.
            from bubbot.features.why.foreign import read_foreign
            from bubbot.features.why.formats import format_explanation
            from bubbot.features.why.lineage import read_step_lineage

            lineage = await read_step_lineage(turn.tape, explained)
            text = format_explanation(explained, turn.texts, lineage, await read_foreign(turn.tape, explained))
            if page and turn.has_power_over_other_chats:
                # Without a token: the answer goes onto the tape, and through the platform.
                address = f"{page}/session/{quote(turn.tape.name, safe='')}/turn/{explained.entries[0].id}"
                text += f"\n{turn.texts.say('why_page', address=address)}"
            return text
        if trace:
            raise ToolRetry(turn.texts.say("why_unknown", trace=trace))
        return turn.texts.say("why_none")

    return session_why


class VouchArgs(ToolArgs):
    """The arguments of `tape.vouch`."""

    entry: int = Field(ge=1, description="the id of the entry, as ,why names it")
    positional: ClassVar[tuple[str, ...]] = ("entry",)


@tool(
    "tape.vouch",
    effect=INSIDE,
    commands=("vouch",),
    for_model=False,
    role=Role.OWNER,
    help=CommandHelp(
        HelpTopic.ADMIN, "Vouch for an entry", (",vouch 12", ",vouch entry=12"), place=CommandPlace.DIRECT
    ),
)
async def tape_vouch(turn: Turn, args: VouchArgs) -> str:
    """Vouch for one entry of this chat: its words count as yours from now on. What was made of it stays as it is."""
    texts = turn.texts
    if turn.tape.source is not Source.OWN or not turn.has_power_over_other_chats:
        raise ToolRetry(texts.say("vouch_not_own"))  # a forwarded command, or one that a job runs
    if args.entry > (last := await turn.tape.head()):
        raise ToolRetry(texts.say("no_entry", entry=args.entry, last=last))
    entry = await turn.tape.entry(args.entry)
    if entry.erased or source_of(entry) is Source.OWN:
        raise ToolRetry(texts.say("vouch_needless", entry=entry.id))
    await turn.tape.append_event(VOUCHED, {"entry": entry.id})
    return texts.say("vouch_done", entry=entry.id)


def _find_requested(turn: TurnRecord) -> JsonObject | None:
    """Find the step whose request is printed: the last that led to the answer, else the last for a purpose; None: none."""
    steps = turn.answering_steps or [step for step in turn.steps if has_request(step.data)]
    return steps[-1].data if steps else None


async def _format_request(turn: Turn, step: JsonObject, strategies: ContextStrategies) -> str:
    """Rebuild a step's request from the tape and check it against its recorded digest."""
    try:
        rebuilt = await rebuild_sent(step, turn.tape, strategies=strategies)
    except ConfigError as error:
        return str(error)
    texts = turn.texts
    verdict = texts.say("why_equal" if rebuilt.is_equal else "why_not_equal")
    if not rebuilt.is_equal and records_view(step) and step["view"].get("version", 1) != CONTEXT_VERSION:
        verdict = texts.say("why_other_version")
    # Printed with the digests of images: the output goes onto the tape, which must not hold their bytes.
    # The translation for the provider adds the model's name and orders keys in its own way; nothing records that.
    return f"{rebuilt.sent.as_bytes().decode()}\n{texts.say('why_request', model=text_field(step, 'model'), verdict=verdict)}"

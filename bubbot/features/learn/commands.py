"""The command that exports episodes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeAlias

from msgspec import Meta, Struct, field

from bubbot import __version__
from bubbot.arguments.fields import Args
from bubbot.command import Caller, command, make_group
from bubbot.errors import EntryNotFound, ValueInvalid
from bubbot.features.learn.episodes import EpisodeReader
from bubbot.features.learn.formats import FORMATS
from bubbot.features.learn.people import ConsentCheck
from bubbot.features.learn.rewards import TurnSpan, assign_rewards
from bubbot.features.learn.settings import LearnSettings
from bubbot.features.learn.writing import Episode, Exporter, ExportReceipt
from bubbot.log import redact
from bubbot.ports.channel import Role
from bubbot.ports.judgements import ReadLabels
from bubbot.ports.people import AsksConsent, Purpose
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.rerun import PAGE_ENTRIES, SpeakerFinder
from bubbot.runtime.targets import find_target
from bubbot.shell_command import Argument, CommandContext
from bubbot.tape.entry import Kind, text_field
from bubbot.tape.events import TURN_ENDS, TURN_START
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tool import READS_PEOPLE


@dataclass(frozen=True, slots=True)
class LearnOptions:
    """What the command gets.

    Attributes:
        section: `[learn]` of the settings.
        strategies: rebuild what models were shown.
        open_consents: returns what knows what people allow, for the tapes of a home.
        open_labels: returns what reads the judgements of a tape.
    """

    section: LearnSettings
    strategies: ContextStrategies
    open_consents: Callable[[Callable[[str], TapeService]], AsksConsent]
    open_labels: Callable[[Callable[[str], TapeService]], ReadLabels]


FormatName: TypeAlias = Literal[
    "atif", "openai-chat", "openai-preference", "trl-sft", "trl-preference", "trl-kto", "inspect", "areal"
]
"""The names of `FORMATS`."""


class ExportArgs(Args, frozen=True):
    """What is exported, and where to."""

    format: Annotated[FormatName, Argument("the format of the file", "format")]
    slices: Annotated[
        str,
        Argument(
            "sessions such as telegram:42, whole or with a slice: telegram:42@12-400, two anchors FIRST..SECOND, or the beginning of a turn id",
            rest=True,
        ),
    ]
    out: Annotated[str, Argument("write this new file, and FILE.receipt.json", "FILE", short="o")] = ""
    purpose: Annotated[
        Purpose | None, Argument("what people have to allow it for (default: what the format is for)", "PURPOSE")
    ] = field(default=None, name="for")
    discount: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        Argument("how much the reward of a later turn counts for an earlier one", "N"),
    ] = None
    require_complete: Annotated[bool, Argument("write nothing if anything is left out")] = False


class Exported(Struct, frozen=True):
    """An export.

    Attributes:
        path: the file.
        receipt: what is in it.
    """

    is_text: ClassVar = True
    path: str
    receipt: ExportReceipt

    def describe(self, caller: Caller) -> str:
        """Say what was written, and what was not."""
        say, receipt = caller.texts.say, self.receipt
        turns = sum(each.turns for each in receipt.slices)
        lines = [say("Exported", file=self.path, records=receipt.records, turns=turns, format=receipt.format)]
        if rewarded := sum(each.rewarded for each in receipt.slices):
            lines.append(say("export_rewarded", count=rewarded))
        lines += (
            [say("export_complete")]
            if receipt.is_complete
            else [say("export_partial", why="; ".join(receipt.why_partial))]
        )
        return "\n".join(lines)


class LearnCommands:
    """Exports of what models were shown and did."""

    @command(
        "export <format> <slices>",
        example="openai-chat telegram:42@12-400 --out chats.jsonl",
        role=Role.OWNER,
        effect=READS_PEOPLE,
        progress=("Exporting", "entries"),
    )
    async def export(self, caller: Caller, args: ExportArgs) -> Exported:
        """Write the turns of chats, as the models were shown them, for those who train or evaluate models.

        Only turns are written whose people allow that (,consent). Beside the file stands a receipt: where it is from, what was left out
        and why, and hashes.
        """
        context = caller.context
        assert context is not None
        options: LearnOptions = context.settings
        chosen = next(each for each in FORMATS if each.name == args.format)
        out = Path(args.out.strip())
        if not out.name or out.name in (
            "..",
            "-",
        ):  # nothing goes to standard output: beside the file stands its receipt
            raise ValueInvalid("export_no_file")
        purpose = args.purpose or chosen.purpose
        words = args.slices.split()
        if chosen.is_single and len(words) > 1:
            raise ValueInvalid("export_single", format=chosen.name)
        episodes = [await _open_episode(context, options, word, purpose) for word in words]
        factor = options.section.discount if args.discount is None else args.discount
        exporter = Exporter(chosen, purpose, __version__, redact, factor, context.on_progress)
        receipt = await exporter.write(episodes, out, is_whole=args.require_complete)
        return Exported(str(out), receipt)


async def _open_episode(context: CommandContext, options: LearnOptions, word: str, purpose: Purpose) -> Episode:
    """Find what a word names, and what its turns were worth. Raise `ValueInvalid` or `EntryNotFound`."""
    tapes = await context.store.tapes()
    chat, part = _split_word(word, [tape.name for tape in tapes])
    async with context.open_session(chat, usage="exported") as tape:
        summary = next((each for each in tapes if each.name == tape.name), None)
        if summary is None or not summary.head:
            raise EntryNotFound(f"{chat} has no entries")
        head = summary.head
        spans = (await find_target(tape, part)).entries if part else ((1, head),)
        first, last = spans[0][0], spans[-1][1]
        turns = await find_turns(tape, first, last)
        labels = await options.open_labels(context.open_tape)(tape.name)
        rewards = assign_rewards(labels, turns, options.section)
        check = ConsentCheck(SpeakerFinder(tape), options.open_consents(context.open_tape), purpose)
        reader = EpisodeReader(tape, options.strategies, check)
        return Episode(tape, reader, first, last, head, summary.hash, turns, rewards)


def _split_word(word: str, tapes: Collection[str]) -> tuple[str, str]:
    """Return the chat that a word names, and the slice of it; the names of archives have an `@`, too."""
    ends = [place for place, letter in enumerate(word) if letter == "@"]
    end = next((each for each in (len(word), *reversed(ends)) if word[:each] in tapes), min([*ends, len(word)]))
    return word[:end], word[end + 1 :]


async def find_turns(tape: TapeHandle, first: int, last: int) -> list[TurnSpan]:
    """Return the turns that begin and end within a range, in their order."""
    began: dict[str, int] = {}
    found: list[TurnSpan] = []
    for low in range(first, last + 1, PAGE_ENTRIES):
        part = IdRanges(((low, min(low + PAGE_ENTRIES - 1, last)),))
        query = TapeQuery(tape.name, part, kinds=(Kind.EVENT,), names=(TURN_START, *TURN_ENDS))
        for entry in (await tape.fetch([query]))[0]:
            turn = text_field(entry.meta, "turn")
            if entry.name == TURN_START:
                began[turn] = entry.id
            elif turn in began:
                found.append(TurnSpan(turn, began.pop(turn), entry.id))
    return sorted(found, key=lambda turn: turn.first)


async def _open_commands(_context: CommandContext) -> LearnCommands:
    return LearnCommands()


COMMANDS = make_group(
    "export",
    LearnCommands,
    _open_commands,
    "Write the turns of chats for those who train or evaluate models: as the models were shown them, with what they did, "
    "and with the judgements as rewards.",
    section="Look",
    help_line="write turns for training or evaluation",
)

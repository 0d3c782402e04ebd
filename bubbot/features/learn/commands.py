"""The command that exports episodes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeAlias

from msgspec import Meta, Struct, field

from bubbot import __version__
from bubbot.arguments.fields import Args
from bubbot.command import Caller, command, make_group
from bubbot.errors import ConfigError, EntryNotFound, ValueInvalid
from bubbot.features.learn.episodes import EpisodeReader
from bubbot.features.learn.files import ExportedFile, open_export, require_allowed
from bubbot.features.learn.formats import FORMATS
from bubbot.features.learn.formats.writer import ExportFormat
from bubbot.features.learn.people import ConsentCheck
from bubbot.features.learn.rewards import assign_rewards
from bubbot.features.learn.settings import LearnSettings
from bubbot.features.learn.writing import Episode, ExportedSlice, Exporter, ExportReceipt
from bubbot.log import redact
from bubbot.ports.channel import Role
from bubbot.ports.judgements import ReadLabels
from bubbot.ports.people import AsksConsent, Purpose
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.rerun import SpeakerFinder
from bubbot.runtime.targets import find_target
from bubbot.runtime.turn_spans import find_turn_spans
from bubbot.shell_command import Argument, CommandContext
from bubbot.tape.replay import ReplayedTape
from bubbot.tape.service import TapeService
from bubbot.tool import READS_PEOPLE


class LearnOptions(Struct, frozen=True):
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


class ExportTurnsArgs(Args, frozen=True):
    """What is exported, and where to."""

    format: Annotated[FormatName, Argument("the format of the file", "format")]
    slices: Annotated[
        str,
        Argument(
            "sessions such as telegram:42, whole or with a slice: telegram:42@12-400, two anchors FIRST..SECOND, or the beginning of a turn id",
            rest=True,
        ),
    ] = ""
    out: Annotated[str, Argument("write this new file, and FILE.receipt.json", "FILE", short="o")] = ""
    purpose: Annotated[
        Purpose | None, Argument("what people have to allow it for (default: what the format is for)", "PURPOSE")
    ] = field(default=None, name="for")
    discount: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        Argument("how much the reward of a later turn counts for an earlier one", "N"),
    ] = None
    require_complete: Annotated[bool, Argument("write nothing if anything is left out")] = False
    source: Annotated[
        str, Argument("instead of slices: write what this exported FILE has, with its receipt beside it", "FILE")
    ] = field(default="", name="from")


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
        "export <format> [slices]",
        example="openai-chat telegram:42@12-400 --out chats.jsonl",
        role=Role.OWNER,
        effect=READS_PEOPLE,
        progress=("Exporting", "entries"),
    )
    async def export(self, caller: Caller, args: ExportTurnsArgs) -> Exported:
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
        if args.source:
            return Exported(str(out), await _export_again(context, options, args, chosen, out))
        purpose = args.purpose or chosen.purpose
        words = args.slices.split()
        if not words:
            raise ValueInvalid("export_nothing")
        if chosen.is_single and len(words) > 1:
            raise ValueInvalid("export_single", format=chosen.name)
        episodes = [await _open_episode(context, options, word, purpose) for word in words]
        factor = options.section.discount if args.discount is None else args.discount
        exporter = Exporter(chosen, purpose, __version__, redact, factor, context.on_progress)
        receipt = await exporter.write(episodes, out, is_whole=args.require_complete)
        return Exported(str(out), receipt)


async def _export_again(
    context: CommandContext, options: LearnOptions, args: ExportTurnsArgs, chosen: ExportFormat, out: Path
) -> ExportReceipt:
    """Write what an exported file has. Raise `ConfigError` if it may not be used, or is not whole."""
    if args.slices.strip() or args.discount is not None:
        raise ValueInvalid("export_from_alone")
    with open_export(Path(args.source)) as exported:
        receipt = exported.receipt
        if args.purpose not in (None, receipt.purpose):
            raise ValueInvalid("export_purpose", purpose=receipt.purpose)
        if chosen.is_single and len(receipt.slices) > 1:
            raise ValueInvalid("export_single", format=chosen.name)
        for part in receipt.slices:
            await _ask_again(context, options, exported, part)
        exporter = Exporter(chosen, receipt.purpose, __version__, redact)
        return await exporter.write(
            exported.episodes(),
            out,
            is_whole=args.require_complete,
            source=exported.source,
            known_losses=receipt.losses,
        )


async def _ask_again(
    context: CommandContext, options: LearnOptions, exported: ExportedFile, part: ExportedSlice
) -> None:
    """Refuse a file if people or tapes of it do not allow its export now."""
    path, tapes = exported.path, await context.store.tapes()
    head = next((tape.head for tape in tapes if tape.name == part.tape), 0)
    if not 0 < part.first <= part.last <= head:
        raise ConfigError(f"{path}: {part.session or part.tape} is not in this home as it was when it was exported")
    async with context.open_session(part.tape, usage="exported") as tape:
        turns = await find_turn_spans(tape, part.first, part.last)
        check = ConsentCheck(SpeakerFinder(tape), options.open_consents(context.open_tape), exported.receipt.purpose)
        reader = EpisodeReader(tape, options.strategies, check)
        await require_allowed(path, part, turns, reader)


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
        turns = await find_turn_spans(tape, first, last)
        labels = await options.open_labels(context.open_tape)(tape.name)
        rewards = assign_rewards(labels, turns, options.section)
        replayed = ReplayedTape(
            context.store, tape.name, head, now=context.now, new_id=context.new_id, session=tape.session
        )
        check = ConsentCheck(SpeakerFinder(replayed), options.open_consents(context.open_tape), purpose)
        reader = EpisodeReader(replayed, options.strategies, check)
        return Episode(tape, reader, first, last, head, summary.hash, turns, rewards)


def _split_word(word: str, tapes: Collection[str]) -> tuple[str, str]:
    """Return the chat that a word names, and the slice of it; the names of archives have an `@`, too."""
    ends = [place for place, letter in enumerate(word) if letter == "@"]
    end = next((each for each in (len(word), *reversed(ends)) if word[:each] in tapes), min([*ends, len(word)]))
    return word[:end], word[end + 1 :]


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

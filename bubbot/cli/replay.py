"""`bubbot replay`: recorded requests built again, or turns run again with another model."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from bubbot.app.tapes import open_tapes
from bubbot.cli.ask import build_inbound
from bubbot.cli.explain import ask_terminal, keyed
from bubbot.cli.invocation import Invocation, usage_error
from bubbot.cli.local_command import local_command
from bubbot.cli.output import AnswerPrinter, format_json, show, show_on_stderr
from bubbot.cli.progress import show_progress
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.features.replay.events import REPLAY_TAPE, replay_key
from bubbot.features.replay.report import ReplayedStep, ReplayedTurn, ReplayReport, RunSummary, format_report
from bubbot.ports.arguments import Args
from bubbot.ports.channel import TERMINAL_CHANNEL
from bubbot.ports.command import Argument, CommandGroup
from bubbot.records import json_data
from bubbot.tape.query import TapeQuery
from bubbot.texts import Texts

REPLAY_SESSION = f"{TERMINAL_CHANNEL}:replay"
EXIT_DIFFERENT = 1


def parse_entry(text: str) -> int:
    """Parse the id of an entry. Raise `ValueError` with a sentence."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
    if number < 1:
        raise ValueError(f"{text!r} is not the id of an entry: give a number such as 12")
    return number


class ReplayArgs(Args, frozen=True):
    """The arguments of `bubbot replay`."""

    chat: Annotated[str, Argument("a session such as telegram:42 or default, or the name of a tape")]
    from_: Annotated[int, Argument("the first entry (default: 1)", "ENTRY", parse_entry)] = 1
    to: Annotated[int, Argument("the last entry (default: the newest)", "ENTRY", parse_entry)] = 0
    model: Annotated[str, Argument("run the turns again with this model", "MODEL", short="m")] = ""


@local_command("replay", example="replay telegram:42 --from 100 --to 900", result=ReplayReport)
def replay(invocation: Invocation, args: ReplayArgs) -> int:
    """Build recorded requests again, or ask another model.

    Build the recorded requests of a chat again from the facts, check each against its recorded digest, and say which part
    of it this version would build otherwise. With --model the turns run again in forks that are thrown away: tools answer
    from the record, nothing else runs, and budgets apply. The exit code is 1 if anything differs, or ended early. Nothing
    of the chat is changed.
    """
    if args.to and args.from_ > args.to:
        raise usage_error("bubbot replay", f"--from {args.from_} is after --to {args.to}")
    return asyncio.run(_replay(load_setup(invocation), args))


async def _replay(setup: CommandSetup, args: ReplayArgs) -> int:
    line = f",replay {keyed('chat', args.chat.strip())} first={args.from_} last={args.to}"
    inbound = build_inbound(REPLAY_SESSION, f"{line} again=yes" if args.model.strip() else line)
    inbound = replace(inbound, model=args.model.strip())
    show("", end="", flush=True)
    with show_progress(f"Replaying {args.chat.strip()}", plain=setup.is_plain):
        result = await ask_terminal(setup, REPLAY_SESSION, inbound)
    fact = await _read_replay(setup, result.turn)
    if fact is None:
        show_on_stderr(f"bubbot: {result.text}")
        return EXIT_DIFFERENT
    report, printer = _build_report(fact), AnswerPrinter()
    texts = Texts(setup.settings.bot.language)
    printer(format_json(json_data(report)) if setup.as_json else format_report(report, texts, with_words=True))
    printer.check(REPLAY_SESSION)
    return 0 if report.is_equal else EXIT_DIFFERENT


async def _read_replay(setup: CommandSetup, turn: str) -> Mapping[str, Any] | None:
    """Read the replay that a turn made; None if it made none."""
    async with open_tapes(setup.home, setup.settings.store) as (store, _workspace):
        facts = (await store.fetch([TapeQuery(REPLAY_TAPE, keys=(replay_key(turn),))]))[0]
    return facts[-1].data if facts else None


def _build_report(fact: Mapping[str, Any]) -> ReplayReport:
    steps = tuple(
        ReplayedStep(each["entry"][1], each["recorded"], tuple(each["differs"]), tuple(each["unknown"]), each["first"])
        for each in fact["steps"]
    )
    turns = tuple(
        ReplayedTurn(each["entry"][1], each["turn"], each["question"], _run(each["recorded"]), _run(each["replayed"]))
        for each in fact["turns"]
    )
    plain = {
        name: fact[name] for name in ("id", "chat", "session", "tape", "first", "last", "model", "is_equal", "problem")
    }
    return ReplayReport(**plain, steps=steps, turns=turns)


def _run(data: Mapping[str, Any]) -> RunSummary:
    return RunSummary(**{**data, "calls": tuple(data["calls"])})


REPLAY_COMMANDS = CommandGroup("replay", (replay,))

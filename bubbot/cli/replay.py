"""`bubbot replay`: recorded requests built again, or turns run again with another model."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bubbot.cli.arguments import add_json_option, usage_error
from bubbot.cli.ask import build_inbound
from bubbot.cli.explain import ask_terminal, keyed, read_fact
from bubbot.cli.output import AnswerPrinter, format_json, show, show_on_stderr
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.ports.channel import TERMINAL_CHANNEL
from bubbot.records import dataclass, json_data

REPLAYED = "replay/ended"
"""The fact of a replay; see `bubbot.features.replay`."""
REPLAY_SESSION = f"{TERMINAL_CHANNEL}:replay"
EXIT_DIFFERENT = 1


@dataclass(frozen=True, slots=True)
class StepReplay:
    """A model call whose request was built again.

    Attributes:
        entry: its entry.
        recorded: `equal` (the request came out byte for byte), `different`, `gone` (erased), or `unknown` (its strategy is not
            installed in that version).
        differs: the parts that this version would build otherwise: `prompt`, `tools`, `messages`.
        unknown: parts that come out otherwise for reasons that may not be in the code, or that are not compared.
        first: the first difference.
    """

    entry: int
    recorded: str
    differs: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    first: str = ""


@dataclass(frozen=True, slots=True)
class RunReport:
    """How a turn went.

    Attributes:
        model: the model that answered.
        text: the answer; empty if there was none.
        steps: model calls.
        calls: the names of the tools that were called, in order.
        not_recorded: calls that the record has no answer to.
        input_tokens: tokens read.
        output_tokens: tokens written.
        cost: US dollars; null if unknown.
        error: why there is no answer.
    """

    model: str
    text: str
    steps: int
    calls: tuple[str, ...]
    not_recorded: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    error: str


@dataclass(frozen=True, slots=True)
class TurnReplay:
    """A turn that ran again.

    Attributes:
        entry: its first entry.
        turn: its id.
        question: the beginning of the newest message of a person that the model was shown.
        recorded: how it went.
        replayed: how it went again.
    """

    entry: int
    turn: str
    question: str
    recorded: RunReport
    replayed: RunReport


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """A replay.

    Attributes:
        id: its id, and the name of its file in the folder `replays` of the home.
        chat: the chat.
        tape: the name of the tape.
        first: the first entry of the slice.
        last: its last entry.
        model: the model that the turns ran again with; empty if only requests were built again.
        is_equal: all requests came out as recorded, and this version would build the same.
        steps: the model calls, if requests were built again.
        turns: the turns, if they ran again.
        problem: what ended it early.
    """

    id: str
    chat: str
    tape: str
    first: int
    last: int
    model: str
    is_equal: bool
    steps: tuple[StepReplay, ...]
    turns: tuple[TurnReplay, ...]
    problem: str


RESULTS = {"replay": ReplayReport}
"""What `--json` prints."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's help texts and options."""
    parser.description = (
        "Build the recorded requests of a chat again from the facts, check each against its recorded digest, and say which "
        "part of it this version would build otherwise. With --model the turns run again in forks that are thrown away: "
        "tools answer from the record, nothing else runs, and budgets apply. The exit code is 1 if anything differs, or "
        "ended early. Nothing of the chat is changed."
    )
    parser.epilog = "example: bubbot replay telegram:42 --from 100 --to 900"
    parser.add_argument("chat", help="a session such as telegram:42 or default, or the name of a tape")
    parser.add_argument(
        "--from", dest="first", type=_entry, default=1, metavar="ENTRY", help="the first entry (default: 1)"
    )
    parser.add_argument(
        "--to", dest="last", type=_entry, default=0, metavar="ENTRY", help="the last entry (default: the newest)"
    )
    parser.add_argument("-m", "--model", default="", metavar="MODEL", help="run the turns again with this model")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Replay; return 1 if anything differs, else 0."""
    if args.last and args.first > args.last:
        raise usage_error("bubbot replay", f"--from {args.first} is after --to {args.last}")
    return asyncio.run(_replay(load_setup(args), args))


def _entry(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not the id of an entry: give a number such as 12")
    return number


async def _replay(setup: CommandSetup, args: argparse.Namespace) -> int:
    line = f",replay {keyed('chat', args.chat.strip())} first={args.first} last={args.last}"
    inbound = build_inbound(REPLAY_SESSION, f"{line} again=yes" if args.model.strip() else line)
    inbound = replace(inbound, model=args.model.strip())
    show("", end="", flush=True)
    result = await ask_terminal(setup, REPLAY_SESSION, inbound)
    fact = await read_fact(setup, REPLAY_SESSION, result, REPLAYED)
    if fact is None:
        show_on_stderr(f"bubbot: {result.text}")
        return EXIT_DIFFERENT
    report, printer = _build_report(fact), AnswerPrinter()
    printer(format_json(json_data(report)) if setup.as_json else result.text)
    printer.check(REPLAY_SESSION)
    return 0 if report.is_equal else EXIT_DIFFERENT


def _build_report(fact: Mapping[str, Any]) -> ReplayReport:
    steps = tuple(
        StepReplay(each["entry"][1], each["recorded"], tuple(each["differs"]), tuple(each["unknown"]), each["first"])
        for each in fact["steps"]
    )
    turns = tuple(
        TurnReplay(each["entry"][1], each["turn"], each["question"], _run(each["recorded"]), _run(each["replayed"]))
        for each in fact["turns"]
    )
    plain = {name: fact[name] for name in ("id", "chat", "tape", "first", "last", "model", "is_equal", "problem")}
    return ReplayReport(**plain, steps=steps, turns=turns)


def _run(data: Mapping[str, Any]) -> RunReport:
    return RunReport(**{**data, "calls": tuple(data["calls"])})

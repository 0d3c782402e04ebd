"""The figures of docs/concepts/context.md, drawn from real requests: one for each context strategy.

One conversation of some forty messages, calls and results is held once for each strategy, with the real runtime. The figure
shows what the last request had of every entry. `python -m tests.docs.context_figures` writes the figures into the
pages again; `test_context_figures.py` checks that they are up to date.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.arguments.fields import Args
from bubbot.features.strategies.facts import ContextRecalled
from bubbot.features.strategies.recall import make_retrieval
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.model import ModelRequest, ModelTraits
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import ANSWER_SHARE, ContextPolicy, estimate_fixed_tokens
from bubbot.runtime.context.strategy import ContextStrategy
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.handle import ids_of
from bubbot.tool import READS_WORLD, tool
from tests.docs.pages import ROOT
from tests.doubles import SteppingClock
from tests.turns import Bench, Options, running

PAGES = (ROOT / "docs/concepts/context.md", ROOT / "docs/zh/concepts/context.md")
FIGURE = re.compile(r"(<!-- figure: (\S+) -->\n```text\n).*?(\n```\n)", re.DOTALL)
ROOM = 4_600
"""Tokens that the messages may take, whatever prompt and tools take."""
LINE_CHARS = 100
MAX_LINES = 6
FIRST = ("My locker has the number 4711.", "We planned the garden.", "Please look up oak.", "Thanks, that will do.")
SECOND = (
    *("Now the fence.", "Please look up pine.", "How long does it last?", "Please look up larch.", "And the price?"),
    *("Please look up cedar.", "Which one would you take?", "I asked Ann, too.", "She likes cedar."),
    *("Please look up nails.", "Good.", "What was the number of my locker?"),
)
SIGNS = {"shown": "█", "pointer": "▒", "evidence": "+", "cited": "≈", "left out": "·"}


class LookUpArgs(Args, frozen=True):
    """What to look up."""

    subject: str


@tool("notes.look", effect=READS_WORLD)
async def look_up(turn: Turn, args: LookUpArgs) -> str:
    """Look something up."""
    return f"About {args.subject}: " + "it grows and lasts for a long time. " * 120


@dataclass(frozen=True)
class Held:
    """A conversation that was held: its entries, and its last request."""

    entries: Sequence[TapeEntry]
    request: ModelRequest
    step: TapeEntry


async def hold(selector: str, fixed_tokens: int = 0) -> Held:
    """Hold the conversation with this strategy. `fixed_tokens`: what prompt and tools take; 0: the model has all the room."""

    call = {"name": "notes_look", "arguments": {"subject": "it"}}
    rules = [
        {"when": f"look up {subject}", "steps": [{"calls": [{**call, "arguments": {"subject": subject}}]}, {"text": f"That is {subject}."}]}
        for subject in ("oak", "pine", "larch", "cedar", "nails")
    ]  # fmt: skip
    size = (fixed_tokens + ROOM) * ANSWER_SHARE // (ANSWER_SHARE - 1) if fixed_tokens else None
    script = {"rules": rules, "default": [{"text": "Noted."}]}
    model = ScriptedModel(script, traits=ModelTraits(context_tokens=size))
    clock = SteppingClock(step=timedelta(seconds=1))
    options = Options(
        tools=[look_up],
        clock=clock,
        compose=ContextPolicy(selector, strategies=OWN_STRATEGIES.replace_own(make_retrieval(lambda _: 800))),
    )
    async with running(InMemoryStore(), model, options) as bench:
        await _say_all(bench, clock, FIRST)
        await bench.say(",handoff phase/fence The garden is planned.")
        await _say_all(bench, clock, SECOND)
        await bench.quiet()
        entries = await bench.entries()
    step = [entry for entry in entries if entry.name == "loop.step"][-1]
    return Held(entries, model.requests[-1], step)


async def _say_all(bench: Bench, clock: SteppingClock, lines: Sequence[str]) -> None:
    for line in lines:
        clock.advance(timedelta(hours=3))
        await bench.say(line)


def draw(held: Held) -> str:
    """Draw what the last request had of each entry, and how it begins."""
    shown_spans = tuple((int(low), int(high)) for low, high in held.step.payload["data"]["shown"])
    shown = set(ids_of(shown_spans, len(held.entries)))
    evidence = {
        entry_id
        for entry in held.entries
        if entry.name in ContextRecalled.EVENTS
        for low, high in entry.payload["data"]["entries"]
        for entry_id in range(low, high + 1)
    }
    heads, signs = "", ""
    for entry in held.entries:
        letter = _letter(entry)
        if not letter or entry.id > held.step.payload["data"]["head"]:
            continue
        gap = " " if letter in "PA" and heads else ""
        heads += gap + letter
        signs += gap + SIGNS[_state(entry, held.request, shown, evidence)]
    lines = [_line(message) for message in held.request.messages]
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 2], f"… {len(lines) - MAX_LINES + 1} more", lines[-1]]
    return "\n".join([heads, signs, "", *lines])


def _letter(entry: TapeEntry) -> str:
    if entry.kind == Kind.ANCHOR and entry.opens_window:
        return "A"
    if entry.kind == Kind.MESSAGE:
        return "P" if entry.payload["role"] == "user" else "b"
    return {"tool_call": "c", "tool_result": "r"}.get(entry.kind, "")


def _state(entry: TapeEntry, request: ModelRequest, shown: set[int], evidence: set[int]) -> str:
    text = "\n".join(str(message["content"]) for message in request.messages)
    if entry.kind == Kind.TOOL_RESULT and entry.id in shown:
        whole = entry.payload["results"][0]["content"]
        return "shown" if any(message["content"] == whole for message in request.messages) else "pointer"
    if entry.id in evidence and f"#{entry.id} " in text:
        return "evidence"
    if f"\n#{entry.id} " in text:
        return "cited"
    return "shown" if entry.id in shown else "left out"


def _line(message: object) -> str:
    assert isinstance(message, dict)
    calls = [call["function"]["name"] for call in message.get("tool_calls", ())]
    content = " ".join(str(message["content"]).split()) or f"calls {', '.join(calls)}"
    line = f"{message['role']:<9} {content}"
    return line if len(line) <= LINE_CHARS else f"{line[: LINE_CHARS - 1]}…"


def named(strategy: ContextStrategy) -> str:
    """How the strategy is written in this conversation."""
    return f"{strategy.name}:session/start" if strategy.argument else strategy.name


def figures() -> dict[str, str]:
    """Draw every strategy of the bot."""

    async def draw_all() -> dict[str, str]:
        request = (await hold("window")).request
        fixed = estimate_fixed_tokens(request.system, request.tools)
        return {item.name: draw(await hold(named(item), fixed)) for item in OWN_STRATEGIES.own}

    return asyncio.run(draw_all())


def replace_figures(text: str, drawn: dict[str, str]) -> str:
    """Put the figures into a page."""
    return FIGURE.sub(lambda found: f"{found[1]}{drawn[found[2]]}{found[3]}", text)


def main() -> None:
    """Write the figures into the pages."""
    drawn = figures()
    for page in PAGES:
        page.write_text(replace_figures(page.read_text(encoding="utf-8"), drawn), encoding="utf-8")


if __name__ == "__main__":
    main()

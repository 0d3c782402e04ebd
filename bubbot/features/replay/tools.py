"""The command `,replay` of the terminal: recorded requests built again, or turns run again with another model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from bubbot.errors import ConfigError, EntryNotFound, ToolFailed
from bubbot.feature import Kernel
from bubbot.features.replay.events import RECORDED_SENTENCES, REPLAY_TAPE, REPLAYED, Replayed, replay_key
from bubbot.ports.channel import Role
from bubbot.ports.tool import INSIDE, CommandHelp, CommandPlace, HelpTopic, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.records import dataclass, json_data
from bubbot.runtime.compose import Recompose
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.tape import entry as make
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.service import TapeService
from bubbot.texts import Texts

if TYPE_CHECKING:
    from bubbot.features.replay.report import ReplayedStep, ReplayedTurn

TIMEOUT_SECONDS = 3_600.0
MAX_LISTED = 50
"""Steps with differences that the text lists; the fact has all."""


class ReplayArgs(ToolArgs):
    """The arguments of `session.replay`."""

    chat: str = Field(max_length=200, description="a session such as telegram:42, or the name of a tape")
    first: int = Field(default=1, ge=1, description="the first entry of the slice")
    last: int = Field(default=0, ge=0, description="the last entry of the slice; 0 for the newest")
    again: bool = Field(default=False, description="run the turns again, with the model of this question")
    positional: ClassVar[tuple[str, ...]] = ("chat",)


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay.

    Attributes:
        id: its id.
        chat: as it was named.
        session: the session of the tape; empty if it has none.
        tape: the name of the tape.
        first: the first entry.
        last: the last entry.
        model: the model that the turns ran again with; empty if only requests were built again.
        steps: the model calls, if requests were built again.
        turns: the turns, if they ran again.
        problem: what ended it early.
    """

    id: str
    chat: str
    session: str
    tape: str
    first: int
    last: int
    model: str = ""
    steps: Sequence[ReplayedStep] = ()
    turns: Sequence[ReplayedTurn] = ()
    problem: str = ""
    usage: Sequence[Any] = field(default=(), repr=False)

    def as_json(self) -> Replayed:
        """Build the fact."""
        return {
            "id": self.id,
            "chat": self.chat,
            "session": self.session,
            "tape": self.tape,
            "first": self.first,
            "last": self.last,
            "model": self.model,
            "is_equal": all(step.is_equal for step in self.steps) and not self.problem,
            "steps": [
                {
                    "entry": (self.tape, step.entry),
                    "recorded": step.recorded,
                    "differs": list(step.differs),
                    "unknown": list(step.unknown),
                    "first": step.first,
                }
                for step in self.steps
            ],
            "turns": [
                {
                    "entry": (self.tape, turn.entry),
                    "turn": turn.turn,
                    "question": turn.question,
                    "recorded": json_data(turn.recorded),
                    "replayed": json_data(turn.replayed),
                }
                for turn in self.turns
            ],
            "problem": self.problem,
        }


def replay_tool(kernel: Kernel, strategies: ContextStrategies, recompose: Recompose) -> Tool:
    """Make the command. The arguments: see `replay_feature`."""

    @tool(
        "session.replay",
        commands=("replay",),
        for_model=False,
        role=Role.OWNER,
        effect=INSIDE,
        timeout=TIMEOUT_SECONDS,
        help=CommandHelp(
            HelpTopic.HISTORY,
            "Build recorded requests again",
            (",replay telegram:42", ",replay telegram:42 first=100 last=900"),
            place=CommandPlace.TERMINAL,
        ),
    )
    async def session_replay(turn: Turn, args: ReplayArgs) -> str:
        """Build the recorded requests of a chat again, and say where this version would show the model something else; or
        run its turns again in forks that are thrown away, and compare answers, tokens and cost."""
        if not turn.has_power_over_other_chats:
            raise ToolFailed(turn.texts.say("replay_only_owner"))
        try:
            tape = await kernel.open_copy(args.chat.strip())
        except (EntryNotFound, ConfigError) as error:
            raise ToolFailed(str(error)) from error
        head = await tape.head()
        last = min(args.last or head, head)
        if args.first > last:
            raise ToolFailed(turn.texts.say("replay_empty", first=args.first, last=last))
        newest = await _read_entry(tape, last)
        replay = Replay(kernel.new_id()[:12], args.chat.strip(), tape.session, tape.name, args.first, last)
        replay = (
            await _run_again(turn, tape, replay, strategies)
            if args.again
            else await _build_again(turn, tape, replay, strategies, recompose)
        )
        await turn.tape.append(replay.usage)
        if await _read_entry(tape, last) != newest:  # what it quotes was erased, and must not come back here
            raise ToolFailed(turn.texts.say("replay_erased"))
        turn.tape.stage(REPLAY_TAPE, [make.event(REPLAYED, replay.as_json(), key=replay_key(turn.id))])
        return format_replay(replay, turn.texts)

    return session_replay


async def _read_entry(tape: TapeService, entry: int) -> Sequence[TapeEntry]:
    return (await tape.fetch([TapeQuery(tape.name, IdRanges(((entry, entry),)))]))[0]


async def _build_again(
    turn: Turn, tape: TapeService, replay: Replay, strategies: ContextStrategies, recompose: Recompose
) -> Replay:
    # Imported here, as below: few bots replay anything.
    from dataclasses import replace

    from bubbot.features.replay.steps import find_steps, replay_step

    steps = await find_steps(tape, replay.first, replay.last)
    return replace(replay, steps=[await replay_step(turn, tape, entry, strategies, recompose) for entry in steps])


async def _run_again(turn: Turn, tape: TapeService, replay: Replay, strategies: ContextStrategies) -> Replay:
    from dataclasses import replace

    from bubbot.features.replay.rerun import ReplayDenied, find_turns, rerun_turn

    model = (await turn.runner.find_model(turn)).name
    turns, usage, problem = [], [], ""
    async for record in find_turns(tape, replay.first, replay.last):
        try:
            found, spent = await rerun_turn(turn, tape, record, strategies)
        except ReplayDenied as error:
            problem = str(error)
            break
        except (EntryNotFound, ConfigError) as error:  # its request cannot be built again
            problem = f"#{record.entries[0].id}: {error}"
            continue
        turns.append(found)
        usage += spent
    return replace(replay, model=model, turns=turns, usage=usage, problem=problem)


def format_replay(replay: Replay, texts: Texts) -> str:
    """Write a replay without a word of the chat: an answer stays with the chat that asked, where no erasure finds it."""
    lines: list[str] = []
    if not replay.model:
        changed = [step for step in replay.steps if not step.is_equal]
        lines.append(texts.say("replay_steps", count=len(replay.steps), changed=len(changed)))
        for step in changed[:MAX_LISTED]:
            parts = ", ".join(step.differs) or texts.say(RECORDED_SENTENCES[step.recorded])
            lines.append(texts.say("replay_step", entry=step.entry, parts=parts))
        if len(changed) > MAX_LISTED:
            lines.append(texts.say("replay_more", count=len(changed) - MAX_LISTED))
    else:
        lines.append(texts.say("replay_turns", count=len(replay.turns), model=replay.model))
    lines += [texts.say("replay_problem", problem=replay.problem)] if replay.problem else []
    return "\n".join([*lines, texts.say("replay_kept", id=replay.id)])

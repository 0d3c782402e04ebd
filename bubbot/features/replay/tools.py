"""The command `,replay` of the terminal: recorded requests built again, or turns run again with another model."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from bubbot.errors import ConfigError, EntryNotFound, ToolFailed
from bubbot.feature import Kernel
from bubbot.features.replay.events import REPLAY_TAPE, REPLAYED, replay_key
from bubbot.ports.channel import Role
from bubbot.ports.tool import INSIDE, CommandHelp, CommandPlace, HelpTopic, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import Recompose
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.tape import entry as make
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.service import TapeService

TIMEOUT_SECONDS = 3_600.0


class ReplayArgs(ToolArgs):
    """The arguments of `session.replay`."""

    chat: str = Field(max_length=200, description="a session such as telegram:42, or the name of a tape")
    first: int = Field(default=1, ge=1, description="the first entry of the slice")
    last: int = Field(default=0, ge=0, description="the last entry of the slice; 0 for the newest")
    again: bool = Field(default=False, description="run the turns again, with the model of this question")
    positional: ClassVar[tuple[str, ...]] = ("chat",)


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
        # Imported here: few bots replay anything.
        from bubbot.features.replay.report import ReplayedStep, ReplayedTurn, ReplayReport, format_report
        from bubbot.features.replay.rerun import rerun_turns
        from bubbot.features.replay.steps import replay_steps

        names = kernel.new_id()[:12], args.chat.strip(), tape.session, tape.name
        steps, turns, model, problem = tuple[ReplayedStep, ...](), tuple[ReplayedTurn, ...](), "", ""
        if args.again:
            model = (await turn.runner.find_model(turn)).name
            turns, usage, problem = await rerun_turns(turn, tape, (args.first, last), strategies)
            await turn.tape.append(usage)
        else:
            steps = await replay_steps(turn, tape, (args.first, last), strategies, recompose)
        is_equal = all(step.is_equal for step in steps) and not problem
        report = ReplayReport(*names, args.first, last, model, is_equal, steps, turns, problem)
        if await _read_entry(tape, last) != newest:  # what it quotes was erased, and must not come back here
            raise ToolFailed(turn.texts.say("replay_erased"))
        turn.tape.stage(REPLAY_TAPE, [make.event(REPLAYED, report.as_fact(), key=replay_key(turn.id))])
        text = format_report(report, turn.texts, with_words=False)
        return f"{text}\n{turn.texts.say('replay_kept', id=report.id)}"

    return session_replay


async def _read_entry(tape: TapeService, entry: int) -> Sequence[TapeEntry]:
    return (await tape.fetch([TapeQuery(tape.name, IdRanges(((entry, entry),)))]))[0]

"""The command of the terminal that builds recorded requests again, or runs turns again with another model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, field

from bubbot.arguments.fields import Args
from bubbot.command import Caller, command, make_group
from bubbot.errors import CommandError, CommandRefused, ValueInvalid
from bubbot.feature import Kernel
from bubbot.features.replay.facts import REPLAY_TAPE, ReplayEnded, StepReplay, TurnReplay, replay_key
from bubbot.features.replay.report import ReplayReport
from bubbot.ports.channel import TERMINAL_CHANNEL, Role
from bubbot.ports.people import AsksConsent
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import Recompose
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.shell_command import Argument, CommandContext, write_keyed
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tool import INSIDE, CommandHelp, CommandPlace, HelpTopic

REPLAY_TIMEOUT_SECONDS = 3_600.0
REPLAY_SESSION = f"{TERMINAL_CHANNEL}:replay"
"""The session in which a shell asks for replays."""


class ReplayArgs(Args, frozen=True):
    """The entries of a chat, and what is done with them."""

    chat: Annotated[str, Meta(description="a session such as telegram:42, or the name of a tape", max_length=200)]
    first: Annotated[int, Meta(description="the first entry of the slice", ge=1)] = 1
    last: Annotated[int, Meta(description="the last entry of the slice; 0 for the newest", ge=0)] = 0
    again: Annotated[bool, Meta(description="run the turns again, with the model of this question")] = False


def parse_entry(text: str) -> int:
    """Parse the id of an entry. Raise `ValueError`."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
    if number < 1:
        raise ValueError(f"{text!r} is not the id of an entry: give a number such as 12")
    return number


class ReplayChatArgs(Args, frozen=True):
    """The entries of a chat, and a model for its turns."""

    chat: Annotated[str, Argument("a session such as telegram:42 or default, or the name of a tape")]
    first: Annotated[int, Argument("the first entry (default: 1)", "ENTRY", parse_entry)] = field(
        default=1, name="from"
    )
    last: Annotated[int, Argument("the last entry (default: the newest)", "ENTRY", parse_entry)] = field(
        default=0, name="to"
    )
    model: Annotated[str, Argument("run the turns again with this model", "MODEL", short="m")] = ""


class ReplayCommands:
    """Replays of what stands on tapes."""

    def __init__(
        self,
        kernel: Kernel | None = None,
        strategies: ContextStrategies | None = None,
        recompose: Recompose | None = None,
        consents: AsksConsent | None = None,
    ) -> None:
        """Set what only the running bot has.

        Args:
            kernel: opens tapes for work that is thrown away.
            strategies: rebuild requests.
            recompose: builds the request of a recorded step as this code would.
            consents: knows who allows that models are compared with their words.
        """
        self._consents = consents
        self._kernel = kernel
        self._strategies = strategies
        self._recompose = recompose

    @command(
        "replay <chat>",
        chat=("session.replay", "replay"),
        form="<chat>",
        example="telegram:42 --from 100 --to 900",
        role=Role.OWNER,
        effect=INSIDE,
        writes=False,
        progress=("Replaying {chat}", ""),
        help=CommandHelp(
            HelpTopic.HISTORY,
            "Build recorded requests again",
            (",replay telegram:42", ",replay telegram:42 first=100 last=900"),
            place=CommandPlace.TERMINAL,
        ),
    )
    async def replay(self, caller: Caller, args: ReplayArgs | ReplayChatArgs) -> ReplayReport:
        """Build the recorded requests of a chat again, and say where this version would show the model something else; or
        run its turns again in forks that are thrown away, and compare answers, tokens and cost."""
        if isinstance(args, ReplayChatArgs):
            assert caller.context is not None
            return ReplayReport.of(await _ask_bot(caller.context, args))
        if not caller.has_power:
            raise CommandRefused("replay_only_owner")
        return ReplayReport.of(await self._run(caller.required_turn, args))

    async def _run(self, turn: Turn, args: ReplayArgs) -> ReplayEnded:
        """Replay, and stage the fact of it."""
        assert self._kernel is not None
        assert self._strategies is not None
        assert self._recompose is not None
        chat = args.chat.strip()
        tape = await self._kernel.open_copy(chat)
        head = await tape.head()
        last = min(args.last or head, head)
        if args.first > last:
            raise CommandRefused("replay_empty", first=args.first, last=last)
        newest = await _read_entry(tape, last)
        # Imported here: few bots replay anything.
        from bubbot.features.replay.rerun import rerun_turns
        from bubbot.features.replay.steps import replay_steps

        steps, turns, model, problem, left_out = tuple[StepReplay, ...](), tuple[TurnReplay, ...](), "", "", 0
        if args.again:
            assert self._consents is not None
            model = (await turn.runner.find_model(turn)).name
            again = await rerun_turns(turn, tape, (args.first, last), self._strategies, self._consents)
            turns, problem, left_out = again.turns, again.problem, again.left_out
            await turn.tape.append(again.usage)
        else:
            steps = await replay_steps(turn, tape, (args.first, last), self._strategies, self._recompose)
        is_equal = all(step.is_equal for step in steps) and not problem
        names = self._kernel.new_id()[:12], chat, tape.session, tape.name
        fact = ReplayEnded(*names, args.first, last, model, is_equal, steps, turns, problem, left_out)
        if await _read_entry(tape, last) != newest:  # what it quotes was erased, and must not come back here
            raise CommandRefused("replay_erased")
        turn.tape.stage(REPLAY_TAPE, [fact.to_entry(key=replay_key(turn.id))])
        return fact


async def _ask_bot(context: CommandContext, args: ReplayChatArgs) -> ReplayEnded:
    """Let the bot of the home replay in a turn at the terminal. Raise `CommandError` with what it says if it does not."""
    assert context.type_command is not None
    if args.last and args.first > args.last:
        raise ValueInvalid("replay_empty", first=args.first, last=args.last)
    model = args.model.strip()
    line = f",replay {write_keyed('chat', args.chat.strip())} first={args.first} last={args.last}"
    answer = await context.type_command(REPLAY_SESSION, f"{line} again=yes" if model else line, model)
    (facts,) = await context.store.fetch([TapeQuery(REPLAY_TAPE, keys=(replay_key(answer.turn),))])
    if not facts:
        raise CommandError(answer.text)
    return ReplayEnded.of(facts[-1])


async def _read_entry(tape: TapeService, entry: int) -> Sequence[TapeEntry]:
    return (await tape.fetch([TapeQuery(tape.name, IdRanges(((entry, entry),)))]))[0]


COMMANDS = make_group(
    "replay",
    ReplayCommands,
    None,
    "Build the recorded requests of a chat again from the facts, check each against its recorded digest, and say which "
    "part of it this version would build otherwise. With --model the turns run again in forks that are thrown away: "
    "tools answer from the record, nothing else runs, and budgets apply. The exit code is 1 if anything differs, or "
    "ended early. Nothing of the chat is changed.",
    section="Look",
    help_line="build recorded requests again, or ask another model",
    replay={"is_answered_without_home": False},
)

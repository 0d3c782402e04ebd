"""The commands about judgements: rate an answer, label anything on a tape, and look at what was judged."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from bubbot.command import Caller, command, make_group
from bubbot.errors import CommandRefused, ValueInvalid
from bubbot.features.judge.decision import DecisionView
from bubbot.features.judge.labels import LabelsView, find_annotator, labels_of, offer_labels, read_answers
from bubbot.features.judge.results import (
    AnswerRated,
    DecisionShown,
    LabelArgs,
    LabelRow,
    ListChatLabelsArgs,
    ListLabelsArgs,
    RateArgs,
    ShowArgs,
    TargetLabelled,
)
from bubbot.features.judge.settings import JudgeSettings
from bubbot.formatting import clean
from bubbot.ports.channel import Inbound, Role
from bubbot.ports.judgements import Annotator, JudgedTarget, Judgement, Label
from bubbot.ports.outbox import OUTBOX_PREFIX
from bubbot.ports.turn import Turn
from bubbot.runtime.messages import find_sent
from bubbot.runtime.router import holds_command
from bubbot.runtime.targets import find_target, format_target
from bubbot.shell_command import CommandContext
from bubbot.tape.entry import TapeEntry, text_field
from bubbot.tape.events import CommandRun
from bubbot.tape.handle import TapeHandle
from bubbot.tool import INSIDE, READS_PEOPLE, CommandHelp, HelpTopic

RATE_TOOL = "judge.rate"
RATE_WORDS = (RATE_TOOL, "judge_rate", "rate")


class JudgeCommands:
    """Judgements by people, and what was judged."""

    def __init__(self, find_settings: Callable[[], JudgeSettings]) -> None:
        """`find_settings` returns the section in force."""
        self._find_settings = find_settings

    @command(
        "judge rate",
        chat=(RATE_TOOL, "rate"),
        in_shell=False,
        form="<score> [why]",
        effect=INSIDE,
        help=CommandHelp(
            HelpTopic.TALK, "Say how good an answer was", (",rate 5", ",rate 2 It has the wrong day."), words=("vote",)
        ),
    )
    async def rate(self, caller: Caller, args: RateArgs) -> AnswerRated:
        """Say how good the newest answer is, or the one that you reply to, from 1 to 5. No model is shown it."""
        turn = caller.required_turn
        typed = _find_typed(turn)
        answer = await _find_replied(turn, typed) if typed.reply_to or typed.quote else await _find_newest(turn.tape)
        target = JudgedTarget("entry", ((answer.id, answer.id),))
        annotator = Annotator("human", typed.sender.id, turn.session.partition(":")[0])
        name, why = self._find_settings().name, clean(args.why.strip())
        await turn.tape.append([Judgement(target, name, float(args.score), "", why, annotator).to_entry()])
        return AnswerRated(answer.id, args.score)

    @command(
        "judge label <chat> <target> [name] [score] [label] [why]",
        example="telegram:42 12 quality 4",
        role=Role.OWNER,
        effect=INSIDE,
    )
    async def label(self, caller: Caller, args: LabelArgs) -> TargetLabelled:
        """Judge an entry, a turn, a slice or a branch of a chat: by a number, by a word, or in words."""
        assert caller.context is not None
        if args.score is not None and not isfinite(args.score):
            raise ValueInvalid("judge_no_number", score=args.score)
        if args.score is None and not args.label.strip() and not args.why.strip():
            raise ValueInvalid("judge_nothing")
        async with caller.context.open_session(args.chat, write=True, usage="judged", subject="judgements") as tape:
            target, name = await find_target(tape, args.target), args.name or self._find_settings().name
            label, why = clean(args.label.strip()), clean(args.why.strip())
            fact = Judgement(target, name, args.score, label, why, find_annotator(caller.id))
            (stored,) = await tape.append([fact.to_entry()])
        return TargetLabelled(args.chat, format_target(target), name, stored.id)

    @command(
        "judge list <chat>",
        chat=("judge.list", "labels"),
        example="telegram:42",
        role=Role.ADMIN,
        effect=READS_PEOPLE,
        rows="labels",
        help=CommandHelp(HelpTopic.HISTORY, "What people and judges think of answers", (",labels", ",labels limit=50")),
    )
    async def list_labels(self, caller: Caller, args: ListLabelsArgs | ListChatLabelsArgs) -> list[LabelRow]:
        """List what people and judges think of the answers of a chat, newest first; reactions count, too."""
        if isinstance(args, ListLabelsArgs):
            turn = caller.required_turn
            if not turn.is_typed:  # what a job says is kept elsewhere, too
                raise CommandRefused("judge_not_typed")
            return await self._list(turn.tape, args.limit)
        assert caller.context is not None
        async with caller.context.open_session(args.chat, usage="judged") as tape:
            return await self._list(tape, args.limit)

    async def _list(self, tape: TapeHandle, limit: int) -> list[LabelRow]:
        return [LabelRow.of(label) for label in (await self._read(tape))[:limit]]

    @command("judge show <chat> <target>", example="telegram:42 12", role=Role.OWNER, effect=READS_PEOPLE)
    async def show(self, caller: Caller, args: ShowArgs) -> DecisionShown:
        """Show the decision before you judge it: what the model was shown, what it chose, what else was possible."""
        assert caller.context is not None
        async with caller.context.open_session(args.chat, usage="judged") as tape:
            target = await find_target(tape, args.target)
            decision = await tape.read(DecisionView(target))
            labels = labels_of(await self._read(tape), target)
        shown, withheld = offer_labels(labels, find_annotator(caller.id), self._find_settings())
        rows = tuple(LabelRow.of(each) for each in shown)
        return DecisionShown(
            format_target(target),
            decision.shown,
            decision.lines,
            decision.chosen,
            decision.model,
            decision.branches,
            rows,
            withheld,
        )

    async def _read(self, tape: TapeHandle) -> tuple[Label, ...]:
        settings = self._find_settings()
        return await tape.read(LabelsView.of_tape(tape, settings.name, settings.reactions))


def _find_typed(turn: Turn) -> Inbound:
    """Return the message that the running `,rate` is: of several in a turn, the one whose turn it is."""
    if not turn.is_typed:
        raise CommandRefused("judge_not_typed")
    typed: list[Inbound] = [
        accepted.inbound
        for accepted in turn.inbounds
        if holds_command(accepted.inbound) and accepted.inbound.text.lstrip(" ,").split(maxsplit=1)[0] in RATE_WORDS
    ]
    before = [entry for entry in turn.tape.delta if entry.name in CommandRun.EVENTS]
    place = sum(entry.data.get("name") == RATE_TOOL and entry.meta.get("turn") == turn.id for entry in before)
    if not typed:
        raise CommandRefused("judge_not_typed")
    found: Inbound = typed[min(place, len(typed) - 1)]
    return found


async def _find_newest(tape: TapeHandle) -> TapeEntry:
    """Return the newest answer of a chat. Raise `CommandRefused` without one."""
    answers = await read_answers(tape)
    if not answers:
        raise CommandRefused("judge_no_answer")
    return answers[0]


async def _find_replied(turn: Turn, typed: Inbound) -> TapeEntry:
    """Return the answer that a message replies to. Raise `CommandRefused` if it is none of this chat."""
    message = typed.reply_to or (typed.quote.message if typed.quote else "")
    for outbox in turn.tape.shards_of(f"{OUTBOX_PREFIX}/{typed.channel}"):
        sent = await find_sent(turn.tape, outbox, {message}, turn.session)
        if intent := sent.get(message):
            wrote = text_field(intent.data, "turn")
            for answer in await read_answers(turn.tape):
                if text_field(answer.meta, "turn") == wrote:
                    return answer
    raise CommandRefused("judge_no_reply")


async def _open_commands(context: CommandContext) -> JudgeCommands:
    settings: JudgeSettings = context.settings
    return JudgeCommands(lambda: settings)


COMMANDS = make_group(
    "judge",
    JudgeCommands,
    _open_commands,
    "Judge what stands on the tape of a chat, and look at what people, models and code think of it. Judgements are facts "
    "beside what they judge: nothing of that changes, and no model is ever shown one.",
    help_line="judge answers, and list judgements",
)

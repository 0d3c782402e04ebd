"""The commands about branches: ask in several, compare them, and take one into the conversation."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.command import Caller, Surface, command
from bubbot.errors import CommandRefused, ConfigError, ValueInvalid
from bubbot.features.agents.branches import (
    Branch,
    BranchGroup,
    BranchGroupView,
    BranchService,
    may_choose,
    read_alternatives,
    require_branch,
)
from bubbot.features.agents.facts import BranchEffect
from bubbot.features.agents.service import SubTaskService, choose_tools
from bubbot.ports.channel import Button, Role
from bubbot.ports.turn import Turn
from bubbot.runtime.models import SessionModels
from bubbot.shell_command import DEFAULT_SESSION, EXIT_NO_ANSWER, Argument
from bubbot.tape.handle import TapeHandle
from bubbot.texts import COMMAND_PREFIX, Texts
from bubbot.tool import INSIDE, READS_PEOPLE, CommandHelp, HelpTopic

MAX_QUESTION_CHARS = 20_000
MAX_PROMPTS_CHARS = 10_000
SHOWN_CHARS = 280
"""Characters of an answer in a comparison, and of the question."""
PROMPT_SEPARATOR = "|"
GROUP_FORM = {"form": "12 digits and letters from a to f"}
Group = Annotated[
    str,
    Meta(
        description="the branches of an earlier question, by their name",
        pattern=r"^([0-9a-f]{12})?\Z",
        extra=GROUP_FORM,
    ),
]


class AskBranchesArgs(Args, frozen=True):
    """A question, and who is to answer it."""

    text: Annotated[str, Meta(description="the question or task", min_length=1, max_length=MAX_QUESTION_CHARS)]
    models: Annotated[tuple[str, ...], Meta(description="models, one for each branch; for owners")] = ()
    prompts: Annotated[
        str,
        Meta(
            description='instructions, one for each branch, with | between them: prompts="be brief | give reasons"',
            max_length=MAX_PROMPTS_CHARS,
        ),
    ] = ""
    agents: Annotated[tuple[str, ...], Meta(description="agents, one for each branch")] = ()
    tools: Annotated[tuple[str, ...] | None, Meta(description="tools they may use; default: all that only read")] = None


class ListBranchesArgs(Args, frozen=True):
    """Which branches of a chat."""

    number: Annotated[int, Meta(description="the branch whose whole answer to show; 0: compare all", ge=0)] = 0
    group: Group = ""


class ListSessionBranchesArgs(Args, frozen=True):
    """Which branches of a session."""

    session: Annotated[str, Argument(f"a session such as telegram:42 (default: {DEFAULT_SESSION})")] = DEFAULT_SESSION
    number: Annotated[int, Argument("the branch whose whole answer to show (default: compare all)"), Meta(ge=0)] = 0


class ChooseBranchArgs(Args, frozen=True):
    """Which branch."""

    number: Annotated[int, Meta(description="the number of the branch", ge=1)]
    group: Group = ""


class BranchComparison(Struct, frozen=True):
    """The branches of a question.

    Attributes:
        group: the name of the branches; empty if there are none.
        question: what was asked.
        asked: the entry of the question; 0 for none.
        chosen: the number of the branch that is part of the conversation; 0 for none.
        branches: those that have ended, by number.
    """

    is_text: ClassVar = True
    group: str = ""
    question: str = ""
    asked: int = 0
    chosen: int = 0
    branches: tuple[Branch, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 if there are none."""
        return 0 if self.group else EXIT_NO_ANSWER


class BranchesShown(BranchComparison, frozen=True, kw_only=True):
    """The branches of a question with what people read.

    Attributes:
        only: the number of the branch that is shown whole; 0: all are compared.
    """

    only: int = 0

    def describe(self, caller: Caller) -> str:
        """Compare the branches, or show one of them whole."""
        texts = caller.result_texts
        if not self.group:
            return texts.say("branch_none")
        if self.only:
            branch = next(each for each in self.branches if each.number == self.only)
            return "\n".join(
                [_head(branch, texts), branch.text or texts.say("agent_silent"), "", *_facts(branch, texts)]
            )
        lines = [texts.say("branch_question", question=_shorten(self.question))]
        for branch in self.branches:
            lines += [
                "",
                _head(branch, texts),
                _shorten(branch.text) or texts.say("agent_silent"),
                *_facts(branch, texts),
            ]
        if caller.surface is Surface.CHAT:
            lines += ["", texts.say("branch_hint_chosen" if self.chosen else "branch_hint")]
        return "\n".join(lines)


class BranchTaken(Struct, frozen=True):
    """A branch that became part of the conversation.

    Attributes:
        number: its number.
        group: that of its question.
        first: the first of the copies of its entries.
        last: the last of them.
        effects: what it had done outside.
    """

    number: int
    group: str
    first: int
    last: int
    effects: tuple[BranchEffect, ...]

    def describe(self, caller: Caller) -> str:
        """Say where it is, and what is not done again."""
        texts = caller.result_texts
        lines = [texts.say("branch_taken", number=self.number, first=self.first, last=self.last)]
        if self.effects:
            lines.append(texts.say("branch_taken_effects", effects=_name_effects(self.effects, texts)))
        return "\n".join(lines)


def _head(branch: Branch, texts: Texts) -> str:
    """Name a branch: its number, who answered, and its instruction."""
    model = branch.model or ", ".join(branch.models)
    parts = [
        f"@{branch.agent}" if branch.agent else "",
        model,
        texts.say("branch_prompt", prompt=_shorten(branch.prompt)) if branch.prompt else "",
    ]
    head = texts.say("branch_head", number=branch.number, who=texts.say("list_comma").join(filter(None, parts)))
    marks = [texts.say("branch_mark_chosen")] if branch.is_chosen else []
    marks += [texts.say("branch_mark_erased")] if branch.is_erased else []
    marks += [texts.say(f"branch_mark_{branch.status}")] if branch.status in ("failed", "stopped") else []
    return " ".join([head, *marks])


def _facts(branch: Branch, texts: Texts) -> list[str]:
    """Say what a branch took, what it did, and what its models were shown."""
    tokens, cost = branch.input_tokens + branch.output_tokens, branch.cost
    price = (
        texts.say("why_cost_unknown")
        if cost is None
        else texts.say("why_cost", cost=f"{cost:.6f}".rstrip("0").rstrip("."))
    )
    lines = [texts.say("branch_used", steps=branch.steps, tokens=tokens, cost=price)]
    if branch.tools:
        lines.append(texts.say("branch_tools", tools=", ".join(dict.fromkeys(branch.tools))))
    if branch.effects:
        lines.append(texts.say("branch_effects", effects=_name_effects(branch.effects, texts)))
    shown = [_format_spans(branch.shown)] if branch.shown else []
    shown += [f"{other.tape} {_format_spans(other.entries)}" for other in branch.shown_elsewhere]
    alone = texts.say("branch_shown_alone", entries=_format_spans(branch.shown_alone)) if branch.shown_alone else ""
    return [*lines, texts.say("branch_shown", entries="; ".join(shown) or texts.say("none"), alone=alone)]


def _name_effects(effects: tuple[BranchEffect, ...], texts: Texts) -> str:
    return ", ".join(f"{effect.tool} ({texts.say(f'branch_effect_{effect.status}')})" for effect in effects)


def _format_spans(spans: tuple[tuple[int, ...], ...]) -> str:
    return ", ".join(f"#{low}" if low == high else f"#{low}-#{high}" for low, high in spans)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARS else f"{line[: SHOWN_CHARS - 1]}…"


class BranchCommands:
    """The commands about branches."""

    def __init__(self, tasks: SubTaskService | None = None, models: SessionModels | None = None) -> None:
        """Set what only the running bot has: its sub-tasks and its models."""
        self._tasks = tasks
        self._models = models

    @command(
        "branch ask",
        chat=("branch.ask", "branch"),
        in_shell=False,
        effect=INSIDE,
        writes=False,
        help=CommandHelp(
            HelpTopic.TALK,
            "Ask several models or ways at once",
            (
                ',branch prompts="in one sentence | with reasons" Which train do we take?',
                ",branch models=openai/gpt-5-mini,local Which train do we take?",
            ),
        ),
    )
    async def ask(self, caller: Caller, args: AskBranchesArgs) -> BranchComparison:
        """Answer a question from here in several branches side by side, and compare them. None is part of the conversation
        until you choose it."""
        assert self._tasks is not None
        turn = caller.required_turn
        prompts = [prompt.strip() for prompt in args.prompts.split(PROMPT_SEPARATOR)] if args.prompts.strip() else []
        alternatives = read_alternatives(args.models, prompts, args.agents)
        self._require_models(turn, args.models)
        for name in args.agents:
            self._tasks.find_callable(turn, name)
        tools = choose_tools(self._tasks.available_tools(turn), args.tools)
        group = await BranchService(self._tasks).ask(turn, args.text, alternatives, tools)
        _offer(turn, group)
        return _compare(group)

    @command(
        "agent branches [session] [number]",
        chat=("branch.list", "branches"),
        form="[number]",
        example="telegram:42 2",
        effect=READS_PEOPLE,
        help=CommandHelp(HelpTopic.HISTORY, "Compare the branches of a question", (",branches", ",branches 2")),
    )
    async def list_branches(self, caller: Caller, args: ListBranchesArgs | ListSessionBranchesArgs) -> BranchComparison:
        """Compare the branches of the last question that was asked in several, or show the whole answer of one."""
        if isinstance(args, ListSessionBranchesArgs):
            assert caller.context is not None
            async with caller.context.open_session(args.session, usage="compared") as opened:
                return await self._show(opened, args.number)
        turn = caller.required_turn
        return await self._show(turn.tape, args.number, args.group, turn if turn.runs_command else None)

    async def _show(self, tape: TapeHandle, number: int, group: str = "", turn: Turn | None = None) -> BranchComparison:
        found = await tape.read(BranchGroupView(group))
        if found is None:
            if group:
                raise CommandRefused("branch_gone")
            return BranchesShown()
        if number:
            require_branch(found, number)
        if turn is not None:
            _offer(turn, found)
        return _compare(found, number)

    @command(
        "branch choose",
        chat=("branch.choose",),
        in_shell=False,
        effect=INSIDE,
        help=CommandHelp(HelpTopic.TALK, "Take a branch into the conversation", (",branch.choose 2",)),
    )
    async def choose(self, caller: Caller, args: ChooseBranchArgs) -> BranchTaken:
        """Take a branch into the conversation: its question, calls, results and answer, as if they had been said here. The
        others stay outside."""
        assert self._tasks is not None
        branch, chosen = await BranchService(self._tasks).choose(caller.required_turn, args.number, args.group)
        copies = [number for span in chosen.copies for number in span]
        return BranchTaken(branch.number, chosen.group, min(copies), max(copies), chosen.effects)

    def _require_models(self, turn: Turn, names: tuple[str, ...]) -> None:
        """Raise `CommandRefused` if a model is unknown, or the person may not choose models."""
        assert self._models is not None
        if names and not turn.role.at_least(Role.OWNER):
            raise CommandRefused("branch_model_for_owner", role=turn.role)
        for name in names:
            try:
                self._models.get_model(name)
            except ConfigError as error:
                known = ", ".join(self._models.list_names())
                raise ValueInvalid("branch_model_unknown", name=name, problem=error, names=known) from error


def _compare(group: BranchGroup, only: int = 0) -> BranchesShown:
    chosen = next((branch.number for branch in group.branches if branch.is_chosen), 0)
    return BranchesShown(group.fact.group, group.fact.question, group.asked.id, chosen, group.branches, only=only)


def _offer(turn: Turn, group: BranchGroup) -> None:
    """Offer a button for each branch that the person may choose."""
    if group.chosen is not None or not may_choose(turn, group):
        return
    buttons = tuple(
        Button(
            turn.texts.say("button_branch", number=branch.number),
            f"{COMMAND_PREFIX}branch.choose {branch.number} group={group.fact.group}",
        )
        for branch in group.branches
        if branch.is_answered
    )
    if buttons:
        turn.buttons.append(buttons)

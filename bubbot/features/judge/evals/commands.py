"""The commands about evaluations: run one, read what it came to, compare."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, structs

from bubbot.arguments.fields import Args
from bubbot.command import Caller, command, make_group
from bubbot.errors import CommandError, CommandRefused
from bubbot.features.judge.evals.compare import EvalComparison, compare
from bubbot.features.judge.evals.facts import CASE, EVALS_TAPE, EvalEnded, Fetch, ended_key
from bubbot.features.judge.evals.library import EvalLibrary
from bubbot.features.judge.evals.report import (
    EvalReport,
    EvalRow,
    WrittenReport,
    find_evaluation,
    list_evaluations,
    read_report,
    render_report,
)
from bubbot.ports.channel import TERMINAL_CHANNEL, Role
from bubbot.shell_command import Argument, CommandContext, TypedAnswer, write_keyed
from bubbot.tape.entry import Kind
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tool import INSIDE, READS_PEOPLE, CommandHelp, CommandPlace, HelpTopic

if TYPE_CHECKING:
    from bubbot.features.judge.evals.runner import EvalRunner

EVAL_TIMEOUT_SECONDS = 86_400.0
EVAL_SESSION = f"{TERMINAL_CHANNEL}:eval"
"""The session in which a shell asks for evaluations."""
PROGRESS_SECONDS = 0.5
"""Seconds between looks at how many results there are."""

NameArg = Annotated[
    str, Meta(description="the name of its file in evals, or of a suite such as everyday", min_length=1, max_length=64)
]
ModelArg = Annotated[
    str, Meta(description="ask this model in every setup", max_length=200), Argument(metavar="MODEL", short="m")
]


class RunEvalArgs(Args, frozen=True):
    """An evaluation, and what of it runs."""

    name: NameArg
    setup: Annotated[
        tuple[str, ...], Meta(description="only these setups; default: all", max_length=100), Argument(repeated=True)
    ] = ()
    model: ModelArg = ""


class EvalArgs(Args, frozen=True):
    """An evaluation that ran."""

    eval: Annotated[
        str, Meta(description="its id, or the name of its file for the newest one", min_length=1, max_length=64)
    ]
    html: Annotated[
        str, Meta(description="write one page to this new file", max_length=4_000), Argument(metavar="FILE")
    ] = ""


class CompareEvalsArgs(Args, frozen=True):
    """Two setups that ran."""

    before: Annotated[
        str,
        Meta(description="an evaluation, with a colon and the setup if it has several", min_length=1, max_length=128),
    ]
    after: Annotated[str, Meta(description="what is compared with it, in the same form", min_length=1, max_length=128)]


class EvalCommands:
    """What owners do about evaluations."""

    def __init__(self, library: EvalLibrary, fetch: Fetch, runner: EvalRunner | None = None) -> None:
        """Take what the commands need.

        Args:
            library: what can be run.
            fetch: reads tapes.
            runner: that of the running bot; None in a shell.
        """
        self._library = library
        self._fetch = fetch
        self._runner = runner

    @command(
        "eval run <name>",
        chat=("eval.run",),
        form="<name>",
        example="everyday",
        role=Role.OWNER,
        effect=INSIDE,
        writes=False,
        is_direct=True,
        progress=("Evaluating {name}", ""),
        help=CommandHelp(
            HelpTopic.HISTORY,
            "Evaluate answers over cases",
            (",eval.run everyday", ",eval.run name=everyday model=provider/model"),
            place=CommandPlace.TERMINAL,
        ),
    )
    async def run(self, caller: Caller, args: RunEvalArgs) -> EvalReport:
        """Run the cases of an evaluation under each of its setups, in forks that are thrown away, and let its judges judge. One
        that was cut off goes on."""
        spec = self._library.load(args.name).choose(args.setup, args.model.strip())
        if caller.turn is None:
            assert caller.context is not None
            return await self._ask_bot(caller.context, args, tuple(spec.setups))
        if not caller.has_power:
            raise CommandRefused("eval_only_owner")
        assert self._runner is not None
        ended = await self._runner.run(caller.turn, spec)
        return await read_report(self._fetch, await find_evaluation(self._fetch, ended.id))

    @command(
        "eval report <eval>",
        example="everyday --html report.html",
        role=Role.OWNER,
        effect=READS_PEOPLE,
        is_direct=True,
    )
    async def report(self, caller: Caller, args: EvalArgs) -> EvalReport:
        """Show what an evaluation came to: for each setup the mean score, the pass rate, cost and time."""
        report = await read_report(self._fetch, await find_evaluation(self._fetch, args.eval))
        if not args.html.strip():
            return report
        page = render_report(report, caller.texts)
        return WrittenReport(**structs.asdict(report), file=Path(args.html.strip()), content=page)

    @command(
        "eval compare <before> <after>",
        example="everyday:small everyday:large",
        role=Role.OWNER,
        effect=READS_PEOPLE,
        is_direct=True,
    )
    async def compare(self, caller: Caller, args: CompareEvalsArgs) -> EvalComparison:  # noqa: ARG002 - see `CommandSpec.run`
        """Compare two setups, of one evaluation or of two, over the cases that both have: the difference with its interval, and
        the cases that pass in one only. The exit code is 1 for a regression beyond the interval."""
        return await compare(self._fetch, args.before, args.after)

    @command("eval list", role=Role.OWNER, effect=READS_PEOPLE, rows="evaluations", is_direct=True)
    async def list(self) -> list[EvalRow]:
        """List the evaluations that ran, newest first, and how they stand."""
        counts = await _count_results(self._fetch)
        return [
            EvalRow(
                each.started.id,
                each.started.name,
                each.began,
                each.state,
                counts[each.started.id],
                each.started.planned,
            )
            for each in await list_evaluations(self._fetch)
        ]

    async def _ask_bot(self, context: CommandContext, args: RunEvalArgs, setups: tuple[str, ...]) -> EvalReport:
        """Let the bot of the home run it in a turn at the terminal, and show how far it is.

        Raises:
            CommandError: what the bot says if it does not.
        """
        assert context.type_command is not None
        line = f",eval.run {write_keyed('name', args.name.strip())}"
        line += "".join(f" {write_keyed('setup', setup)}" for setup in args.setup)
        line += f" {write_keyed('model', args.model.strip())}" if args.model.strip() else ""
        asking = asyncio.ensure_future(context.type_command(EVAL_SESSION, line, ""))
        try:
            answer = await self._watch(asking, context, args.name.strip(), setups)
        finally:
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(asking, return_exceptions=True)
        found = (await context.store.fetch([TapeQuery(EVALS_TAPE, keys=(ended_key(answer.turn),))]))[0]
        if not found:
            raise CommandError(answer.text)
        ended = EvalEnded.of(found[-1])
        return await read_report(context.store.fetch, await find_evaluation(context.store.fetch, ended.id))

    async def _watch(
        self, asking: asyncio.Future[TypedAnswer], context: CommandContext, name: str, setups: tuple[str, ...]
    ) -> TypedAnswer:
        """Show how many results the newest evaluation of this name has that is not complete, until the bot answers."""
        fetch = context.store.fetch
        while True:
            done, _ = await asyncio.wait([asking], timeout=PROGRESS_SECONDS)
            if done:
                return asking.result()
            running = [
                each
                for each in await list_evaluations(fetch)
                if (each.started.name, each.started.setups) == (name, setups) and each.state in ("running", "denied")
            ]
            if running:
                started = running[0].started
                counts = await _count_results(fetch, running[0].entry)
                context.on_progress(counts[started.id], started.planned)


async def _count_results(fetch: Fetch, first: int = 1) -> Counter[object]:
    """Count the results that are on the tape from an entry on, by evaluation."""
    part = IdRanges(((first, None),))
    found = (await fetch([TapeQuery(EVALS_TAPE, part, kinds=(Kind.EVENT,), names=(CASE,))]))[0]
    return Counter(entry.data.get("eval") for entry in found)


async def open_evals(context: CommandContext) -> EvalCommands:
    """Open the commands for a shell."""
    assert context.home is not None
    return EvalCommands(EvalLibrary(context.home), context.store.fetch)


COMMANDS = make_group(
    "eval",
    EvalCommands,
    open_evals,
    "Evaluate how the bot answers: cases run under several setups in forks that are thrown away, and judges say how good the "
    "answers are. Tools answer from a record or not at all. An evaluation is a file of `evals` in the home, or a suite such as "
    "everyday. Nothing of any chat is changed.",
    section="Look",
    help_line="evaluate answers over cases, and compare setups",
    run={"begins_home": True},
)

"""The commands about tasks and their runs, declared once for chats, shells and models."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace as replace_fields
from datetime import datetime
from typing import Any

from msgspec import structs

from bubbot.command import Caller, command, make_group
from bubbot.errors import CommandRefused, ConfigError, StoreUnavailable
from bubbot.features.tasks.attempts import opened_key
from bubbot.features.tasks.config import override_config
from bubbot.features.tasks.definition import TaskDefinition
from bubbot.features.tasks.facts import ENDED, TASKS_TAPE, RuleJudged, RunChanged, TaskDrafted, TaskOpened
from bubbot.features.tasks.graph import TaskGraph
from bubbot.features.tasks.harness.feature_files import HarnessInvalid
from bubbot.features.tasks.library import TaskLibrary, product_layer
from bubbot.features.tasks.results import (
    AnyRunArgs,
    NewTaskArgs,
    NodeReport,
    RerunArgs,
    RuleReport,
    RunArgs,
    RunChange,
    RunGraph,
    RunReport,
    RunRow,
    RunsReport,
    RunTaskArgs,
    RunTaskInChatArgs,
    TaskArgs,
    TaskChecked,
    TaskList,
    TaskProblem,
    TaskRow,
    TaskWritten,
)
from bubbot.features.tasks.runs import RunOutcome, TaskRuns, read_run
from bubbot.features.tasks.settings import TaskSettings
from bubbot.features.tasks.sources import DefinitionInvalid
from bubbot.features.tasks.state import TASKS_PROJECTION, RunState, TasksState, read_details, say_reason
from bubbot.features.tasks.vocabulary import read_harness
from bubbot.features.tasks.writing import EXAMPLE_FILES, TaskWriter
from bubbot.ports.channel import JOB_TASK_ORIGIN, TASK_ORIGIN, TERMINAL_CHANNEL, Role
from bubbot.ports.session_names import parse_session
from bubbot.ports.turn import Turn
from bubbot.shell_command import CommandContext, TypeCommand, write_keyed
from bubbot.tape import entry as make
from bubbot.tape.entry import Kind, canonical, text_field
from bubbot.tape.handle import TapeHandle
from bubbot.tape.projection import read_projection
from bubbot.tape.provenance import most_foreign, stamp_of
from bubbot.tape.query import TapeQuery, parse_moment
from bubbot.toml_tables import Problem
from bubbot.tool import CHANGES_JOBS, INSIDE, READS_PEOPLE, CommandHelp, HelpTopic

TASKS_SESSION = f"{TERMINAL_CHANNEL}:tasks"
"""The chat of a shell in which tasks run, unless it names another one."""
MAX_LISTED_RUNS = 20
MAX_DEFINITION_BYTES = 1_000_000
"""Bytes of schema, config and harness together, as JSON: each run stores them once."""
MAX_RESUMES = 10_000
"""Steps that a shell waits for; a task has at most 1,000 nodes."""


class TaskCommands:
    """What people and models do about tasks.

    Attributes:
        settings: the section.
    """

    def __init__(
        self,
        library: TaskLibrary,
        settings: TaskSettings,
        runs: TaskRuns | None = None,
        writer: TaskWriter | None = None,
        context: CommandContext | None = None,
    ) -> None:
        """Take what the commands need.

        Args:
            library: the tasks of the home.
            settings: the section.
            runs: those of the running bot; None in a shell.
            writer: writes tasks from descriptions; None in a shell.
            context: what a shell works on; None in the running bot.
        """
        self._library = library
        self.settings = settings
        self._runs = runs
        self._writer = writer
        self._context = context

    # Tasks

    @command(
        "task new <task> [description]",
        chat=("task.new",),
        form="<task> [description]",
        example="digest",
        role=Role.OWNER,
        effect=INSIDE,
        writes=False,
        help=CommandHelp(
            HelpTopic.TIMES,
            "Write a task, and confirm it",
            (",task.new digest Every Monday, sum up the news about our town.",),
        ),
    )
    async def new(self, caller: Caller, args: NewTaskArgs) -> TaskWritten:
        """Write a new task: an example to edit or, from a description, one that the bot writes and that you confirm."""
        if not args.description.strip():
            self._library.write(args.task.strip(), EXAMPLE_FILES)
            return TaskWritten(args.task.strip(), files=tuple(EXAMPLE_FILES))
        if caller.turn is None:
            line = f",task.new {write_keyed('task', args.task)} {write_keyed('description', args.description)}"
            return await self._write_in_chat(args.task.strip(), line)
        assert self._writer is not None
        return await self._writer.write(caller.turn, args.task.strip(), args.description.strip())

    @command(
        "task keep <task>",
        chat=("task.keep",),
        in_shell=False,
        role=Role.OWNER,
        effect=INSIDE,
        writes=False,
        help=CommandHelp(HelpTopic.TIMES, "Keep a task that you confirmed", (",task.keep digest",)),
    )
    async def keep(self, caller: Caller, args: TaskArgs) -> TaskWritten:
        """Keep a task that the bot wrote, once you have said yes to its question."""
        assert self._writer is not None
        return await self._writer.keep(caller.required_turn, args.task.strip())

    @command(
        "task check <task>",
        chat=("task.check",),
        form="<task>",
        example="digest",
        effect=READS_PEOPLE,
        help=CommandHelp(HelpTopic.TIMES, "What is wrong with a task", (",task.check digest",)),
    )
    async def check(self, caller: Caller, args: TaskArgs) -> TaskChecked:
        """Find what is wrong with a task before it runs: cycles, contracts, tools, and rules that can never apply."""
        name = args.task.strip()
        try:
            definition = await asyncio.to_thread(self._library.load, name)
        except DefinitionInvalid as error:
            problems = tuple(TaskProblem(each.where, each.message, each.is_warning) for each in error.problems)
            return TaskChecked(name, 0, 0, problems)
        found, rules = await asyncio.to_thread(self._look_at, definition, caller.role)
        problems = tuple(TaskProblem(each.where, each.message, each.is_warning) for each in found)
        return TaskChecked(name, len(definition.schema.nodes), rules, problems)

    def _look_at(self, definition: TaskDefinition, role: Role) -> tuple[Sequence[Problem], int]:
        """Return what is wrong with a task, and how many rules its harness has."""
        found = self._library.check(definition, role)
        try:
            return found, len(read_harness(definition.harness).rules)
        except HarnessInvalid:
            return found, 0

    @command(
        "task list",
        chat=("task.list", "tasks"),
        effect=READS_PEOPLE,
        for_model=True,
        help=CommandHelp(HelpTopic.TIMES, "The tasks, and what runs", (",tasks",)),
    )
    async def list_tasks(self, caller: Caller) -> TaskList:
        """List the tasks of the home, and the runs of this chat; in a shell those of all chats."""
        rows = []
        for name in await asyncio.to_thread(self._library.list_names):
            try:
                schema = (await asyncio.to_thread(self._library.load, name)).schema
            except ConfigError as error:
                rows.append(TaskRow(name, name, 0, "", str(error).partition("\n")[0]))
            else:
                rows.append(TaskRow(name, schema.title or name, len(schema.nodes), schema.role))
        runs = [self._live(each) for each in await self._visible(caller)]
        runs = sorted(runs, key=lambda run: (not run.has_ended, run.queued.date))[-MAX_LISTED_RUNS:]
        return TaskList(tuple(rows), tuple(map(_run_row, runs)))

    # Runs

    @command(
        "task run <task> [description]",
        chat=("task.run",),
        form="<task> [description]",
        example='digest "the school board"',
        effect=CHANGES_JOBS,
        writes=False,
        for_model=True,
        help=CommandHelp(
            HelpTopic.TIMES,
            "Run a task",
            (",task.run digest", ",task.run digest The school board. with=limit=3"),
        ),
    )
    async def run(self, caller: Caller, args: RunTaskArgs | RunTaskInChatArgs) -> RunChange:
        """Run a task in this chat, step by step; what it has done so far is shown, and its result comes when it is over."""
        if caller.turn is None:
            assert isinstance(args, RunTaskInChatArgs)
            words = [f",task.run {write_keyed('task', args.task)}"]
            words += [write_keyed("description", args.description)] if args.description else []
            words += [write_keyed("with", ",".join(args.values))] if args.values else []
            return await self._type(" ".join(words), _parse_terminal_chat(args), args.task)
        turn, runs = caller.turn, self._require_runs()
        if turn.is_subtask:  # what follows a turn follows the whole turn
            raise CommandRefused("task_in_subtask")
        loaded = await asyncio.to_thread(self._library.load, args.task)
        definition = self._change_config(loaded, args.values)
        await self._refuse_problems(definition, caller)
        state = await runs.begin(turn, definition, args.description.strip())
        return RunChange(state.run, definition.name, state.status, self._begun_text(caller, state, definition))

    def _change_config(self, definition: TaskDefinition, words: tuple[str, ...]) -> TaskDefinition:
        return structs.replace(definition, config=override_config(definition.config, words)) if words else definition

    async def _refuse_problems(self, definition: TaskDefinition, caller: Caller) -> None:
        """Refuse a task that cannot run or is too large for a tape, and more runs than a chat may have."""
        size = len(canonical(definition.to_json()).encode())
        if size > MAX_DEFINITION_BYTES:
            raise CommandRefused("task_too_large", task=definition.name, size=size, limit=MAX_DEFINITION_BYTES)
        session = caller.required_turn.session
        agents = self._require_runs().list_agents(session, definition)
        found = await asyncio.to_thread(self._library.check, definition, caller.role, agents)
        if problems := [each for each in found if not each.is_warning]:
            raise CommandRefused("task_broken", task=definition.name, problems="\n".join(map(str, problems)))
        open_runs = [
            run for run in self._require_runs().state.runs.values() if run.session == session and not run.has_ended
        ]
        if len(open_runs) >= self.settings.max_runs:
            raise CommandRefused("task_too_many", number=self.settings.max_runs)

    def _begun_text(self, caller: Caller, state: RunState, definition: TaskDefinition) -> str:
        if definition.schema.progress == "message" and caller.required_turn.runs_command:
            return ""  # the message that shows how far it is says so
        title = definition.schema.title or definition.name
        return caller.result_texts.say("RunChange.begun", run=state.run, title=title, nodes=len(state.nodes))

    @command(
        "task status [run]",
        chat=("task.status",),
        form="[run]",
        example="K3Q7M",
        effect=READS_PEOPLE,
        for_model=True,
        help=CommandHelp(HelpTopic.TIMES, "How far a task is", (",task.status", ",task.status K3Q7M")),
    )
    async def status(self, caller: Caller, args: AnyRunArgs) -> RunsReport:
        """Show how far the runs of this chat are, or one run with its nodes, verdicts and what these rest on."""
        if args.run.strip():
            return RunsReport((await self._report(await self._find(caller, args.run), caller),))
        under_way = [run for run in await self._visible(caller) if not run.has_ended]
        return RunsReport(tuple([await self._report(run, caller) for run in under_way[-MAX_LISTED_RUNS:]]))

    @command(
        "task graph <run>",
        chat=("task.graph",),
        form="<run>",
        example="K3Q7M",
        effect=READS_PEOPLE,
        help=CommandHelp(HelpTopic.TIMES, "What waits for what in a task", (",task.graph K3Q7M",)),
    )
    async def graph(self, caller: Caller, args: RunArgs) -> RunReport:
        """Draw a run as a graph: each step below those that it waits for."""
        return RunGraph(**structs.asdict(await self._report(await self._find(caller, args.run), caller)))

    @command(
        "task resume <run>",
        chat=("task.resume",),
        form="<run>",
        example="K3Q7M",
        effect=INSIDE,
        writes=False,
        help=CommandHelp(HelpTopic.TIMES, "Go on with a task", (",task.resume K3Q7M",)),
    )
    async def resume(self, caller: Caller, args: RunArgs) -> RunChange:
        """Go on with a run that was stopped, or look again at what it waits for."""
        state = await self._find(caller, args.run)
        if caller.turn is None:
            is_here = state.session.partition(":")[0] == TERMINAL_CHANNEL
            session = state.session if is_here else TASKS_SESSION
            return await self._type(f",task.resume {state.run}", session, state.queued.fact.task, state.run)
        runs, task = self._require_runs(), state.queued.fact.task
        _refuse_foreign(caller, state)
        if state.session != caller.turn.session and not state.has_ended:
            is_queued = await runs.resume(state.run)
            text = caller.result_texts.say("RunChange.elsewhere", run=state.run, session=state.session)
            return RunChange(state.run, task, state.status, text if is_queued else "")
        if state.has_ended and not caller.turn.is_typed and not await runs.was_ended_by(caller.turn, state):
            return RunChange(state.run, task, state.status)  # it was cancelled, or somebody was faster
        if state.status == "blocked" and caller.turn.origin in (TASK_ORIGIN, JOB_TASK_ORIGIN):
            return RunChange(state.run, task, state.status)  # only people resume it: it may end the process each time
        outcome = await runs.advance(caller.turn, state.run)
        text = self._outcome_text(caller, outcome)
        if outcome.text and outcome.state.status == "succeeded":
            await _tell_chat(caller.turn, state, text, outcome.artifact)
        return RunChange(state.run, task, outcome.state.status, text)

    def _outcome_text(self, caller: Caller, outcome: RunOutcome) -> str:
        """Return the result of a run, or how it ended; while it goes on, only who asked for it is told."""
        texts, state = caller.result_texts, outcome.state
        if state.status == "succeeded" and outcome.text:
            return outcome.text
        if state.has_ended:
            status = texts.say(f"task_status_{state.status}")
            reason = say_reason(state.reason, texts, state.run)
            return texts.say("RunChange.ended", run=state.run, status=status, reason=reason).strip()
        if caller.required_turn.is_typed:
            status = texts.say(f"task_status_{state.status}")
            return texts.say("RunChange.goes_on", run=state.run, status=status, done=state.done, nodes=len(state.nodes))
        return ""

    @command(
        "task cancel <run>",
        chat=("task.cancel",),
        form="<run>",
        example="K3Q7M",
        effect=INSIDE,
        help=CommandHelp(HelpTopic.TIMES, "End a task", (",task.cancel K3Q7M",)),
    )
    async def cancel(self, caller: Caller, args: RunArgs) -> RunChange:
        """End a run now. What it did stays; nothing more happens."""
        state = await self._find(caller, args.run)
        _refuse_foreign(caller, state)
        if self._runs is None:
            state = await _cancel_offline(self._require_context(), state)
        else:
            state = await self._runs.cancel(state.run)
        text = caller.result_texts.say("RunChange.cancelled", run=state.run, done=state.done, nodes=len(state.nodes))
        return RunChange(state.run, state.queued.fact.task, state.status, text)

    @command(
        "task rerun <run>",
        chat=("task.rerun",),
        form="<run>",
        example="K3Q7M --from summary",
        effect=INSIDE,
        writes=False,
        help=CommandHelp(
            HelpTopic.TIMES,
            "Run a part of a task again",
            (",task.rerun K3Q7M from=summary", ",task.rerun K3Q7M from=summary with=limit=3"),
        ),
    )
    async def rerun(self, caller: Caller, args: RerunArgs) -> RunChange:
        """Run a part of a run again beside it: the artifacts of what comes before stay, the rest is done anew."""
        state = await self._find(caller, args.run)
        _refuse_foreign(caller, state)
        if caller.turn is None:
            words = [f",task.rerun {state.run} {write_keyed('from', args.start)}"]
            words += [write_keyed("with", ",".join(args.values))] if args.values else []
            return await self._type(" ".join(words), state.session, state.queued.fact.task)
        turn, runs = caller.turn, self._require_runs()
        if state.session != turn.session:
            raise CommandRefused("task_elsewhere", run=state.run, session=state.session)
        work = await runs.open_work(turn, state.run)
        nodes = work.definition.schema.nodes
        start = args.start.strip()
        if start not in nodes:
            raise CommandRefused("task_no_node", node=start, nodes=", ".join(nodes))
        again = {start, *TaskGraph(work.definition.schema).descendants(start)}
        earlier = {name: (run, attempt) for name, run, attempt in state.queued.fact.kept}
        kept = []
        for name, node in state.by_node.items():
            if name in again:
                continue
            if node.status != "succeeded":
                raise CommandRefused("task_parent_left", node=name, start=start)
            kept.append((name, *earlier.get(name, (state.run, node.attempt))))
        definition = self._change_config(work.definition, args.values)
        await self._refuse_problems(definition, caller)
        turn.tape.raise_source(work.source)  # the description is a copy, whoever asks for it
        begun = await runs.begin(turn, definition, work.description, source=state, kept=kept)
        return RunChange(begun.run, definition.name, begun.status, self._begun_text(caller, begun, definition))

    # Reading

    def _require_runs(self) -> TaskRuns:
        assert self._runs is not None
        return self._runs

    def _require_context(self) -> CommandContext:
        assert self._context is not None
        return self._context

    def _live(self, state: RunState) -> RunState:
        return self._runs.read_live(state) if self._runs else state

    async def _read_state(self) -> TasksState:
        if self._runs is not None:
            return self._runs.state
        return await read_projection(TASKS_PROJECTION, self._require_context().open_tape(TASKS_TAPE))

    async def _visible(self, caller: Caller) -> list[RunState]:
        """Return the runs that a caller may see: in a chat its own, and all for an owner who asks in person."""
        runs = (await self._read_state()).runs.values()
        if caller.turn is None:
            return [*runs]
        return [run for run in runs if run.session == caller.turn.session or caller.has_power]

    async def _find(self, caller: Caller, name: str) -> RunState:
        run = read_run(name)
        for state in await self._visible(caller):
            if state.run == run:
                return self._live(state)
        raise CommandRefused("task_no_run", run=name.strip())

    async def _report(self, state: RunState, caller: Caller) -> RunReport:
        """Report a run. What its words are stands on the tape of its chat, which another chat may not read."""
        texts = caller.result_texts
        tape, definition = await self._open_tape(state, caller), None
        rules: list[RuleReport] = []
        if tape is not None:
            query = TapeQuery(tape.name, keys=(opened_key(state.run),))
            judged = TapeQuery(tape.name, kinds=(Kind.EVENT,), names=RuleJudged.EVENTS, newest=True, limit=500)
            found, verdicts = await tape.fetch([query, judged])
            if found and not found[0].erased:
                definition = TaskDefinition.of_text(TaskOpened.of(found[0]).definition)
            for entry in reversed(verdicts):
                judgement = RuleJudged.try_of(entry)
                if judgement is not None and judgement.run == state.run:
                    spans = tuple((span[0], span[1]) for span in judgement.cites)
                    rule = judgement.rule, judgement.text, judgement.place, judgement.status
                    rules.append(RuleReport(*rule, spans))
        facts = self._runs.tape if self._runs is not None else self._require_context().open_tape(TASKS_TAPE)
        details = await read_details(facts, state)
        nodes = []
        for name, node in state.by_node.items():
            known = definition.schema.nodes[name] if definition else None
            reason = say_reason(node.reason, texts)
            detail = details.get(name, "")
            nodes.append(
                NodeReport(
                    name,
                    (known.title if known else "") or name,
                    node.status,
                    node.attempt,
                    tuple(known.after) if known else (),
                    node.until if node.status == "waiting" else "",
                    node.approval,
                    f"{reason} {detail}".strip() if reason else "",
                )
            )
        fact = state.queued.fact
        return RunReport(
            state.run,
            fact.task,
            (definition.schema.title if definition else "") or fact.task,
            fact.session,
            state.status,
            state.revision,
            state.changed,
            tuple(nodes),
            say_reason(state.reason, texts, state.run),
            fact.source or "",
            state.tokens,
            state.verdicts,
            tuple(rules),
        )

    async def _open_tape(self, state: RunState, caller: Caller) -> TapeHandle | None:
        """Open the tape of the chat of a run, if it is this chat, or a shell asks."""
        if caller.turn is not None:
            return caller.turn.tape if caller.turn.session == state.session else None
        context = self._require_context() if self._context else caller.context
        assert context is not None
        async with context.open_session(state.session) as tape:
            return tape

    # Shells

    async def _write_in_chat(self, task: str, line: str) -> TaskWritten:
        """Let the bot of the home write a task in the chat of tasks, where its question waits."""
        context, type_command = self._require_context(), self._require_typing()
        answer = await type_command(TASKS_SESSION, line, "")
        async with context.open_session(TASKS_SESSION) as tape:
            names = TaskDrafted.EVENTS
            query = TapeQuery(tape.name, kinds=(Kind.EVENT,), names=names, newest=True, limit=1)
            found = (await tape.fetch([query]))[0]
        if not answer.entries or not found or not answer.entries[0] <= found[0].id <= answer.entries[1]:
            return TaskWritten(task, problem=answer.text)
        draft = TaskDrafted.of(found[0])
        return TaskWritten(task, draft.approval, tuple(draft.files))

    def _require_typing(self) -> TypeCommand:
        """Return what types a line for the bot of the home. Raise `StoreUnavailable` if no bot ever ran there."""
        if (type_command := self._require_context().type_command) is None:
            raise StoreUnavailable("there is no database in this home yet: talk to the bot once with bubbot chat")
        return type_command

    async def _type(self, line: str, session: str, task: str, run: str = "") -> RunChange:
        """Let the bot of the home do it in a chat, and wait until there is nothing to wait for but people."""
        context, type_command = self._require_context(), self._require_typing()
        before = {each.run for each in (await self._read_state()).runs.values()}
        answer = await type_command(session, line, "")
        texts = [answer.text] if answer.text else []
        for _ in range(MAX_RESUMES):
            runs = (await self._read_state()).runs
            state = runs.get(run) or next((each for name, each in reversed(runs.items()) if name not in before), None)
            if state is None:
                return RunChange(run, task, "failed", answer.text)
            pause = _find_pause(state, context.now())
            if state.has_ended or state.status == "blocked" or session != state.session or pause is None:
                break
            await asyncio.sleep(pause)
            answer = await type_command(session, f",task.resume {state.run}", "")
            texts += [answer.text] if answer.text and answer.text not in texts else []
        assert state is not None
        caller = Caller.of_shell(context)
        report = await self._report(state, caller)
        # What ended it may have been the turn that was cut off, and not this one: the report says how.
        texts = await self._read_result(state, caller) or ([] if state.has_ended else texts[-1:])
        return RunChange(state.run, task, state.status, "\n\n".join([*texts, report.describe(caller)]))

    async def _read_result(self, state: RunState, caller: Caller) -> list[str]:
        """Return the result of a run, which its chat has been told; none if there is none."""
        tape = await self._open_tape(state, caller)
        assert tape is not None
        found = (await tape.fetch([TapeQuery(tape.name, keys=(result_key(state.run),))]))[0]
        return [text_field(entry.payload, "content") for entry in found if not entry.erased]


def _find_pause(state: RunState, now: datetime) -> float | None:
    """Return the seconds until a run can go on by itself; None if it waits for people alone."""
    if state.status != "waiting":
        return 0.0
    waiting = [parse_moment(node.until) for node in state.nodes if node.status == "waiting" and not node.approval]
    moments = [moment for moment in waiting if moment is not None]
    return max((min(moments) - now).total_seconds(), 0.0) if moments else None


def _parse_terminal_chat(args: RunTaskInChatArgs) -> str:
    """Return the session of a chat of the terminal. Raise `ConfigError` for a chat of a platform: its people type there."""
    if not args.chat.strip():
        return TASKS_SESSION
    session = parse_session(args.chat)
    channel = session.partition(":")[0]
    if channel != TERMINAL_CHANNEL:
        raise ConfigError(
            f"--chat {session} is a chat of {channel}: type ,task.run {args.task} there, or name one of the terminal, such as work"
        )
    return session


def _refuse_foreign(caller: Caller, state: RunState) -> None:
    """Refuse to change the run of somebody else, unless an admin does: its nodes would work with another person's rights."""
    turn = caller.turn
    if turn is not None and turn.sender.id != state.queued.fact.by and not turn.role.at_least(Role.ADMIN):
        raise CommandRefused("task_not_yours", run=state.run)


def result_key(run: str) -> str:
    """Return the key of the result of a run on the tape of its chat."""
    return f"result:{run}"


async def _tell_chat(turn: Turn, state: RunState, text: str, artifact: int) -> None:
    """Put the result of a run into the window of its chat, so that people can talk about it: a copy of the artifact."""
    said = f"[The task {state.queued.fact.task} ({state.run}) is over. Its result follows.]"
    meta: dict[str, Any] = {"origin": turn.origin, "source": [turn.tape.name, artifact]}
    meta |= stamp_of(most_foreign(turn.answer_source, turn.tape.source))
    asked, told = make.message("user", said, origin="system"), make.message("assistant", text, **meta)
    keyed = [replace_fields(asked, key=f"over:{state.run}"), replace_fields(told, key=result_key(state.run))]
    await turn.tape.append(keyed, if_absent=True)  # an interrupted attempt of the turn may have told it


async def _cancel_offline(context: CommandContext, state: RunState) -> RunState:
    """End a run while no bot runs."""
    if state.status in ENDED:
        raise CommandRefused("task_over", run=state.run, status=state.status)
    tape = context.open_tape(TASKS_TAPE)
    fact = RunChanged(run=state.run, status="cancelled")
    (entry,) = await tape.append([fact.to_entry()])
    return state.apply(fact, entry.date, entry.id)


def _run_row(state: RunState) -> RunRow:
    fact = state.queued.fact
    return RunRow(state.run, fact.task, fact.session, state.status, state.done, len(state.nodes), state.changed)


async def open_tasks(context: CommandContext) -> TaskCommands:
    """Return the running bot's own commands, so that a change takes effect at once, or those over the tapes of the home."""
    if (running := context.service(TaskCommands)) is not None:
        return running
    assert context.home is not None
    return TaskCommands(
        TaskLibrary(context.home, product_layer("bubbot", "en", str(context.zone))),
        context.settings or TaskSettings(),
        context=context,
    )


COMMANDS = make_group(
    "task",
    TaskCommands,
    open_tasks,
    "Run tasks: graphs of steps under a contract. A task is a folder of `tasks` in the home, with its steps, its rules and what "
    "the bot must and must not do.",
    help_line="run tasks: steps under a contract",
    run={"begins_home": True},
    new={"begins_home": True},
)

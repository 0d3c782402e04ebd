"""The arguments of the commands about tasks, and what they answer."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.command import Caller
from bubbot.features.tasks.facts import ENDED, Status, VerdictCounts
from bubbot.features.tasks.state import MARKS, format_node
from bubbot.shell_command import IsoTime
from bubbot.texts import Texts

TaskArg = Annotated[str, Meta(description="the name of the task", min_length=1, max_length=64)]
RunArg = Annotated[str, Meta(description="the run: five characters, such as K3Q7M", min_length=1, max_length=32)]
DescriptionArg = Annotated[str, Meta(description="what this run should do, in your words", max_length=20_000)]
WithArg = Annotated[
    tuple[str, ...], Meta(description="values of its config for this run, as KEY=VALUE", max_length=100)
]


class NewTaskArgs(Args, frozen=True):
    """A new task."""

    task: TaskArg
    description: Annotated[
        str,
        Meta(description="what it is for: the bot writes it, and you confirm it; empty: an example", max_length=20_000),
    ] = ""


class TaskArgs(Args, frozen=True):
    """A task."""

    task: TaskArg


class RunTaskArgs(Args, frozen=True):
    """A task, and what one run of it should do."""

    task: TaskArg
    description: DescriptionArg = ""
    values: WithArg = msgspec.field(default=(), name="with")


class RunTaskInChatArgs(RunTaskArgs, frozen=True):
    """The same from a shell."""

    chat: Annotated[
        str, Meta(description="the chat of the terminal in which it runs (default: tasks)", max_length=200)
    ] = ""


class RunArgs(Args, frozen=True):
    """A run."""

    run: RunArg


class AnyRunArgs(Args, frozen=True):
    """A run, or all of them."""

    run: Annotated[str, Meta(description="the run; default: all that are under way", max_length=32)] = ""


class RerunArgs(Args, frozen=True):
    """A run to run again in part."""

    run: RunArg
    start: Annotated[str, Meta(description="the node with which it begins again", min_length=1, max_length=64)] = (
        msgspec.field(name="from")
    )
    values: WithArg = msgspec.field(default=(), name="with")


class TaskRow(Struct, frozen=True):
    """A task of the home.

    Attributes:
        task: its name.
        title: what people see.
        nodes: how many nodes it has; 0 if it cannot be read.
        role: who may run it; empty if it cannot be read.
        problem: what is wrong with it; empty if it can be read.
    """

    task: str
    title: str
    nodes: int
    role: str
    problem: str = ""

    @property
    def variant(self) -> str:
        """The variant of its sentence."""
        return "broken" if self.problem else "ready"


class RunRow(Struct, frozen=True):
    """A run, in a list.

    Attributes:
        run: its name.
        task: the name of its task.
        session: the chat in which it runs.
        status: its state.
        done: how many nodes have succeeded.
        nodes: how many nodes it has.
        changed: when it changed last.
    """

    run: str
    task: str
    session: str
    status: Status
    done: int
    nodes: int
    changed: IsoTime

    def values(self, caller: Caller) -> dict[str, str]:
        """Return the formatted values of its sentence."""
        return {"status": caller.result_texts.say(f"task_status_{self.status}"), "mark": MARKS[self.status]}


class TaskList(Struct, frozen=True):
    """The tasks of the home, and the runs that are under way or ended last.

    Attributes:
        tasks: by name.
        runs: those under way last.
    """

    tasks: tuple[TaskRow, ...]
    runs: tuple[RunRow, ...]

    def describe(self, caller: Caller) -> str:
        """Write a line for each."""
        texts = caller.result_texts
        lines = [_say_row(row, texts) for row in self.tasks] or [texts.say_on(caller.surface, "TaskRow.none")]
        return "\n".join([*lines, *(_say_run(row, caller) for row in self.runs)])


def _say_row(row: TaskRow, texts: Texts) -> str:
    return texts.say(f"TaskRow.{row.variant}", **msgspec.structs.asdict(row))


def _say_run(row: RunRow, caller: Caller) -> str:
    values = {**msgspec.structs.asdict(row), **row.values(caller)}
    return caller.result_texts.say(type(row).__name__, **values)


class NodeReport(Struct, frozen=True):
    """A node of a run.

    Attributes:
        node: its name.
        title: what people see.
        status: its state.
        attempt: the number of its newest attempt; 0 before the first.
        after: the nodes that it waits for.
        until: the moment for which it waits; empty for none.
        approval: the question that it waits for, or that was answered.
        reason: why it is so, in words; empty for nothing.
    """

    node: str
    title: str
    status: Status
    attempt: int
    after: tuple[str, ...]
    until: str = ""
    approval: str = ""
    reason: str = ""


class RuleReport(Struct, frozen=True):
    """What became of a rule of the harness.

    Attributes:
        rule: its id.
        text: its step.
        place: its file and line.
        status: `satisfied`, `violated` or `pending`.
        cites: entries of the chat, as ranges of their first and last id.
    """

    rule: str
    text: str
    place: str
    status: str
    cites: tuple[tuple[int, ...], ...] = ()


class RunReport(Struct, frozen=True):
    """A run, with its nodes and verdicts.

    Attributes:
        run: its name.
        task: the name of its task.
        title: what people see.
        session: the chat in which it runs.
        status: its state.
        revision: each change has another one.
        changed: when it changed last.
        nodes: in the order of the schema.
        reason: why it is in this state, in words; empty for nothing.
        source: the run that it runs again in part; empty for none.
        tokens: what its attempts used.
        verdicts: how many rules are satisfied, violated and pending, once it has ended.
        rules: those of the harness, once it has ended.
    """

    run: str
    task: str
    title: str
    session: str
    status: Status
    revision: int
    changed: IsoTime
    nodes: tuple[NodeReport, ...]
    reason: str = ""
    source: str = ""
    tokens: int = 0
    verdicts: VerdictCounts = VerdictCounts()
    rules: tuple[RuleReport, ...] = ()

    def describe(self, caller: Caller) -> str:
        """Write the run, its nodes in order, and the rules with the entries on which their verdicts rest."""
        texts = caller.result_texts
        nodes = [
            format_node(node.title, node.status, texts, approval=node.approval, until=node.until, reason=node.reason)
            for node in self.nodes
        ]
        return "\n".join([self._head(caller), *nodes, *self._tail(caller)])

    def _head(self, caller: Caller) -> str:
        texts = caller.result_texts
        status = texts.say(f"task_status_{self.status}")
        return texts.say("task_progress", title=self.title, run=self.run, status=status, mark=MARKS[self.status])

    def _tail(self, caller: Caller) -> list[str]:
        texts, counts = caller.result_texts, self.verdicts
        lines = [self.reason] if self.reason else []
        if self.source:
            lines.append(texts.say("task_of_run", source=self.source))
        if self.rules:
            lines.append(texts.say("task_verdicts", satisfied=counts.satisfied, violated=counts.violated))
            lines += [_format_rule(rule, caller) for rule in self.rules]
        return lines


class RunGraph(RunReport, frozen=True):
    """A run as a graph: what waits for what."""

    def describe(self, caller: Caller) -> str:
        """Draw each node below those that it waits for, further to the right."""
        from bubbot.features.tasks.drawing import find_depths  # few ask for a graph

        depths = find_depths({node.node: node.after for node in self.nodes})
        lines = []
        for node in sorted(self.nodes, key=lambda each: depths[each.node]):
            arrow = f"{', '.join(node.after)} → " if node.after else ""
            lines.append(f"{'  ' * depths[node.node]}{MARKS[node.status]} {arrow}{node.node}")
        return "\n".join([self._head(caller), *lines])


def _format_rule(rule: RuleReport, caller: Caller) -> str:
    mark = {"satisfied": "✓", "violated": "✗"}.get(rule.status, "?")
    cites = ", ".join(f"#{low}" if low == high else f"#{low}-#{high}" for low, high in rule.cites)
    name = "task_rule_cited" if cites else "task_rule"
    return caller.result_texts.say(name, mark=mark, text=rule.text, place=rule.place, cites=cites)


class RunsReport(Struct, frozen=True):
    """Runs side by side.

    Attributes:
        runs: the one that was asked for, or all that are under way.
    """

    runs: tuple[RunReport, ...]

    def describe(self, caller: Caller) -> str:
        """Write one after the other."""
        if not self.runs:
            return caller.result_texts.say("RunRow.none")
        return "\n\n".join(run.describe(caller) for run in self.runs)

    @property
    def exit_code(self) -> int:
        """1 if one of them ended otherwise than it should."""
        return int(any(run.status in ENDED and run.status != "succeeded" for run in self.runs))


class RunChange(Struct, frozen=True):
    """A run that was begun, or changed.

    Attributes:
        run: its name; empty if none began.
        task: the name of its task.
        status: its state.
        text: what the chat is told; empty if a message of its own says it.
    """

    run: str
    task: str
    status: Status
    text: str = ""

    @property
    def exit_code(self) -> int:
        """1 if it ended otherwise than it should."""
        return int(self.status in ENDED and self.status != "succeeded")

    def describe(self, caller: Caller) -> str:  # noqa: ARG002 - as those of other results
        """Return the text."""
        return self.text


class TaskProblem(Struct, frozen=True):
    """What is wrong with a task.

    Attributes:
        where: a path within `task.toml`, a key of the config, or a file with a line.
        message: what is wrong, and the fix.
        is_warning: it can run in spite of it.
    """

    where: str
    message: str
    is_warning: bool


class TaskChecked(Struct, frozen=True):
    """What is wrong with a task.

    Attributes:
        task: its name.
        nodes: how many nodes it has.
        rules: how many rules its harness has.
        problems: what keeps it from running first.
    """

    task: str
    nodes: int
    rules: int
    problems: tuple[TaskProblem, ...]

    @property
    def exit_code(self) -> int:
        """1 if it cannot run."""
        return int(any(not problem.is_warning for problem in self.problems))

    def describe(self, caller: Caller) -> str:
        """Write a line for each problem."""
        texts = caller.result_texts
        lines = [
            texts.say("task_warning" if each.is_warning else "task_error", where=each.where, message=each.message)
            for each in self.problems
        ]
        if self.exit_code:
            return "\n".join([*lines, texts.say("TaskChecked.broken", task=self.task)])
        nodes, rules = texts.say("task_steps", count=self.nodes), texts.say("task_rules", count=self.rules)
        return "\n".join([*lines, texts.say("TaskChecked", task=self.task, nodes=nodes, rules=rules)])


class TaskWritten(Struct, frozen=True):
    """A task that was written, or that a person has to confirm first.

    Attributes:
        task: its name.
        question: the card that asks for it; empty if it is written.
        files: its files by path.
        problem: why nothing was written; empty otherwise.
    """

    task: str
    question: str = ""
    files: tuple[str, ...] = ()
    problem: str = ""

    is_text: ClassVar = True

    @property
    def is_error(self) -> bool:
        """True if nothing was written."""
        return bool(self.problem)

    @property
    def exit_code(self) -> int:
        """1 if nothing was written."""
        return int(self.is_error)

    def describe(self, caller: Caller) -> str:
        """Say which files there are, and what has to be answered first."""
        name = "TaskWritten.asked" if self.question else "TaskWritten.written"
        files = ", ".join(self.files)
        return self.problem or caller.result_texts.say_on(
            caller.surface, name, task=self.task, question=self.question, files=files
        )

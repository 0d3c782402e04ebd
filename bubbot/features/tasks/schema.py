"""The schema of a task, `task.toml`: its nodes, what each waits for, is shown, may use and has to make."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

from bubbot.features.tasks.contracts import find_contract_problems
from bubbot.features.tasks.sources import DefinitionInvalid, read_json, read_toml
from bubbot.formatting import show_value
from bubbot.toml_tables import Problem, TableReader, join_path

SCHEMA_FILE = "task.toml"
NODE_NAME = r"[a-z][a-z0-9_-]{0,31}"
"""The form of the name of a node or a task, as a regular expression."""
NODE_NAME_FORM = "1 to 32 small letters, digits, _ and -, a letter first"
MAX_NODES = 1_000
MAX_BACKOFF_SECONDS = 3_600
"""The longest pause before a further attempt: the pauses double up to it."""
DAY_SECONDS = 86_400

Shown: TypeAlias = Literal["schema", "config", "description", "harness", "artifacts"]
"""What a node can be shown of its task: the four sources, and the artifacts of the nodes that it waits for."""
ALL_SHOWN: tuple[Shown, ...] = ("schema", "config", "description", "harness", "artifacts")
NodeName: TypeAlias = Annotated[
    str, Meta(pattern=rf"^{NODE_NAME}\Z", extra={"form": f"the name of a node: {NODE_NAME_FORM}"})
]
Title: TypeAlias = Annotated[str, Meta(max_length=200)]
Words: TypeAlias = Annotated[str, Meta(max_length=64_000)]
Label: TypeAlias = Annotated[
    str, Meta(max_length=200, pattern=r"^\S*\Z", extra={"form": "a name of at most 200 characters without spaces"})
]
Pattern: TypeAlias = Annotated[
    str, Meta(max_length=200, pattern=r"^[\w.*?-]+\Z", extra={"form": "the name of a tool, or a pattern such as web.*"})
]
Allowed: TypeAlias = Annotated[
    str,
    Meta(
        max_length=300,
        pattern=r"^[\w.-]+(:\S+)?\Z",
        extra={
            "form": "the name of a tool, with a colon and what it acts on if that is not all, such as web.fetch:example.org"
        },
    ),
]
Tokens: TypeAlias = Annotated[int, Meta(ge=1, le=100_000_000)]
ReadContract: TypeAlias = Callable[[str], str]
"""Return the text of a JSON file by its path within the task's folder. Raise `DefinitionInvalid`."""


def _length(least: int, most: int, description: str | None = None) -> Meta:
    """Mark a number of seconds that may be written as a length of time, too."""
    form = f'a number of seconds from {least} to {most}, or a length such as "90m" or "2h"'
    return Meta(ge=least, le=most, description=description, extra={"form": form, "read": _read_length})


def _read_length(text: str) -> int | str:
    """Return the seconds of a length of time such as `90m`; return anything else unchanged."""
    from bubbot.times.phrases import parse_duration  # compiled when a time is read
    from bubbot.times.refusal import TimeRefused

    try:
        return parse_duration(text)
    except TimeRefused:
        return text


class TaskNode(Struct, frozen=True, kw_only=True):
    """A node of a task: a conversation of a model that ends in an artifact, or a gate, which is a question for people."""

    title: Annotated[Title, Meta(description="What people see; default: its name.")] = ""
    after: Annotated[
        tuple[NodeName, ...], Meta(max_length=MAX_NODES, description="The nodes that have to succeed before it begins.")
    ] = ()
    prompt: Annotated[
        Words, Meta(description="What the model has to do; `{key}` stands for a value of the config.")
    ] = ""
    confirm: Annotated[Words, Meta(description="The question of a gate; `{key}` stands for a value of the config.")] = (
        ""
    )
    agent: Annotated[Label, Meta(description="The agent that does it; default: that of the chat.")] = ""
    model: Annotated[Label, Meta(description="The model; default: that of the agent.")] = ""
    strategy: Annotated[Label, Meta(description="The context strategy; default: that of the agent.")] = ""
    tools: Annotated[
        tuple[Pattern, ...],
        Meta(max_length=200, description="The tools that it may use, names or patterns such as `web.*`."),
    ] = ()
    allow: Annotated[
        tuple[Allowed, ...],
        Meta(
            max_length=100,
            description="What its calls may do without asking: a tool, and what it acts on, such as `web.fetch:example.org`. Nobody may do more by it than the person may for whom the task runs.",
        ),
    ] = ()
    steps: Annotated[int, Meta(ge=1, le=1_000, description="Model calls of one attempt.")] = 10
    tokens: Annotated[Tokens, Meta(description="Tokens that one attempt may read and write.")] = 50_000
    timeout: Annotated[int, _length(1, DAY_SECONDS, "Seconds that one attempt may take.")] = 600
    retries: Annotated[int, Meta(ge=0, le=10, description="Further attempts after a failure.")] = 2
    backoff: Annotated[
        int,
        _length(0, MAX_BACKOFF_SECONDS, "Seconds before the first further attempt; they double each time, up to 1 h."),
    ] = 30
    repairs: Annotated[int, Meta(ge=0, le=10, description="How often an invalid artifact goes back to the model.")] = 2
    shown: Annotated[
        tuple[Shown, ...], Meta(max_length=5, description="What it is shown of the task; default: all.")
    ] = ALL_SHOWN
    view_tokens: Annotated[
        int, Meta(ge=100, le=1_000_000, description="Estimated tokens that it is shown of the task at most.")
    ] = 8_000
    artifact: Annotated[
        dict[str, Any] | None,
        Meta(
            description="The contract of its artifact: a JSON Schema, or the path of a JSON file of the task; default: any text."
        ),
    ] = None
    by: Annotated[
        Literal["asker", "owner"], Meta(description="Who answers a gate: the person who runs the task, or an owner.")
    ] = "asker"
    hours: Annotated[float, Meta(gt=0, le=720, description="Hours that a gate waits; then the answer is no.")] = 24.0

    @property
    def is_gate(self) -> bool:
        """True if people answer it."""
        return bool(self.confirm)


class TaskSchema(Struct, frozen=True, kw_only=True):
    """What `task.toml` says."""

    title: Annotated[Title, Meta(description="What people see; default: the name of the folder.")] = ""
    description: Annotated[Words, Meta(description="What the task is for; nodes are shown it.")] = ""
    result: Annotated[
        str,
        Meta(
            description="The node whose artifact is the answer of a run; default: the only node that none comes after."
        ),
    ] = ""
    parallel: Annotated[int, Meta(ge=1, le=16, description="Nodes that run at the same time.")] = 3
    tokens: Annotated[Tokens | None, Meta(description="Tokens of all nodes together; default: no limit.")] = None
    timeout: Annotated[
        Annotated[int, _length(1, 30 * DAY_SECONDS)] | None,
        Meta(description="Seconds of the whole run, without the time that gates wait; default: no limit."),
    ] = None
    progress: Annotated[
        Literal["message", "none"], Meta(description="`message`: a message in the chat says how far the run is.")
    ] = "message"
    role: Annotated[Literal["member", "admin", "owner"], Meta(description="Who may run it.")] = "member"
    nodes: Annotated[Mapping[str, TaskNode], Meta(description="The nodes by name, in the order of the file.")]


def refuse_contract(path: str) -> str:
    """Refuse a contract in a file: there is no folder. Raise `DefinitionInvalid`."""
    raise DefinitionInvalid([Problem(path, "there is no folder to read it from: write the JSON Schema as a table")])


def parse_schema(text: str, read_contract: ReadContract = refuse_contract) -> TaskSchema:
    """Read `task.toml`. Contracts in files are read, so that the schema holds them all.

    Raises:
        DefinitionInvalid: with all problems, in the order of the file: unknown keys, wrong values, nodes that have not exactly
            one of `prompt` and `confirm`, contracts that are no JSON Schema.
    """
    reader = _SchemaReader(read_contract)
    schema = reader.read_schema(read_toml(text, SCHEMA_FILE))
    if schema is None or reader.problems:
        raise DefinitionInvalid(reader.problems)
    return schema


class _SchemaReader(TableReader):
    """Reads one schema."""

    def __init__(self, read_contract: ReadContract) -> None:
        super().__init__()
        self._read_contract = read_contract
        self._contracts: dict[str, list[str]] = {}

    def read_schema(self, table: Mapping[str, Any]) -> TaskSchema | None:
        """Return the schema; None if something is wrong with it."""
        values = self.read(TaskSchema, table, elsewhere=("nodes",))
        nodes = table.get("nodes")
        if nodes is None or nodes == {}:
            self.report("nodes", "a task needs at least one node: write a table [nodes.NAME] with a prompt")
        elif not isinstance(nodes, dict):
            self.report("nodes", f"it is {show_value(nodes)}, and must be tables [nodes.NAME]")
        elif len(nodes) > MAX_NODES:
            self.report("nodes", f"there are {len(nodes)} nodes, and there may be {MAX_NODES}: split the task")
        else:
            values["nodes"] = {name: node for name, each in nodes.items() if (node := self._read_node(name, each))}
        return None if self.problems else TaskSchema(**values)

    def _read_node(self, name: str, table: Any) -> TaskNode | None:
        path = join_path("nodes", name)
        if not re.fullmatch(NODE_NAME, name):
            self.report(path, f"{show_value(name)} is not the name of a node: write {NODE_NAME_FORM}")
        if not isinstance(table, dict):
            self.report(path, f"it is {show_value(table)}, and must be a table [{path}]")
            return None
        count = len(self.problems)
        values = self.read(TaskNode, table, path, elsewhere=("artifact",))
        if "artifact" in table:
            values["artifact"] = self._read_artifact(f"{path}.artifact", table["artifact"])
        if len(self.problems) > count:
            return None
        node = TaskNode(**values)
        has_both = node.prompt and node.confirm
        if has_both or not (node.prompt + node.confirm).strip():
            has = "both prompt and confirm" if has_both else "neither prompt nor confirm"
            self.report(
                path, f"it has {has}: write exactly one, prompt for a model or confirm for a question to people"
            )
        return node

    def _read_artifact(self, path: str, value: Any) -> Any:
        """Return a contract, from its file if a path is given."""
        source = path
        if isinstance(value, str):
            source = f"{path} ({value})" if value else path
            try:
                value = read_json(self._read_contract(value), value)
            except DefinitionInvalid as error:
                self.problems += [Problem(path, f"{each.where}: {each.message}") for each in error.problems]
                return None
        # Nodes often share a contract; to check one takes a millisecond.
        key = repr(value)
        if key not in self._contracts:
            self._contracts[key] = find_contract_problems(value)
        self.problems += [Problem(source, each) for each in self._contracts[key]]
        return value

"""The schema of a task, `task.toml`: its nodes, what each waits for, is shown, may use and has to make."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from bubbot.features.tasks.contracts import find_contract_problems
from bubbot.features.tasks.sources import DefinitionInvalid, Problem, list_words, read_json, read_toml
from bubbot.formatting import did_you_mean, show_value

SCHEMA_FILE = "task.toml"
NODE_NAME = r"[a-z][a-z0-9_-]{0,31}"
"""The form of the name of a node or a task, as a regular expression."""
NODE_NAME_FORM = "1 to 32 small letters, digits, _ and -, a letter first"
MAX_NODES = 1_000
MAX_BACKOFF_SECONDS = 3_600
"""The longest pause before a further attempt: the pauses double up to it."""
DAY_SECONDS = 86_400
_LENGTH_FORM = 'a number of seconds from {ge} to {le}, or a length such as "90m" or "2h"'

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
    timeout: Annotated[int, Meta(ge=1, le=DAY_SECONDS, description="Seconds that one attempt may take.")] = 600
    retries: Annotated[int, Meta(ge=0, le=10, description="Further attempts after a failure.")] = 2
    backoff: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_BACKOFF_SECONDS,
            description="Seconds before the first further attempt; they double each time, up to 1 h.",
        ),
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
        Annotated[int, Meta(ge=1, le=30 * DAY_SECONDS)] | None,
        Meta(description="Seconds of the whole run, without the time that gates wait; default: no limit."),
    ] = None
    progress: Annotated[
        Literal["message", "none"], Meta(description="`message`: a message in the chat says how far the run is.")
    ] = "message"
    role: Annotated[Literal["member", "admin", "owner"], Meta(description="Who may run it.")] = "member"
    nodes: Annotated[Mapping[str, TaskNode], Meta(description="The nodes by name, in the order of the file.")]


_LENGTHS = {"timeout", "backoff"}
"""Fields that also take a length of time as people write it."""


def refuse_contract(path: str) -> str:
    """Refuse a contract in a file: there is no folder. Raise `DefinitionInvalid`."""
    raise DefinitionInvalid([Problem(path, "there is no folder to read it from: write the JSON Schema as a table")])


def parse_schema(text: str, read_contract: ReadContract = refuse_contract) -> TaskSchema:
    """Read `task.toml`. Contracts in files are read, so that the schema holds them all.

    Raises:
        DefinitionInvalid: with all problems, in the order of the file: unknown keys, wrong values, nodes that have not exactly
            one of `prompt` and `confirm`, contracts that are no JSON Schema.
    """
    reader = _Reader(read_contract)
    schema = reader.read_schema(read_toml(text, SCHEMA_FILE))
    if schema is None or reader.problems:
        raise DefinitionInvalid(reader.problems)
    return schema


class _Reader:
    """Reads one schema, and collects what is wrong with it."""

    def __init__(self, read_contract: ReadContract) -> None:
        self.problems: list[Problem] = []
        self._read_contract = read_contract
        self._contracts: dict[str, list[str]] = {}

    def read_schema(self, table: Mapping[str, Any]) -> TaskSchema | None:
        values = self._read_fields(TaskSchema, table, "")
        nodes = table.get("nodes")
        if nodes is None or nodes == {}:
            self._report("nodes", "a task needs at least one node: write a table [nodes.NAME] with a prompt")
        elif not isinstance(nodes, dict):
            self._report("nodes", f"it is {show_value(nodes)}, and must be tables [nodes.NAME]")
        elif len(nodes) > MAX_NODES:
            self._report("nodes", f"there are {len(nodes)} nodes, and there may be {MAX_NODES}: split the task")
        else:
            values["nodes"] = {name: node for name, each in nodes.items() if (node := self._read_node(name, each))}
        return None if self.problems else TaskSchema(**values)

    def _read_node(self, name: str, table: Any) -> TaskNode | None:
        path = _name_path("nodes.", name)
        if not re.fullmatch(NODE_NAME, name):
            self._report(path, f"{show_value(name)} is not the name of a node: write {NODE_NAME_FORM}")
        if not isinstance(table, dict):
            self._report(path, f"it is {show_value(table)}, and must be a table [{path}]")
            return None
        count = len(self.problems)
        values = self._read_fields(TaskNode, table, f"{path}.")
        if "artifact" in table:
            values["artifact"] = self._read_artifact(f"{path}.artifact", table["artifact"])
        if len(self.problems) > count:
            return None
        node = TaskNode(**values)
        has_both = node.prompt and node.confirm
        if has_both or not (node.prompt + node.confirm).strip():
            has = "both prompt and confirm" if has_both else "neither prompt nor confirm"
            self._report(
                path, f"it has {has}: write exactly one, prompt for a model or confirm for a question to people"
            )
        return node

    def _read_fields(self, kind: type[Struct], table: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        """Return the values of a table that are right; `nodes` and `artifact` are read elsewhere."""
        fields = _list_types(kind)
        values = {}
        for key, value in table.items():
            path = _name_path(prefix, key)
            if key not in fields:
                self._report(
                    path,
                    f"unknown key{did_you_mean(key, fields, otherwise=f'; there are: {list_words(fields, 30)}', before='; ')}",
                )
            elif key not in ("nodes", "artifact"):
                length = _read_length(value) if key in _LENGTHS else value
                try:
                    values[key] = msgspec.convert(length, fields[key])
                except msgspec.ValidationError:
                    form = _LENGTH_FORM if key in _LENGTHS else ""
                    self.problems += _explain(path, value, fields[key], form)
        return values

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

    def _report(self, path: str, message: str) -> None:
        self.problems.append(Problem(path, message))


@cache
def _list_types(kind: type[Struct]) -> Mapping[str, Any]:
    """Return the types of the fields by name. To find them takes longer than to read a node, so it is done once."""
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _read_length(value: Any) -> Any:
    """Return the seconds of a length of time such as `90m`; return anything else unchanged."""
    if not isinstance(value, str):
        return value
    from bubbot.times.phrases import parse_duration  # compiled when a time is read
    from bubbot.times.refusal import TimeRefused

    try:
        return parse_duration(value)
    except TimeRefused:
        return value


def _explain(path: str, value: Any, annotation: Any, form: str = "") -> list[Problem]:
    """Say what is wrong with a value, by the declaration of its field; of a list, with each item."""
    if (item_kind := _item_kind(annotation)) is not None:
        if not isinstance(value, list):
            return [Problem(path, f"it is {show_value(value)}, and must be a list, in brackets")]
        wrong = []
        for index, item in enumerate(value):
            try:
                msgspec.convert(item, item_kind)
            except msgspec.ValidationError:
                wrong += _explain(f"{path}[{index}]", item, item_kind)
        return wrong or [Problem(path, f"it has {len(value)} items, which are too many: remove some")]
    kind, form = _leaf_kind(annotation, form)
    hint = ""
    match kind:
        case msgspec.inspect.IntType():
            form = (form or "a whole number from {ge} to {le}").format(ge=kind.ge, le=kind.le)
        case msgspec.inspect.FloatType():
            form = f"a number more than {kind.gt} and at most {kind.le}"
        case msgspec.inspect.StrType():
            if isinstance(value, str) and kind.max_length is not None and len(value) > kind.max_length:
                return [Problem(path, f"it has {len(value)} characters, and may have {kind.max_length}: shorten it")]
            form = form or "a text in quotes"
        case msgspec.inspect.LiteralType():
            choices = [str(each) for each in get_args(_without_marks(annotation))]
            form = f"one of {', '.join(choices)}"
            hint = did_you_mean(value, choices, before="; ") if isinstance(value, str) else ""
    return [Problem(path, f"it is {show_value(value)}, and must be {form}{hint}")]


def _item_kind(annotation: Any) -> Any:
    """Return the type of the items of a list; None for any other type."""
    kind = _without_marks(annotation)
    return get_args(kind)[0] if get_origin(kind) is tuple else None


def _without_marks(annotation: Any) -> Any:
    while hasattr(annotation, "__metadata__"):
        annotation = get_args(annotation)[0]
    return annotation


def _leaf_kind(annotation: Any, form: str) -> tuple[msgspec.inspect.Type, str]:
    """Return a type without its marks, and what it takes in words: as given, or as declared."""
    kind = msgspec.inspect.type_info(annotation)
    while isinstance(kind, msgspec.inspect.Metadata | msgspec.inspect.UnionType):
        if isinstance(kind, msgspec.inspect.UnionType):  # TOML has no null
            kind = next(each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType))
        else:
            form, kind = form or str((kind.extra or {}).get("form", "")), kind.type
    return kind, form


def _name_path(prefix: str, key: str) -> str:
    """Return the path of a key; one that is long or has other characters is quoted."""
    return prefix + (key if re.fullmatch(r"[\w-]{1,64}", key) else show_value(key))

"""The tool port: what a model may call and a person may type as a comma command."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, ClassVar, TypeAlias, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError

from bubbot.errors import ConfigError, ToolError, ToolRetry
from bubbot.ports.channel import Role
from bubbot.ports.model import ToolSpec
from bubbot.ports.turn import Turn


class ToolArgs(BaseModel):
    """Base of argument models. Unknown arguments are refused, so that a misspelt one is not ignored.

    `positional`: the fields that the plain words of a comma command fill, the last one taking all that are
    left; where it is empty, the required fields, or else the first one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    positional: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True, slots=True)
class RerunModel:
    """What a command returns when the model is to answer the last message again."""

    text: str = ""


ToolOutput: TypeAlias = str | RerunModel
A = TypeVar("A", bound=ToolArgs)
Handler: TypeAlias = Callable[[Turn, A], Awaitable[ToolOutput]]


@dataclass(frozen=True, slots=True)
class Tool:
    """A named function with typed arguments.

    `name` is dotted (`tape.search`). `commands` are further names people may type. `for_model`: offered to
    models; otherwise it is a command only. `role`: the least role that may use it.
    """

    name: str
    summary: str
    args: type[ToolArgs]
    run: Handler[Any]
    commands: tuple[str, ...] = ()
    for_model: bool = True
    role: Role = Role.MEMBER

    @property
    def provider_name(self) -> str:
        """The name without dots, which providers do not take."""
        return self.name.replace(".", "_")

    def spec(self) -> ToolSpec:
        """The tool as a provider sees it."""
        schema = self.args.model_json_schema()
        for ours in ("title", "description"):  # what the class says is for us; every request would carry it
            schema.pop(ours, None)
        for field in schema.get("properties", {}).values():
            field.pop("title", None)
        return ToolSpec(self.provider_name, self.summary, schema)

    def parse(self, arguments: str) -> ToolArgs:
        """The arguments a model wrote, checked. Raises `ToolRetry` with what to mend."""
        try:
            values = json.loads(arguments) if arguments.strip() else {}
        except ValueError as error:
            raise ToolRetry(f"the arguments of {self.name} are not JSON: {error}") from error
        if not isinstance(values, dict):
            raise ToolRetry(f"the arguments of {self.name} have to be a JSON object, such as {{}}")
        return self.checked(values)

    def checked(self, values: dict[str, Any]) -> ToolArgs:
        """Checked arguments. Raises `ToolRetry` naming each field, what was given and what is wanted."""
        try:
            return self.args.model_validate(values)
        except ValidationError as error:
            raise ToolRetry(f"{self.name}: {'; '.join(_problem(item, self) for item in error.errors())}") from error


def _problem(item: Any, tool: Tool) -> str:
    name = ".".join(map(str, item["loc"])) or "the arguments"
    if item["type"] == "missing":
        return f"{name} is missing"
    if item["type"] == "extra_forbidden":
        return f"there is no {name}; it takes {', '.join(tool.args.model_fields) or 'nothing'}"
    shown = repr(item["input"])
    return f"{name} is {shown if len(shown) <= 80 else shown[:77] + '...'}: {item['msg'].lower()}"


def tool(
    name: str,
    *,
    commands: Iterable[str] = (),
    for_model: bool = True,
    role: Role = Role.MEMBER,
) -> Callable[[Handler[A]], Tool]:
    """Makes a `Tool` of `async def f(turn: Turn, args: SomeArgs) -> str`; its docstring is the summary.

    Raises `ConfigError` where the function's second parameter is not annotated with a `ToolArgs` class or the
    docstring is missing: both are what the model reads.
    """

    def made(handler: Handler[A]) -> Tool:
        args = get_type_hints(handler).get("args")
        if not (isinstance(args, type) and issubclass(args, ToolArgs)):
            raise ConfigError(f"the tool {name} needs a second parameter `args` annotated with a ToolArgs class")
        summary = " ".join((handler.__doc__ or "").split())
        if not summary:
            raise ConfigError(f"the tool {name} needs a docstring: it is what the model reads")
        return Tool(name, summary, args, handler, tuple(commands), for_model, role)

    return made


class NoArgs(ToolArgs):
    """For tools that take nothing."""


class Toolbox:
    """The tools of a deployment, by every name they answer to. Raises `ConfigError` where two share a name."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = tuple(tools)
        specs = {one.name: one.spec() for one in self._tools if one.for_model}
        self._specs = {role: tuple([specs[one.name] for one in self.for_model(role)]) for role in Role}
        self._names: dict[str, Tool] = {}
        for one in self._tools:
            for name in dict.fromkeys((one.name, one.provider_name, *one.commands)):
                if name in self._names:
                    raise ConfigError(f"two tools answer to {name}: {self._names[name].name} and {one.name}")
                self._names[name] = one

    def __iter__(self) -> Iterator[Tool]:
        """The tools in the order they were given."""
        return iter(self._tools)

    def find(self, name: str) -> Tool:
        """The tool of this name, with dots or underscores. Raises `ToolError` with the closest ones."""
        found = self._names.get(name)
        if found is None:
            close = self.near(name)
            hint = f"did you mean {' or '.join(close)}?" if close else ",help lists them all."
            raise ToolError(f"there is no {name}; {hint}")
        return found

    def near(self, name: str) -> list[str]:
        """Names that look like this one, closest first."""
        return get_close_matches(name, self._names, n=3, cutoff=0.5)

    def for_model(self, role: Role) -> tuple[Tool, ...]:
        """The tools a model may call on behalf of this role."""
        return tuple(one for one in self._tools if one.for_model and role.at_least(one.role))

    def specs(self, role: Role) -> tuple[ToolSpec, ...]:
        """`for_model` as a provider sees it; made once, since a schema takes a millisecond."""
        return self._specs[role]

    def for_person(self, role: Role) -> tuple[Tool, ...]:
        """The commands this role may type."""
        return tuple(one for one in self._tools if role.at_least(one.role))

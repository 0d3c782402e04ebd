"""The tool port: functions that a model may call and a person may type as a comma command."""

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any, TypeAlias, TypeVar, get_type_hints

from msgspec import Struct

from bubbot.arguments.errors import describe_argument
from bubbot.arguments.fields import (
    Args,
    ArgumentField,
    ArgumentProblem,
    JsonArgs,
    build_schema,
    drop_joining_words,
    dump_args,
    fields_of,
    fields_of_schema,
    form_fields,
    parse_args,
    read_json_texts,
    require_args,
    write_given,
)
from bubbot.errors import ConfigError, ToolError, ToolRetry
from bubbot.json_schema import find_misfits
from bubbot.ports.channel import Role
from bubbot.ports.model import ToolSpec
from bubbot.ports.turn import Receiver, Turn
from bubbot.tape.entry import JsonObject, canonical
from bubbot.tape.provenance import Source
from bubbot.texts import Texts


class RerunModel(Struct, frozen=True):
    """The result of a command that makes the model answer the last message again."""

    text: str = ""


class HelpTopic(StrEnum):
    """A part of the list of commands."""

    TALK = "talk"
    MEMORY = "memory"
    TIMES = "times"
    HISTORY = "history"
    SETTINGS = "settings"
    ADMIN = "admin"
    OTHER = "other"


class CommandPlace(StrEnum):
    """The chats in which a command may be typed."""

    ANYWHERE = "anywhere"
    DIRECT = "direct"
    TERMINAL = "terminal"


class CommandHelp(Struct, frozen=True):
    """What people are told of a command.

    Attributes:
        topic: where it stands in the list of commands.
        brief: its meaning in at most 40 characters, for lists and menus; empty: the beginning of its summary.
        examples: how it is typed, with the comma.
        in_menu: platforms offer it in their menus of commands. A menu has at most 12.
        place: the chats in which it may be typed.
        words: other words by which people look for it, such as `cancel`; who types one is shown this command.
    """

    topic: HelpTopic = HelpTopic.OTHER
    brief: str = ""
    examples: tuple[str, ...] = ()
    in_menu: bool = False
    place: CommandPlace = CommandPlace.ANYWHERE
    words: tuple[str, ...] = ()


class EffectKind(StrEnum):
    """What a tool does.

    `read`: it only answers. `inside`: it changes what the tape or the workspace can undo. `outside`: it acts on a program,
    the network or another chat.
    """

    READ = "read"
    INSIDE = "inside"
    OUTSIDE = "outside"


class Repeat(StrEnum):
    """What may be done after a crash in the middle of a call.

    `key`: run it again under the same key. `probe`: ask it whether it happened. `never`: neither.
    """

    KEY = "key"
    PROBE = "probe"
    NEVER = "never"


class Power(StrEnum):
    """What an inside effect has power over, if a person has to say more than that the tool may be used.

    `memory`: it clears memory, or drops lines of it. `jobs`: it adds jobs to its own chat, or runs them. `stop_jobs`: it
    removes, pauses or edits them, so that what a person relies on may not happen. `administration`: it changes
    who may do what, the configuration, skills, or the jobs of other chats. `folders`: it changes files of a person, which
    other programs may obey before anybody takes that back.
    """

    NONE = ""
    MEMORY = "memory"
    JOBS = "jobs"
    STOP_JOBS = "stop_jobs"
    FOLDERS = "folders"
    ADMINISTRATION = "administration"


class Effect(Struct, frozen=True):
    """What a tool declares about its calls. Undeclared means the worst of each, except that it does not touch the workspace.

    Attributes:
        kind: what it does.
        source: whose words its results are.
        once: what may be done after a crash in the middle of a call.
        has_network: it may reach the network or another chat; false for a program in a sandbox without one, and for what
            reads only things that are stored here.
        is_web: its results are pages of the web, or lists of them: an address in them was shown to the model, and reading
            it tells nobody anything new but which one was chosen. False for whatever may repeat what a model wrote, such as files and old entries.
        power: what an inside effect has power over.
        in_workspace: it may change files in the workspace of its chat, or run what is there. What a person allowed to run
            there is another thing once somebody else's words were written.
    """

    kind: EffectKind = EffectKind.OUTSIDE
    source: Source = Source.WORLD
    once: Repeat = Repeat.NEVER
    has_network: bool = True
    is_web: bool = False
    power: Power = Power.NONE
    in_workspace: bool = False

    def __str__(self) -> str:
        """Write it in words, for the reference."""
        match self.kind:
            case EffectKind.READ:
                return f"read, {self.source}"
            case EffectKind.INSIDE:
                return f"inside, {self.power}" if self.power else "inside"
        return f"outside, {self.once}"


READS_OWN = Effect(EffectKind.READ, Source.OWN)
"""The tool answers with the bot's own words: numbers, states, help."""
READS_PEOPLE = Effect(EffectKind.READ, Source.PEOPLE)
"""The tool answers with what people said here."""
READS_WORLD = Effect(EffectKind.READ, Source.WORLD)
"""The tool reads in the network, whose words may be anybody's."""
READS_WEB = Effect(EffectKind.READ, Source.WORLD, is_web=True)
"""The tool answers with pages of the web, or lists of them."""
READS_STORED = Effect(EffectKind.READ, Source.WORLD, has_network=False)
"""The tool answers with what is stored here, and came from anywhere, such as results of other tools."""
INSIDE = Effect(EffectKind.INSIDE, Source.PEOPLE)
"""The tool changes what the tape can undo, and answers with what people said here."""
CLEARS_MEMORY = Effect(EffectKind.INSIDE, Source.PEOPLE, power=Power.MEMORY)
"""The tool takes memory away."""
CHANGES_JOBS = Effect(EffectKind.INSIDE, Source.PEOPLE, power=Power.JOBS)
"""The tool changes what happens later in its chat."""
STOPS_JOBS = Effect(EffectKind.INSIDE, Source.PEOPLE, power=Power.STOP_JOBS)
"""The tool takes away what would happen later in its chat."""
ADMINISTERS = Effect(EffectKind.INSIDE, Source.PEOPLE, power=Power.ADMINISTRATION)
"""The tool changes who may do what, the configuration, or what happens in other chats."""


class GrantKind(StrEnum):
    """What a standing grant covers: one exact list of arguments, everything at one destination, or one pinned tool.

    A pinned tool is one of somebody else, as an owner pinned it: its value is `server/tool@digest`. It is no destination, so
    that it never counts as exactly what a call acts on.
    """

    ARGUMENTS = "arguments"
    DOMAIN = "domain"
    FOLDER = "folder"
    RECIPIENT = "recipient"
    PINNED = "pinned"


class GrantTarget(Struct, frozen=True):
    """What a call acts on, as a standing grant names it: `value` is the digest of arguments, a domain, a path, a chat or a pinned tool."""

    kind: GrantKind
    value: str

    def is_exactly(self, value: str) -> bool:
        """Return true if a grant with this value names exactly what the call acts on, not more than that."""
        return value == self.value and self.kind is not GrantKind.PINNED


class CallPlan(Struct, frozen=True):
    """What one call would do, known before it runs.

    Attributes:
        effect: of this call.
        details: exactly what would happen, for people: the command, path, address, recipient or changed lines. It is
            shown whole.
        target: what a standing grant for such calls would name; None if each call needs a yes of its own.
        address: an address that the call reads. If it stood word for word in something that the model was shown, reading
            it tells nobody anything new but which one was chosen; an address that the model composed may carry what it
            knows.
        site: the registrable domain of that address; empty without one.
        query: the words that the call sends to others to look for. As with an address, words that the model composed may
            carry what it knows.
        receiver: who gets these words, if some that the model was shown are its own: as those of a page, they tell it
            nothing but which ones were chosen.
        bits: how much the choice of its other values, such as numbers and the tool itself, may tell others, in a call that only reads.
        state: what the details rest on, such as the digest of a file: the call runs only while it is the same.
    """

    effect: Effect
    details: str
    target: GrantTarget | None = None
    address: str = ""
    site: str = ""
    query: str = ""
    state: str = ""
    bits: float = 0.0
    receiver: Receiver | None = None


ToolOutput: TypeAlias = str | RerunModel
A = TypeVar("A", bound=Args)
Handler: TypeAlias = Callable[[Turn, A], Awaitable[ToolOutput]]
PlanCall: TypeAlias = Callable[[Turn, A], Awaitable[CallPlan]]
"""Say what a call would do, without doing any of it. Raises `ToolRetry` or `ToolFailed` if it cannot be done at all."""
ProbeCall: TypeAlias = Callable[[Turn, A], Awaitable[str | None]]
"""Return the result of a call that may have happened before a crash, or None if it did not happen. `turn.effect_key` is
the key that the call had. Raises `ToolFailed` if nobody can tell."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A named function with typed arguments.

    Attributes:
        name: its dotted name (`tape.search`).
        summary: its description, for models and people.
        args: the model of its arguments.
        run: the function itself.
        commands: further names that people may type.
        for_model: offered to models; otherwise it is only a command.
        role: the least role that may use it.
        help: what people are told of it as a command.
        effect: what its calls do. Calls of one step that only read run at the same time.
        is_parallel: calls of one step run at the same time though they do more than read: it sees to their order.
        timeout: seconds a call may take; None for the limit of all tools.
        plan: says what a call would do; None if its effect and its arguments say all.
        probe: says whether a call happened; for effects that declare it.
        is_rare: its schema is the first to be left out of a list of tools that is too long; see `ToolList`.
        is_reserved: only the models of turns that are given it by name may call it (`Turn.allowed_tools`); nobody types it.
        form: the arguments that plain words fill, as `<source> to <reader> [role]`; empty: the required ones.
        stops_tasks: who types it does not wait for a turn with which a task goes on: that is stopped first.
        is_for_people: no model is shown what people type to it, nor what it answers; see `bubbot.tape.withheld`.
        schema: the JSON Schema of its arguments if `args` is `JsonArgs`; it refers to no other document. None for other tools.
    """

    name: str
    summary: str
    args: type[Args]
    run: Handler[Any]
    commands: tuple[str, ...] = ()
    for_model: bool = True
    role: Role = Role.MEMBER
    help: CommandHelp = CommandHelp()
    effect: Effect = Effect()
    is_parallel: bool = False
    timeout: float | None = None
    plan: PlanCall[Any] | None = None
    probe: ProbeCall[Any] | None = None
    is_rare: bool = False
    is_reserved: bool = False
    form: str = ""
    stops_tasks: bool = False
    is_for_people: bool = False
    schema: JsonObject | None = None

    def __post_init__(self) -> None:
        """Raise `ConfigError` if `args` is no class of arguments, such as a pydantic model of an installed package."""
        require_args(f"the tool {self.name}", self.args)
        if (self.schema is not None) is not (self.args is JsonArgs):
            raise ConfigError(f"the tool {self.name} needs both JsonArgs and a schema, or neither")

    @property
    def fields(self) -> Mapping[str, ArgumentField]:
        """Its arguments, by name."""
        return fields_of(self.args) if self.schema is None else fields_of_schema(self.schema)

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments that plain words fill: the declared ones, else the required ones, else the first."""
        declared = form_fields(self.form)
        required = [name for name, field in self.fields.items() if field.is_required]
        return tuple(declared or required or [*self.fields][:1])

    @property
    def runs_in_parallel(self) -> bool:
        """True if a call may run while other such calls of its step do."""
        return self.is_parallel or self.effect.kind is EffectKind.READ

    @property
    def acts_outside(self) -> bool:
        """True if each of its calls needs a begin before it runs (T19), whatever its plan says."""
        return self.effect.kind is EffectKind.OUTSIDE

    @property
    def typed_name(self) -> str:
        """The name that people type, without the comma."""
        return self.commands[0] if self.commands else self.name

    @property
    def provider_name(self) -> str:
        """The name without dots, which providers reject."""
        return self.name.replace(".", "_")

    @property
    def names(self) -> tuple[str, ...]:
        """Every name it answers to, each once."""
        return tuple(dict.fromkeys((self.name, self.provider_name, *self.commands)))

    def spec(self) -> ToolSpec:
        """Build the tool's spec as a provider sees it."""
        return ToolSpec(
            self.provider_name, self.summary, build_schema(self.args) if self.schema is None else self.schema
        )

    def parse(self, arguments: str) -> Args:
        """Parse and validate the arguments that a model wrote. Raise `ToolRetry` with what to fix."""
        try:
            values = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError) as error:
            raise ToolRetry(f"the arguments of {self.name} are not JSON: {error}") from error
        if not isinstance(values, dict):
            raise ToolRetry(f"the arguments of {self.name} have to be a JSON object, such as {{}}")
        return self.validate(values)

    def validate(self, values: dict[str, Any]) -> Args:
        """Validate the arguments. Raise `ArgumentsInvalid` with each wrong field, its value and what it must be."""
        if self.schema is not None:
            return self._validate_json(self.schema, values)
        return validate_args(self.name, self.args, drop_joining_words(self.form, values))

    def _validate_json(self, schema: JsonObject, values: Mapping[str, Any]) -> Args:
        """Validate arguments by the schema, after reading as JSON the texts that people type for other types."""
        read = read_json_texts(schema, values)
        try:
            problems = find_misfits(read, schema)
        except TimeoutError as error:
            raise ToolRetry(
                f"{self.name}: {error}: whether the arguments fit is not known, so it was not called"
            ) from error
        if problems:
            raise ArgumentsInvalid(
                f"{self.name}: {'; '.join(problems)}",
                tuple(ArgumentProblem("", "rule", read, reason=each) for each in problems),
            )
        return JsonArgs(read)


async def plan_call(turn: Turn, tool: Tool, args: Any) -> CallPlan:
    """Return what a call would do; for a tool without `plan`, its effect and its arguments, which a grant can name.

    Raises:
        ToolRetry: the arguments cannot be used.
        ToolFailed: the call cannot be done.
    """
    if tool.plan is not None:
        return await tool.plan(turn, args)
    details = write_given(args, indent=2)
    if tool.effect.kind is not EffectKind.OUTSIDE:
        return CallPlan(tool.effect, details)
    return CallPlan(tool.effect, details, GrantTarget(GrantKind.ARGUMENTS, digest_call(tool, args)))


def digest_call(tool: Tool, args: Args) -> str:
    """Return the digest of a tool and its arguments: that of two calls is the same only if they do the same."""
    return sha256(canonical({"tool": tool.name, "arguments": dump_args(args)}).encode()).hexdigest()


class ArgumentsInvalid(ToolRetry):
    """Arguments that do not fit. The text is for models; `problems` are for whoever tells people."""

    def __init__(self, text: str, problems: tuple[ArgumentProblem, ...]) -> None:
        super().__init__(text)
        self.problems = problems


def validate_args(name: str, args: type[A], values: Mapping[str, Any]) -> A:
    """Validate the arguments of a tool or command. Raise `ArgumentsInvalid` as `Tool.validate` does."""
    parsed, problems = parse_args(args, values)
    if not problems:
        return args(**parsed)
    texts, fields = Texts(), fields_of(args)
    sentences = (describe_argument(problem, name, fields, texts) for problem in problems)
    takes = f"; it takes {', '.join(fields) or 'nothing'}" if problems[-1].kind == "extra_forbidden" else ""
    raise ArgumentsInvalid(f"{name}: {'; '.join(sentences)}{takes}", problems)


def _find_args(handler: Callable[..., Any]) -> Any:
    """Return the annotation of the parameter `args`. Evaluating all the others takes 20 times as long."""
    annotation = getattr(handler, "__annotations__", {}).get("args")
    named = getattr(handler, "__globals__", {}).get(annotation) if isinstance(annotation, str) else annotation
    return get_type_hints(handler).get("args") if named is None else named


def tool(
    name: str,
    *,
    commands: Iterable[str] = (),
    for_model: bool = True,
    role: Role = Role.MEMBER,
    help: CommandHelp = CommandHelp(),  # noqa: A002 - the field's name; frozen
    effect: Effect = Effect(),
    is_parallel: bool = False,
    timeout: float | None = None,
    plan: PlanCall[Any] | None = None,
    probe: ProbeCall[Any] | None = None,
    is_rare: bool = False,
    is_reserved: bool = False,
    form: str = "",
) -> Callable[[Handler[A]], Tool]:
    """Make a `Tool` of `async def f(turn: Turn, args: SomeArgs) -> str`; its docstring is the summary.

    Args:
        name: the dotted name.
        commands: further names that people may type.
        for_model: offer it to models.
        role: the least role that may use it.
        help: what people are told of it as a command.
        effect: what its calls do; undeclared means that it acts outside, and on no account twice.
        is_parallel: calls of one step run at the same time though they do more than read.
        timeout: seconds a call may take; None for the limit of all tools.
        plan: says what a call would do; None if its effect and its arguments say all.
        probe: says whether a call happened before a crash; an effect that declares `Repeat.PROBE` needs it.
        is_rare: leave its schema out first if the list of tools is too long.
        is_reserved: only for models of turns that are given it by name; nobody types it.
        form: the arguments that plain words fill; see `Tool`.

    Raises:
        ConfigError: the second parameter is not annotated with a class derived from `Args`, the docstring is missing
            (models read both), or the effect needs a `probe`.
    """
    if effect.once is Repeat.PROBE and probe is None:
        raise ConfigError(f"the tool {name} declares that it can be asked whether a call happened, and has no probe")

    def decorate(handler: Handler[A]) -> Tool:
        args = _find_args(handler)
        summary = " ".join((handler.__doc__ or "").split())
        if not summary:
            raise ConfigError(f"the tool {name} needs a docstring: it is what the model reads")
        return Tool(
            name,
            summary,
            args,
            handler,
            tuple(commands),
            for_model,
            role,
            help,
            effect=effect,
            is_parallel=is_parallel,
            timeout=timeout,
            plan=plan,
            probe=probe,
            is_rare=is_rare,
            is_reserved=is_reserved,
            form=form,
        )

    return decorate


class Toolbox:
    """The tools of a deployment, by every name they answer to. Raise `ConfigError` if two share a name."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = tuple(tools)
        self._names: dict[str, Tool] = {}
        for tool in self._tools:
            for name in tool.names:
                if name in self._names:
                    raise ConfigError(f"two tools answer to {name}: {self._names[name].name} and {tool.name}")
                self._names[name] = tool

    def __iter__(self) -> Iterator[Tool]:
        """Iterate over the tools in the order of the constructor."""
        return iter(self._tools)

    def find(self, name: str) -> Tool:
        """Find the tool of this name, with dots or underscores. Raise `ToolError` with the closest names."""
        tool = self._names.get(name)
        if tool is None:
            # Imported here: most names are known.
            from difflib import get_close_matches

            close = get_close_matches(name, self._names, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(close)}?" if close else ",help lists them all."
            raise ToolError(f"there is no {name or 'tool without a name'}; {hint}")
        return tool

    def reads_web(self, name: str) -> bool:
        """Return true if there is a tool of this name whose results are pages of the web."""
        tool = self._names.get(name)
        return tool is not None and tool.effect.is_web


def split_items(value: object) -> object:
    """Split a list that was typed as one text with commas; return any other value unchanged."""
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value

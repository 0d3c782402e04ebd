"""What is evaluated, `evals/NAME.toml`: setups, cases and judges."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from bubbot.errors import ConfigError
from bubbot.formatting import did_you_mean, show_value
from bubbot.tape.entry import canonical

NAME_FORM = "1 to 40 small letters, digits, _ and -, a letter first"
MAX_CASES = 5_000
MAX_SHOWN_PROBLEMS = 20
"""Problems that an error spells out."""
JUDGE_KEYS = ("kind", "name", "weight", "pass", "cases")
"""The keys of every judge; others are settings of its kind."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_RENAMED = {"from": "first", "to": "last", "pass": "pass_at"}
"""Keys that are words of Python."""

ToolMode: TypeAlias = Literal["record", "refused", "live"]
"""How calls of tools are answered. `record`: with the results of the case, or of the recorded turn. `refused`: none runs.
`live`: as `record`, and tools that only read run if there is no such result."""
Words: TypeAlias = Annotated[str, Meta(max_length=64_000)]
Label: TypeAlias = Annotated[
    str, Meta(max_length=200, pattern=r"^\S*\Z", extra={"form": "a name of at most 200 characters without spaces"})
]
CheckJudge: TypeAlias = Callable[[Mapping[str, Any], str], Sequence[str]]
"""Say what is wrong with the kind and the settings of a judge, each with its path: the table, and its path."""


class EvalSetup(Struct, frozen=True, kw_only=True):
    """A way to answer that is compared with others."""

    model: Annotated[Label, Meta(description="The model; default: that of the chat.")] = ""
    persona: Annotated[Words, Meta(description="The beginning of its system prompt; default: that of the bot.")] = ""
    strategy: Annotated[Label, Meta(description="The context strategy; default: that of the chat.")] = ""
    memory: Annotated[
        Label,
        Meta(description="The memory view that it is shown; default: none in inline cases, else that of the terminal."),
    ] = ""
    tools: Annotated[
        ToolMode,
        Meta(
            description="How calls of tools are answered: `record` with the results of the case or of the recorded turn, "
            "`refused` with a refusal, `live` as `record`, except that tools that only read run if nothing is recorded."
        ),
    ] = "record"
    script: Annotated[
        Label, Meta(description="A script beside the file that answers instead of a model, see the scripted model.")
    ] = ""


class HistoryLine(Struct, frozen=True, kw_only=True):
    """What somebody said before the message of a case; `bot` is the bot."""

    who: Annotated[str, Meta(min_length=1, max_length=60, extra={"form": "a name, or bot"})]
    text: Words
    days_ago: Annotated[float, Meta(ge=0, le=36_500)] = 0.0


class EvalCase(Struct, frozen=True, kw_only=True):
    """The turns of a slice of a tape, each a case of its own, or a made conversation."""

    chat: Annotated[Label, Meta(description="A session such as `telegram:42`, whose turns are run again.")] = ""
    first: Annotated[int, Meta(ge=1, le=2**53, description="The first entry of the slice.")] = 1
    last: Annotated[int, Meta(ge=0, le=2**53, description="The last entry; 0: the newest.")] = 0
    history: Annotated[
        tuple[HistoryLine, ...], Meta(max_length=2_000, description="What was said before, oldest first.")
    ] = ()
    who: Annotated[str, Meta(min_length=1, max_length=60, description="Who says the message.")] = "Ann"
    message: Annotated[Words, Meta(description="The message that is answered.")] = ""
    group: Annotated[bool, Meta(description="It is said in a group.")] = False
    results: Annotated[
        dict[str, str | tuple[str, ...]],
        Meta(
            description="The results of tools by name, or by a pattern such as `schedule.*`, in order; the last one answers again. One that begins with `error:` "
            "is a failed call."
        ),
    ] = {}
    steps: Annotated[int, Meta(ge=0, le=1_000, description="Model calls at most; 0: the limit of the settings.")] = 0
    expect: Annotated[Words, Meta(description="What judges compare the answer with.")] = ""


class EvalJudge(Struct, frozen=True, kw_only=True):
    """A judge of cases. Further keys are settings of its kind."""

    kind: Label
    name: Annotated[Label, Meta(description="What it judges; default: its kind.")] = ""
    weight: Annotated[float, Meta(gt=0, le=1_000, description="How much it counts in the score of a case.")] = 1.0
    pass_at: Annotated[
        Annotated[float, Meta(ge=-1e9, le=1e9)] | None,
        Meta(description="The score that passes; default: that of its kind."),
    ] = None
    cases: Annotated[tuple[Label, ...], Meta(max_length=MAX_CASES, description="The cases; default: all.")] = ()
    settings: dict[str, Any] = {}

    def is_for(self, case: str) -> bool:
        """Return true if it judges a case; the turns of a slice have the name of the slice before a slash."""
        return not self.cases or case.partition("/")[0] in self.cases


class EvalSpec(Struct, frozen=True, kw_only=True):
    """An evaluation, as its file has it.

    Attributes:
        scripts: the texts of the scripts that setups name.
        basis: what each setup rests on besides, once the evaluation runs: models, prompts and tools of the bot.
    """

    name: str
    title: Annotated[str, Meta(max_length=200, description="What people see; default: its name.")] = ""
    repeats: Annotated[int, Meta(ge=1, le=1_000, description="How often each case runs.")] = 1
    parallel: Annotated[int, Meta(ge=1, le=64, description="Cases that run at the same time.")] = 4
    tokens: Annotated[int, Meta(ge=1, le=10**12, description="Tokens of the whole evaluation, judges included.")] = (
        500_000
    )
    timeout: Annotated[int, Meta(ge=1, le=86_400, description="Seconds of one case.")] = 300
    setups: dict[str, EvalSetup]
    cases: dict[str, EvalCase]
    judges: tuple[EvalJudge, ...]
    scripts: dict[str, str] = {}
    basis: dict[str, Mapping[str, str]] = {}

    @property
    def digest(self) -> str:
        """What tells it from an evaluation of anything else."""
        return sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Write it, in one form only."""
        return canonical(msgspec.to_builtins(self))

    def judges_of(self, case: str) -> list[EvalJudge]:
        """List the judges of a case."""
        return [judge for judge in self.judges if judge.is_for(case)]

    def choose(self, setups: Sequence[str] = (), model: str = "") -> EvalSpec:
        """Return it with these setups alone, and with this model for each, which then needs no script.

        Raises:
            SpecInvalid: there is no such setup.
        """
        unknown = [name for name in setups if name not in self.setups]
        if unknown:
            hint = did_you_mean(
                unknown[0], self.setups, otherwise=f"; there are: {', '.join(self.setups)}", before="; "
            )
            raise SpecInvalid([f"{self.name}: there is no setup {show_value(unknown[0])}{hint}"])
        chosen = {name: each for name, each in self.setups.items() if not setups or name in setups}
        if model:
            chosen = {name: replace(each, model=model, script="") for name, each in chosen.items()}
        scripts = {each.script for each in chosen.values()}
        return replace(
            self, setups=chosen, scripts={name: text for name, text in self.scripts.items() if name in scripts}
        )


class SpecInvalid(ConfigError):
    """An evaluation cannot be run.

    Attributes:
        problems: everything that is wrong, in the order of the file, each a sentence without the full stop.
    """

    kind = "evaluation_invalid"

    def __init__(self, problems: Sequence[str]) -> None:
        lines = [each + ("" if each.endswith(("?", ".")) else ".") for each in problems[:MAX_SHOWN_PROBLEMS]]
        if rest := len(problems) - len(lines):
            lines.append(f"There are {rest} more problems.")
        super().__init__("\n".join(lines))
        self.problems = tuple(problems)


def load_spec(path: Path, check_judge: CheckJudge) -> EvalSpec:
    """Read an evaluation from its file, and the scripts beside it. Raise `SpecInvalid` with all problems."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SpecInvalid([f"{path.name} cannot be read ({reason}): check the file and its permissions"]) from error

    def read_script(name: str) -> str:
        return (path.parent / name).read_text(encoding="utf-8")

    return parse_spec(text, path.stem, check_judge, read_script)


def parse_spec(
    text: str, name: str, check_judge: CheckJudge, read_script: Callable[[str], str] | None = None
) -> EvalSpec:
    """Read an evaluation from a text.

    Args:
        name: its name.
        check_judge: judges of which kinds there are, and what settings they take.
        read_script: returns the text of a script by its name. Raises `OSError`, `UnicodeDecodeError`.

    Raises:
        SpecInvalid: with all problems.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecInvalid([f"{name}.toml is not TOML: {error}"]) from error
    except RecursionError as error:
        raise SpecInvalid([f"{name}.toml: its tables and lists are nested too deeply: make it flatter"]) from error
    reader = _Reader(check_judge, read_script)
    spec = reader.read_spec(table, name)
    if spec is None or reader.problems:
        raise SpecInvalid(reader.problems)
    return spec


class _Reader:
    """Reads one evaluation, and collects what is wrong with it."""

    def __init__(self, check_judge: CheckJudge, read_script: Callable[[str], str] | None) -> None:
        self.problems: list[str] = []
        self._check_judge = check_judge
        self._read_script = read_script

    def read_spec(self, table: Mapping[str, Any], name: str) -> EvalSpec | None:
        given = {"name", "scripts", "basis"}
        values = self._read_fields(EvalSpec, table, "", skip=("setups", "cases", "judges"), hidden=given)
        values["setups"] = self._read_tables(EvalSetup, table, "setups")
        values["cases"] = self._read_tables(EvalCase, table, "cases")
        for case, each in values["cases"].items():
            self._check_case(f"cases.{case}", each, table["cases"][case])
        values["scripts"] = {}
        for setup, each in values["setups"].items():
            if each.script and (text := self._find_script(f"setups.{setup}.script", each)) is not None:
                values["scripts"][each.script] = text
        values["judges"] = self._read_judges(table, list(table["cases"]) if values["cases"] else [])
        return None if self.problems else EvalSpec(name=name, **values)

    def _read_tables(self, kind: type[Struct], table: Mapping[str, Any], key: str) -> dict[str, Any]:
        word, given = key.rstrip("s"), table.get(key)
        if given is None or given == {}:
            self._report(key, f"an evaluation needs at least one {word}: write a table [{key}.NAME]")
            return {}
        if not isinstance(given, dict):
            self._report(key, f"it is {show_value(given)}, and must be tables [{key}.NAME]")
            return {}
        if len(given) > MAX_CASES:
            self._report(key, f"there are {len(given)}, and there may be {MAX_CASES}: split the evaluation")
            return {}
        found = {}
        for name, each in given.items():
            path = f"{key}.{name if _NAME.fullmatch(name) else show_value(name)}"
            if not _NAME.fullmatch(name):
                self._report(path, f"{show_value(name)} is not the name of a {word}: write {NAME_FORM}")
            if not isinstance(each, dict):
                self._report(path, f"it is {show_value(each)}, and must be a table [{path}]")
                continue
            count = len(self.problems)
            values = self._read_fields(kind, each, f"{path}.", skip=("history",))
            if "history" in each:
                values["history"] = self._read_history(f"{path}.history", each["history"])
            if len(self.problems) == count:
                found[name] = kind(**values)
        return found

    def _read_history(self, path: str, given: Any) -> tuple[HistoryLine, ...]:
        if not isinstance(given, list):
            self._report(path, f"it is {show_value(given)}, and must be a list of tables with who and text")
            return ()
        lines = []
        for place, each in enumerate(given):
            where = f"{path}[{place}]"
            if not isinstance(each, dict):
                self._report(where, f"it is {show_value(each)}, and must be a table with who and text")
                continue
            count = len(self.problems)
            values = self._read_fields(HistoryLine, each, f"{where}.")
            for key in ("who", "text"):
                if key not in each:
                    self._report(f"{where}.{key}", "it is missing, and must be a text in quotes")
            if len(self.problems) == count:
                lines.append(HistoryLine(**values))
        return tuple(lines)

    def _check_case(self, path: str, case: EvalCase, given: Mapping[str, Any]) -> None:
        made = [key for key in ("history", "message", "group", "who", "results") if key in given]
        if case.chat and made:
            self._report(
                path, f"it has both chat and {made[0]}: write chat for a slice of a tape, or message for a made talk"
            )
        elif not case.chat and not case.message.strip():
            self._report(
                path, "it has neither chat nor message: write chat for a slice of a tape, or message for a made talk"
            )
        elif not case.chat and (wrong := [key for key in ("from", "to") if key in given]):
            self._report(f"{path}.{wrong[0]}", "it belongs to a slice: write the chat, too")
        elif case.last and case.first > case.last:
            self._report(f"{path}.to", f"it is {case.last}, and must not be below from, which is {case.first}")

    def _find_script(self, path: str, setup: EvalSetup) -> str | None:
        if setup.model:
            self._report(path, "the setup has a model, too: write either the model or the script")
            return None
        if not re.fullmatch(r"[\w.-]+\.json", setup.script):
            self._report(path, f"it is {show_value(setup.script)}, and must be a JSON file beside the evaluation")
            return None
        try:
            if self._read_script is None:
                raise FileNotFoundError(2, "there is no folder")
            return self._read_script(setup.script)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            self._report(path, f"{show_value(setup.script)} cannot be read ({reason}): check the name")
            return None

    def _read_judges(self, table: Mapping[str, Any], cases: Sequence[str]) -> tuple[EvalJudge, ...]:
        given = table.get("judges")
        if not isinstance(given, list) or not given:
            self._report("judges", "an evaluation needs at least one judge: write a table [[judges]] with a kind")
            return ()
        judges, names = [], set[str]()
        for place, each in enumerate(given):
            path = f"judges[{place}]"
            if not isinstance(each, dict):
                self._report(path, f"it is {show_value(each)}, and must be a table [[judges]]")
                continue
            count = len(self.problems)
            own = {key: value for key, value in each.items() if key in JUDGE_KEYS and key != "kind"}
            values = self._read_fields(EvalJudge, own, f"{path}.")
            settings = {key: value for key, value in each.items() if key not in JUDGE_KEYS}
            self.problems += self._check_judge({**({"kind": each["kind"]} if "kind" in each else {}), **settings}, path)
            for case in values.get("cases", ()) if cases else ():
                if case not in cases:
                    self._report(
                        f"{path}.cases", f"there is no case {show_value(case)}{did_you_mean(case, cases, before='; ')}"
                    )
            kind = each.get("kind", "")
            name = values.get("name") or kind
            if name in names and not values.get("cases"):
                self._report(f"{path}.name", f"another judge is called {show_value(name)}: write another name")
            names |= {name} if not values.get("cases") else set()
            if len(self.problems) == count:
                judges.append(EvalJudge(**{**values, "kind": kind, "name": name, "settings": settings}))
        return tuple(judges)

    def _read_fields(
        self,
        kind: type[Struct],
        table: Mapping[str, Any],
        prefix: str,
        *,
        skip: Iterable[str] = (),
        hidden: Iterable[str] = (),
    ) -> dict[str, Any]:
        """Return the values of a table that are right; those of `skip` are read elsewhere, those of `hidden` are no keys."""
        shown = {name: key for key, name in _RENAMED.items()}
        fields = {shown.get(name, name): each for name, each in _list_types(kind).items() if name not in hidden}
        values = {}
        for key, value in table.items():
            path = prefix + (key if re.fullmatch(r"[\w.-]{1,64}", key) else show_value(key))
            if key not in fields:
                there = f"; there are: {', '.join(fields)}"
                self._report(path, f"unknown key{did_you_mean(key, fields, otherwise=there, before='; ')}")
            elif key not in skip:
                try:
                    values[_RENAMED.get(key, key)] = msgspec.convert(value, fields[key])
                except msgspec.ValidationError:
                    self._report(path, f"it is {show_value(value)}, and must be {_describe(fields[key], value)}")
        return values

    def _report(self, path: str, message: str) -> None:
        self.problems.append(f"{path}: {message}")


@cache
def _list_types(kind: type[Struct]) -> Mapping[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _describe(annotation: Any, value: Any) -> str:
    """Say what a field takes."""
    form, kind = "", msgspec.inspect.type_info(annotation)
    while isinstance(kind, msgspec.inspect.Metadata):
        form, kind = form or str((kind.extra or {}).get("form", "")), kind.type
    while hasattr(annotation, "__metadata__"):
        annotation = get_args(annotation)[0]
    match kind:
        case msgspec.inspect.IntType():
            return form or f"a whole number from {kind.ge} to {kind.le}"
        case msgspec.inspect.FloatType() if kind.gt is not None:
            return f"a number more than {kind.gt:g} and at most {kind.le:g}"
        case msgspec.inspect.FloatType():
            return f"a number from {kind.ge:g} to {kind.le:g}"
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.StrType():
            if isinstance(value, str) and kind.max_length is not None and len(value) > kind.max_length:
                return f"at most {kind.max_length} characters long: it has {len(value)}"
            return form or "a text in quotes"
        case msgspec.inspect.LiteralType():
            choices = [str(each) for each in get_args(annotation)]
            return f"one of {', '.join(choices)}" + (
                did_you_mean(value, choices, before="; ") if isinstance(value, str) else ""
            )
    return (
        "a list, in brackets, of texts" if get_origin(annotation) is tuple else "a table of texts, or of lists of texts"
    )

"""What is evaluated, `evals/NAME.toml`: setups, cases and judges."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from bubbot.errors import ConfigError
from bubbot.features.judge.judges.settings import JudgeSettings, read_judge
from bubbot.formatting import did_you_mean, show_value
from bubbot.settings.sources import read_text
from bubbot.tape.entry import canonical
from bubbot.toml_tables import Problem, TableReader, TablesInvalid, join_path, parse_toml

NAME_FORM = "1 to 40 small letters, digits, _ and -, a letter first"
MAX_CASES = 5_000
MAX_FILE_BYTES = 4_000_000
"""The largest file of an evaluation, or script."""
NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")

ToolMode: TypeAlias = Literal["record", "refused", "live"]
"""How calls of tools are answered. `record`: with the results of the case, or of the recorded turn. `refused`: none runs.
`live`: as `record`, and tools that only read run if there is no such result."""
Words: TypeAlias = Annotated[str, Meta(max_length=64_000)]
Label: TypeAlias = Annotated[
    str, Meta(max_length=200, pattern=r"^\S*\Z", extra={"form": "a name of at most 200 characters without spaces"})
]


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


class EvalCase(Struct, frozen=True, kw_only=True, rename={"first": "from", "last": "to"}):
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


class EvalJudge(Struct, frozen=True, kw_only=True, rename={"pass_at": "pass"}):
    """A judge of cases. Further keys are settings of its kind."""

    kind: Label
    name: Annotated[
        str,
        Meta(
            pattern=rf"^{NAME.pattern}\Z", extra={"form": NAME_FORM}, description="What it judges; default: its kind."
        ),
    ] = ""
    weight: Annotated[float, Meta(gt=0, le=1_000, description="How much it counts in the score of a case.")] = 1.0
    pass_at: Annotated[
        Annotated[float, Meta(ge=-1e9, le=1e9)] | None,
        Meta(description="The score that passes; default: that of its kind."),
    ] = None
    cases: Annotated[tuple[Label, ...], Meta(max_length=MAX_CASES, description="The cases; default: all.")] = ()
    settings: dict[str, Any] = {}

    @property
    def compares(self) -> bool:
        """True if it compares the answers of two setups."""
        return self.settings.get("pairwise") is True

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
            raise SpecInvalid([Problem(self.name, f"there is no setup {show_value(unknown[0])}{hint}")])
        chosen = {name: each for name, each in self.setups.items() if not setups or name in setups}
        if model:
            chosen = {name: replace(each, model=model, script="") for name, each in chosen.items()}
        scripts = {each.script for each in chosen.values()}
        return replace(
            self, setups=chosen, scripts={name: text for name, text in self.scripts.items() if name in scripts}
        )


class SpecInvalid(TablesInvalid):
    """An evaluation cannot be run; its problems are in the order of the file."""

    kind = "evaluation_invalid"


def load_spec(path: Path) -> EvalSpec:
    """Read an evaluation from its file, and the scripts beside it. Raise `SpecInvalid` with all problems."""
    try:
        text = read_text(path, MAX_FILE_BYTES, path.name)
    except ConfigError as error:
        raise SpecInvalid([Problem("", str(error))]) from error
    return parse_spec(text, path.stem, lambda name: read_text(path.parent / name, MAX_FILE_BYTES, "the script"))


def parse_spec(text: str, name: str, read_script: Callable[[str], str] | None = None) -> EvalSpec:
    """Read an evaluation from a text.

    Args:
        name: its name.
        read_script: returns the text of a script by its name. Raises `ConfigError`.

    Raises:
        SpecInvalid: with all problems.
    """
    try:
        table = parse_toml(text, f"{name}.toml")
    except TablesInvalid as error:
        raise SpecInvalid(error.problems) from error
    reader = _SpecReader(read_script)
    spec = reader.read_spec(table, name)
    if spec is None:
        raise SpecInvalid(reader.problems)
    return spec


class _SpecReader(TableReader):
    """Reads one evaluation."""

    def __init__(self, read_script: Callable[[str], str] | None) -> None:
        super().__init__()
        self._read_script = read_script

    def read_spec(self, table: Mapping[str, Any], name: str) -> EvalSpec | None:
        """Return the evaluation; None if something is wrong with it."""
        tables = ("setups", "cases", "judges")
        values = self.read(EvalSpec, table, elsewhere=tables, hidden=("name", "scripts", "basis", *tables))
        values["setups"] = self._read_tables(EvalSetup, table, "setups")
        values["cases"] = self._read_tables(EvalCase, table, "cases")
        for case, each in values["cases"].items():
            self._check_case(f"cases.{case}", each, table["cases"][case])
        values["scripts"] = {}
        for setup, each in values["setups"].items():
            if each.script and (text := self._find_script(f"setups.{setup}.script", each)) is not None:
                values["scripts"][each.script] = text
        values["judges"] = self._read_judges(table, values["cases"])
        return None if self.problems else EvalSpec(name=name, **values)

    def _read_tables(self, kind: type[Struct], table: Mapping[str, Any], key: str) -> dict[str, Any]:
        word, tables = key.rstrip("s"), table.get(key)
        if tables is None or tables == {}:
            self.report(key, f"an evaluation needs at least one {word}: write a table [{key}.NAME]")
            return {}
        if not isinstance(tables, dict):
            self.report(key, f"it is {show_value(tables)}, and must be tables [{key}.NAME]")
            return {}
        if len(tables) > MAX_CASES:
            self.report(key, f"there are {len(tables)}, and there may be {MAX_CASES}: split the evaluation")
            return {}
        found = {}
        for name, each in tables.items():
            path = join_path(key, name)
            if not NAME.fullmatch(name):
                self.report(path, f"{show_value(name)} is not the name of a {word}: write {NAME_FORM}")
            if (made := self.make(kind, each, path)) is not None:
                found[name] = made
        return found

    def _check_case(self, path: str, case: EvalCase, table: Mapping[str, Any]) -> None:
        made = [key for key in ("history", "message", "group", "who", "results") if key in table]
        if case.chat and made:
            self.report(
                path, f"it has both chat and {made[0]}: write chat for a slice of a tape, or message for a made talk"
            )
        elif not case.chat and not case.message.strip():
            self.report(
                path, "it has neither chat nor message: write chat for a slice of a tape, or message for a made talk"
            )
        elif not case.chat and (wrong := [key for key in ("from", "to") if key in table]):
            self.report(f"{path}.{wrong[0]}", "it belongs to a slice: write the chat, too")
        elif case.last and case.first > case.last:
            self.report(f"{path}.to", f"it is {case.last}, and must not be below from, which is {case.first}")

    def _find_script(self, path: str, setup: EvalSetup) -> str | None:
        if setup.model:
            self.report(path, "the setup has a model, too: write either the model or the script")
        elif self._read_script is None or not re.fullmatch(r"[\w.-]+\.json", setup.script):
            self.report(path, f"it is {show_value(setup.script)}, and must be a JSON file beside the evaluation")
        else:
            try:
                return self._read_script(setup.script)
            except ConfigError as error:
                self.report(path, str(error).rstrip("."))
        return None

    def _read_judges(self, table: Mapping[str, Any], cases: Mapping[str, EvalCase]) -> tuple[EvalJudge, ...]:
        tables = table.get("judges")
        if not isinstance(tables, list) or not tables:
            self.report("judges", "an evaluation needs at least one judge: write a table [[judges]] with a kind")
            return ()
        judges, names, before = list[EvalJudge](), set[tuple[str, str]](), len(self.problems)
        for place, each in enumerate(tables):
            path = f"judges[{place}]"
            if not isinstance(each, dict):
                self.report(path, f"it is {show_value(each)}, and must be a table [[judges]]")
                continue
            keys = {field.encode_name for field in msgspec.structs.fields(EvalJudge)} - {"settings", "kind"}
            own = {key: value for key, value in each.items() if key in keys}
            values = self.read(EvalJudge, own, path, elsewhere=("kind",), hidden=("settings",))
            settings = read_judge(each, path, self, also=sorted(keys))
            for case in values.get("cases") or ():
                if cases and case not in cases:
                    hint = did_you_mean(case, cases, before="; ")
                    self.report(f"{path}.cases", f"there is no case {show_value(case)}{hint}")
            if settings is None or len(self.problems) > before:
                continue
            judge = EvalJudge(
                **{**values, "name": values.get("name") or settings.KIND},
                kind=settings.KIND,
                settings={key: value for key, value in each.items() if key not in keys and key != "kind"},
            )
            judges.append(judge)
            self._check_judged(path, judge, settings, cases, names)
        for case in cases if len(self.problems) == before else ():
            if not any(judge.is_for(case) and not judge.compares for judge in judges):
                self.report(
                    f"cases.{case}", "no judge judges it: add it to the cases of one, or write another [[judges]]"
                )
        return tuple(judges)

    def _check_judged(
        self,
        path: str,
        judge: EvalJudge,
        settings: JudgeSettings,
        cases: Mapping[str, EvalCase],
        names: set[tuple[str, str]],
    ) -> None:
        """Check a judge against its cases: they expect what it needs, and no other judge of them has its name."""
        if judge.compares and judge.pass_at is not None:
            self.report(f"{path}.pass", "it has no meaning for a comparison of two answers: remove it, or pairwise")
        for name, case in cases.items():
            if not judge.is_for(name):
                continue
            if problem := settings.find_expectation_problem(case.expect or None):
                self.report(f"cases.{name}.expect", f"for {path}, {problem}")
            if (name, judge.name) in names:
                self.report(f"{path}.name", f"another judge is called {show_value(judge.name)}: write another name")
                return
            names.add((name, judge.name))

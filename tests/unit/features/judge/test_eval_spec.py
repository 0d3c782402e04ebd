"""The files of evaluations: what they take, and how everything that is wrong is said at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from bubbot.errors import ValueInvalid
from bubbot.features.judge.evals.judging import find_points, passes
from bubbot.features.judge.evals.library import SUITES, EvalLibrary
from bubbot.features.judge.evals.spec import EvalSpec, SpecInvalid, load_spec, parse_spec
from bubbot.features.judge.judges.judging import COUNTED_UP, ScoreScale
from bubbot.features.judge.judges.settings import KINDS
from tests.docs.pages import ROOT, blocks

GOOD = """
[setups.one]
[cases.hello]
message = "hello"
[[judges]]
kind = "exact"
text = "Hi."
"""


def read(text: str) -> EvalSpec:
    return parse_spec(text, "try", lambda name: "{}")


def find_problems(text: str) -> Sequence[str]:
    with pytest.raises(SpecInvalid) as caught:
        read(text)
    return [str(problem) for problem in caught.value.problems]


def test_a_short_evaluation_has_defaults_for_the_rest() -> None:
    spec = read(GOOD)
    assert (spec.name, spec.repeats, spec.parallel, spec.setups["one"].tools) == ("try", 1, 4, "record")
    (judge,) = spec.judges
    assert (judge.name, judge.kind, judge.settings, judge.pass_at) == ("exact", "exact", {"text": "Hi."}, None)


def test_its_digest_is_that_of_what_it_says() -> None:
    assert read(GOOD).digest == read(GOOD.replace("\n[", "\n\n[")).digest
    assert read(GOOD).digest != read(GOOD.replace("hello", "hallo")).digest
    assert read(GOOD).digest != read(GOOD).choose(model="provider/model").digest


@pytest.mark.parametrize("page", ["docs/howto/evaluate.md", "docs/zh/howto/evaluate.md"])
def test_the_example_of_the_page_can_be_run(page: str) -> None:
    (block,) = [block for block in blocks(ROOT / page) if block.language == "ini"]
    spec = read(block.text)
    assert (list(spec.setups), list(spec.cases), len(spec.judges)) == (["now", "new"], ["train", "family"], 3)


def test_everything_that_is_wrong_is_said_at_once_with_the_nearest_name() -> None:
    problems = find_problems(
        """
        repeat = 3
        parallel = 0
        tokens = "many"
        [setups.one]
        tools = "recorded"
        [setups.Two]
        modell = "x"
        [cases.both]
        chat = "telegram:42"
        message = "hello"
        [cases.neither]
        expect = "x"
        [cases.from]
        message = "hello"
        from = 3
        [cases.order]
        chat = "telegram:42"
        from = 9
        to = 3
        [cases.said]
        message = "hello"
        history = [{ who = "Ann", txt = "x" }]
        [[judges]]
        kind = "exakt"
        [[judges]]
        kind = "regex"
        pattern = "("
        pas = 1
        cases = ["bth"]
        """
    )
    assert problems == [
        "repeat: unknown key; did you mean 'repeats'?",
        "parallel: it is 0, and must be a whole number from 1 to 64.",
        "tokens: it is 'many', and must be a whole number from 1 to 1000000000000.",
        "setups.one.tools: it is 'recorded', and must be one of record, refused, live; did you mean 'record'?",
        "setups.Two: 'Two' is not the name of a setup: write 1 to 40 small letters, digits, _ and -, a letter first.",
        "setups.Two.modell: unknown key; did you mean 'model'?",
        "cases.said.history[0].txt: unknown key; did you mean 'text'?",
        "cases.said.history[0].text: it is missing: write a text in quotes.",
        "cases.both: it has both chat and message: write chat for a slice of a tape, or message for a made talk.",
        "cases.neither: it has neither chat nor message: write chat for a slice of a tape, or message for a made talk.",
        "cases.from.from: it belongs to a slice: write the chat, too.",
        "cases.order.to: it is 3, and must not be below from, which is 9.",
        f"judges[0].kind: it is 'exakt', and must be one of {', '.join(KINDS)}; did you mean 'exact'?",
        "judges[1].pas: unknown key; did you mean 'pass'?",
        "judges[1].cases: there is no case 'bth'; did you mean 'both'?",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = [", "try.toml:1: the file is not TOML: Invalid value."),
        ("", "setups: an evaluation needs at least one setup: write a table [setups.NAME]"),
        ("setups = 3", "setups: it is 3, and must be tables [setups.NAME]"),
        (GOOD.replace("[[judges]]", "[judges]"), "judges: an evaluation needs at least one judge"),
        (f"{GOOD}[[judges]]\nkind = 'exact'\n", "judges[1].name: another judge is called 'exact': write another name"),
        (f"{GOOD}[[judges]]\nname = 'x'\n", "judges[1].kind: it is missing"),
        (GOOD.replace("[setups.one]", "[setups.one]\nscript = '../x.json'"), "setups.one.script: it is '../x.json'"),
        (GOOD.replace("[setups.one]", "[setups.one]\nscript = 'x.json'\nmodel = 'y'"), "the setup has a model, too"),
        (f"{GOOD}cases = ['hello']\n[cases.other]\nmessage = 'x'\n", "cases.other: no judge judges it: add it to the"),
        (GOOD.replace("text =", "name = 'a b'\ntext ="), "judges[0].name: it is 'a b', and must be 1 to 40 small"),
        (GOOD.replace("text =", 'name = "\\u001b[2J"\ntext ='), "judges[0].name"),
        (
            GOOD.replace('"exact"\ntext = "Hi."', '"model"\nmodel = "x"\nrubric = "y"\npairwise = true\npass = 1'),
            "judges[0].pass: it has no meaning for a comparison of two answers",
        ),
        (
            GOOD.replace('"exact"\ntext = "Hi."', '"model"\nmodel = "x"\nrubric = "y"\npairwise = true'),
            "cases.hello: no judge judges it",
        ),
        (
            GOOD.replace('text = "Hi."', ""),
            "cases.hello.expect: for judges[0], the case expects null: write a text there",
        ),
        (
            GOOD.replace('"exact"\ntext = "Hi."', '"regex"').replace('"hello"', '"hello"\nexpect = "("'),
            "cases.hello.expect: for judges[0], '(' is not a regular expression",
        ),
        (
            GOOD.replace('"exact"\ntext = "Hi."', '"json_schema"').replace('"hello"', '"hello"\nexpect = "{"'),
            "cases.hello.expect: for judges[0], the expectation of the case is no JSON Schema",
        ),
        (GOOD.replace('"exact"\ntext = "Hi."', '"python"\nfunction = "no"'), "judges[0].function: No plugin 'no'"),
        (f"{GOOD}pass = nan", "judges[0].pass: it is NaN, and must be a number from -1e+09 to 1e+09"),
        (f"{GOOD}pass = 'x'", "judges[0].pass: it is 'x', and must be a number from -1e+09 to 1e+09"),
        (GOOD.replace('"exact"\ntext = "Hi."', '"json_schema"\nschema = { const = nan }'), "the number nan"),
        (
            f"repeats = {'9' * 6_000}\n{GOOD}",
            "try.toml:1: the number has more than 1000 digits: write it as a text in quotes",
        ),
        (
            f"repeats = 0x{'f' * 6_000}\n{GOOD}",
            "try.toml:1: the number has more than 1000 digits: write it as a text in quotes",
        ),
        (
            f"x = {'[' * 5_000}{']' * 5_000}",
            "try.toml: its tables and lists are nested deeper than 64: make it flatter",
        ),
        (f"x = {'[' * 200}{']' * 200}", "try.toml: its tables and lists are nested deeper than 64: make it flatter"),
        (f"{'a.' * 40_000}a = 1\n{GOOD}", "try.toml:1: the key has 40001 parts, and may have 64: make it flatter"),
    ],
)
def test_a_mistake_is_named_with_its_fix(text: str, problem: str) -> None:
    assert problem in "\n".join(find_problems(text))


def test_scripts_stand_beside_the_file_and_belong_to_what_is_evaluated(tmp_path: Path) -> None:
    path = tmp_path / "try.toml"
    path.write_text(GOOD.replace("[setups.one]", "[setups.one]\nscript = 'x.json'"))
    with pytest.raises(SpecInvalid, match=r"x\.json cannot be read"):
        load_spec(path)
    (tmp_path / "x.json").write_text("{}")
    first = load_spec(path)
    (tmp_path / "x.json").write_text('{"rules": []}')
    assert (first.scripts, load_spec(path).digest != first.digest) == ({"x.json": "{}"}, True)
    assert first.choose(model="provider/model").scripts == {}


@pytest.mark.timeout(20)
def test_files_that_are_no_plain_files_or_too_large_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "try.toml"
    os.mkfifo(path)
    with pytest.raises(SpecInvalid, match="is not a regular file"):
        load_spec(path)
    path.unlink()
    path.write_text(GOOD.replace("[setups.one]", "[setups.one]\nscript = 'x.json'"))
    os.mkfifo(tmp_path / "x.json")
    with pytest.raises(SpecInvalid, match=r"setups\.one\.script: .* is not a regular file"):
        load_spec(path)
    (tmp_path / "x.json").unlink()
    with (tmp_path / "x.json").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(SpecInvalid, match="is larger than"):
        load_spec(path)


def test_a_file_whose_name_cannot_be_typed_is_not_offered(tmp_path: Path) -> None:
    (tmp_path / "evals").mkdir()
    for name in ("a:b", "a b", "\x1b[2J", "fine"):
        (tmp_path / "evals" / f"{name}.toml").write_text(GOOD)
    assert EvalLibrary(tmp_path).list_names() == ["fine", *SUITES]


def test_some_setups_run_alone() -> None:
    spec = read(GOOD.replace("[setups.one]", "[setups.one]\n[setups.two]"))
    assert list(spec.choose(["two"]).setups) == ["two"]
    with pytest.raises(SpecInvalid, match="there is no setup 'tow'; did you mean 'two'"):
        spec.choose(["tow"])


def test_a_home_has_its_own_evaluations_and_the_suites(tmp_path: Path) -> None:
    library = EvalLibrary(tmp_path)
    assert library.list_names() == list(SUITES)
    assert len(library.load("everyday").cases) == 10
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals/everyday.toml").write_text(GOOD)
    assert list(library.load("everyday").cases) == ["hello"], "a file of the home comes first"
    with pytest.raises(ValueInvalid):
        library.load("../everyday")


@pytest.mark.parametrize(
    ("scale", "score", "pass_at", "passed", "points"),
    [
        (ScoreScale(), 0.5, None, True, 0.5),
        (ScoreScale(1, 5), 2, None, False, 0.25),
        (ScoreScale(1, 5, 4), 4, None, True, 0.75),
        (ScoreScale(1, 5, 4), 4, 4.5, False, 0.75),
        (ScoreScale(0, 10, 3, is_lower_better=True), 2, None, True, 0.8),
        (COUNTED_UP, 7, None, None, None),
        (COUNTED_UP, 7, 10, True, 1.0),
        (COUNTED_UP, 11, 10, False, 0.0),
    ],
)
def test_a_score_becomes_points_of_which_more_are_better(
    scale: ScoreScale, score: float, pass_at: float | None, passed: bool | None, points: float | None
) -> None:
    found = passes(scale, score, pass_at)
    assert found is passed
    assert (None if found is None else find_points(scale, score, has_passed=found)) == points

"""Wrong arguments are told in our words: the name, what was typed, and what is expected."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Annotated, Any, Literal, get_args

import pytest
from msgspec import Meta, structs

from bubbot.arguments.errors import describe_argument
from bubbot.arguments.fields import Args
from bubbot.ports.turn import Turn
from bubbot.texts import Texts
from bubbot.tool import ArgumentsInvalid, tool
from tests.docs.pages import ROOT


class EveryArgs(Args, frozen=True):
    """One argument of each kind."""

    when: Annotated[str, Meta(description="the time, as in `,remind`")]
    plain: str = ""
    how: Literal["", "day", "month", "all"] = "day"
    count: int = 1
    share: float = 0.5
    loud: bool = False
    few: Annotated[int, Meta(ge=1, le=9)] = 1
    ratio: Annotated[float, Meta(gt=0.0, lt=1.0)] = 0.5
    name: Annotated[str, Meta(min_length=1, max_length=5)] = "x"
    names: Annotated[tuple[str, ...], Meta(min_length=1, max_length=2)] = ("x",)
    most: Annotated[int, Meta(ge=1)] | None = None
    days: tuple[Literal["mon", "tue"], ...] = ()
    code: Annotated[str, Meta(pattern=r"^[0-9]\Z")] = "1"
    label: Annotated[str, Meta(pattern=r"^[a-z]+\Z", extra={"form": "small letters"})] = "x"


@tool("test")
async def probe(turn: Turn, args: EveryArgs) -> str:
    """Take arguments."""
    return ""


def described(values: dict[str, object], texts: Texts) -> list[str]:
    with pytest.raises(ArgumentsInvalid) as caught:
        probe.validate({"when": "now"} | values)
    return [describe_argument(problem, probe.name, probe.fields, texts) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("values", "english", "chinese"),
    [
        ({"other": "1"}, "there is no other", "没有 other 这一项"),
        ({"how": "year"}, 'how is "year", but must be day, month or all', "how 是“year”，但应为 day、month 或 all"),
        ({"count": "many"}, 'count is "many", but must be a whole number', "count 是“many”，但应为整数"),
        ({"count": "1.5"}, 'count is "1.5", but must be a whole number', "count 是“1.5”，但应为整数"),
        (
            {"count": "9" * 5000},
            f'count is "{"9" * 60}…", but must be a whole number',
            f"count 是“{'9' * 60}…”，但应为整数",
        ),
        ({"share": "half"}, 'share is "half", but must be a number', "share 是“half”，但应为数字"),
        ({"loud": "perhaps"}, 'loud is "perhaps", but must be yes or no', "loud 是“perhaps”，但应为 yes 或 no"),
        ({"few": "0"}, "few is 0, but must be at least 1", "few 是 0，但至少应为 1"),
        ({"few": "10"}, "few is 10, but must be at most 9", "few 是 10，但最多为 9"),
        ({"most": "0"}, "most is 0, but must be at least 1", "most 是 0，但至少应为 1"),
        ({"ratio": "0"}, "ratio is 0, but must be more than 0.0", "ratio 是 0，但应大于 0.0"),
        ({"ratio": "1"}, "ratio is 1, but must be less than 1.0", "ratio 是 1，但应小于 1.0"),
        ({"name": ""}, "name is empty", "name 为空"),
        ({"name": "abcdef"}, "name is longer than 5 characters", "name 超过 5 个字符"),
        ({"names": ()}, "names is empty", "names 为空"),
        ({"names": ("a", "b", "c")}, "names has more than 2 items", "names 超过 2 项"),
        ({"days": ("mon", "x")}, 'days is "x", but must be mon or tue', "days 是“x”，但应为 mon 或 tue"),
        ({"label": "A b"}, 'label is "A b", but must be small letters', "label 是“A b”，但应为 small letters"),
        ({"label": "a\n"}, 'label is "a\n", but must be small letters', "label 是“a\n”，但应为 small letters"),
        ({"code": "A"}, 'code cannot be "A"', "code 不能是“A”"),
        ({"plain": 5}, "plain is 5, but must be a text", "plain 是 5，但应为文本"),
    ],
)
def test_each_kind_has_its_sentence(values: dict[str, object], english: str, chinese: str) -> None:
    assert described(values, Texts()) == [english]
    assert described(values, Texts("zh")) == [chinese]


def test_what_is_missing_is_told_with_its_meaning_and_every_problem_is_told() -> None:
    with pytest.raises(ArgumentsInvalid) as caught:
        probe.validate({"count": "x"})
    slashes = Texts().with_command_prefix("/")
    assert [describe_argument(problem, probe.name, probe.fields, slashes) for problem in caught.value.problems] == [
        "when is missing: the time, as in `/remind`",
        'count is "x", but must be a whole number',
    ]


def _list_limits(kind: Any) -> Iterator[Meta]:
    yield from (mark for mark in getattr(kind, "__metadata__", ()) if isinstance(mark, Meta))
    for inner in get_args(kind):
        yield from _list_limits(inner)


def test_each_pattern_ends_where_the_text_ends_and_is_said_in_words() -> None:
    sources = ((path, path.read_text(encoding="utf-8")) for path in (ROOT / "bubbot").rglob("*.py"))
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path, text in sources if "(Args, " in text]
    classes = {
        kind
        for module in map(import_module, modules)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Args)
    }
    limits = [mark for kind in classes for field in structs.fields(kind) for mark in _list_limits(field.type)]
    patterns = {mark.pattern: (mark.extra or {}).get("form") for mark in limits if mark.pattern}
    assert patterns
    for pattern, form in patterns.items():
        assert pattern.endswith(r"\Z")
        assert "$" not in pattern
        assert form

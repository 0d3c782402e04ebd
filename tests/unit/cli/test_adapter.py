"""Words and options of the shell that are made from the model of a command's arguments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import click
import pytest
from msgspec import Meta

from bubbot.arguments.fields import Args
from bubbot.cli.adapter import make_click_command
from bubbot.cli.invocation import Invocation
from bubbot.cli.local_command import LocalCommand
from bubbot.cli.tree import describe_usage
from bubbot.shell_command import Argument, Command, CommandContext, CommandGroup, CommandResult


def parse_even(text: str) -> int:
    if not text.isdecimal() or int(text) % 2:
        raise ValueError(f"{text!r} is odd")
    return int(text)


class Everything(Args, frozen=True):
    """Each way of typing an argument."""

    file: Annotated[Path, Argument("a file")]
    kind: Annotated[Literal["a", "b"], Argument("which")] = "a"
    words: Annotated[str, Argument("all the rest", rest=True)] = ""
    even: Annotated[int, Argument("a number", "N", parse_even)] = 2
    how_many: Annotated[Annotated[int, Meta(ge=0)] | None, Argument("a count")] = None
    in_: Annotated[Literal["x", "y"] | None, Argument("where")] = None
    loud: Annotated[bool, Argument("louder")] = False
    command: Annotated[str, Argument("has the name of one of the shell's own values")] = ""


async def run(context: CommandContext, arguments: Everything) -> CommandResult:
    return CommandResult("")


COMMAND = Command(name="try all", run=run, help="try it", args=Everything, form="<file> [kind]", example="try all x")


def typed(*argv: str, command: Command = COMMAND) -> Any:
    """Return the arguments that a command gets; raise `AssertionError` with the sentence for a wrong command line."""
    found: list[Any] = []

    def keep(_invocation: Invocation, args: Any) -> int:
        found.append(args)
        return 0

    local = LocalCommand(name=command.name, run=keep, args=command.args, form=command.form)
    root = make_click_command(CommandGroup("try", (local,), "Try."))
    try:
        with root.make_context("try", list(argv), obj=Invocation()) as context:
            root.invoke(context)
    except click.UsageError as error:
        raise AssertionError(describe_usage(error)) from error
    return found[0]


def test_what_is_not_typed_has_its_default() -> None:
    assert typed("all", "f") == Everything(file=Path("f"))
    options = ("--even", "4", "--how-many", "0", "--in", "y", "--loud", "--command", ",help")
    everything = typed("all", "f", "b", *options)
    assert everything == Everything(file=Path("f"), kind="b", even=4, how_many=0, in_="y", loud=True, command=",help")


def test_the_only_command_of_a_group_needs_no_second_word() -> None:
    class Words(Args, frozen=True):
        words: Annotated[str, Argument("what to say", rest=True)]

    command = Command(name="say", run=run, args=Words)
    assert typed("one", "two", command=command) == Words(words="one two")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("all", "f", "c"), "kind is 'c', but must be"),
        (("all", "f", "--even", "3"), "--even: '3' is odd"),
        (("all", "f", "--how-many", "x"), "--how-many is 'x', but must be a number"),
        (("all", "f", "--in", "z"), "--in is 'z', but must be x or y"),
        (("all",), "missing: file"),
        ((), "missing: ACTION"),
    ],
)
def test_wrong_usage_is_that_of_any_command(argv: tuple[str, ...], words: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(words)):
        typed(*argv)


def test_what_only_the_model_refuses_is_a_sentence() -> None:
    with pytest.raises(AssertionError, match="try all: how_many is -1, but must be at least 0"):
        typed("all", "f", "--how-many", "-1")


class Listed(Args, frozen=True):
    """Arguments that stand for several values, or for a negative one."""

    id: Annotated[int, Argument("a number")]
    files: Annotated[tuple[str, ...], Argument("files", short="f", repeated=True)] = ()


LISTED = Command(name="try", run=run, args=Listed)


def test_an_option_may_be_repeated_and_has_a_short_form() -> None:
    assert typed("1", "-f", "a,b", "--files", "c", command=LISTED) == Listed(id=1, files=("a,b", "c"))


@pytest.mark.parametrize("argv", [("-100",), ("-f", "a", "-100"), ("-100", "-f", "a"), ("--", "-100")])
def test_a_negative_number_is_a_word(argv: tuple[str, ...]) -> None:
    assert typed(*argv, command=LISTED).id == -100


class Scored(Args, frozen=True):
    """A number that may be negative."""

    score: Annotated[float, Argument("a number")]


@pytest.mark.parametrize("word", ["-1e308", "-2.5E-3", "-1e+9", "-0.5"])
def test_a_negative_number_in_scientific_notation_is_a_word(word: str) -> None:
    assert typed(word, command=Command(name="try", run=run, args=Scored)).score == float(word)


def test_a_negative_number_may_be_the_value_of_an_option() -> None:
    assert typed("1", "-f", "-5", command=LISTED).files == ("-5",)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(AssertionError, match=r"^missing: file; --even: '3' is odd; --in is 'z', but must be x or y$"):
        typed("all", "--even", "3", "--in", "z")

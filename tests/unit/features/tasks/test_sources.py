"""How the texts of a task are read: what would take long, or crash later, is refused with its place."""

from __future__ import annotations

import pytest

from bubbot.features.tasks.config import layer_config, override_config
from bubbot.features.tasks.sources import DefinitionInvalid, read_json, read_toml


def refused(text: str) -> str:
    with pytest.raises(DefinitionInvalid) as caught:
        read_toml(text, "config.toml")
    (problem,) = caught.value.problems
    return str(problem)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param("9" * 5_000, id="decimal"),
        pytest.param("-" + "9" * 5_000, id="negative"),
        pytest.param("9_" * 2_500 + "9", id="groups"),
        pytest.param("0x" + "f" * 5_000, id="hexadecimal"),
        pytest.param("[{inner = 0b" + "1" * 5_000 + "}]", id="within"),
    ],
)
def test_a_number_of_thousands_of_digits_is_refused_with_its_line(number: str) -> None:
    message = "the number has more than 1000 digits: write it as a text in quotes."
    assert refused(f"a = 1\n\nb = {number}\n") == f"config.toml:3: {message}"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a." * 40_000 + "a = 1", id="key"),
        pytest.param("[" + "a . " * 40_000 + "a]", id="table"),
        pytest.param("[['" + "'.'" * 40_000 + "']]", id="quoted"),
        pytest.param("x = { " + '"a".' * 40_000 + "a = 1 }", id="inline"),
    ],
)
def test_a_key_of_too_many_parts_is_refused_before_it_is_read(text: str) -> None:
    assert refused(f"x1 = 1\n{text}\n") == "config.toml:2: the key has 40001 parts, and may have 64: make it flatter."


def test_what_only_looks_like_such_a_key_or_number_is_read() -> None:
    long, digits = ".".join("a" * 400), "9" * 5_000
    text = f"a = \"\"\"\n{long} = 1\n{digits}\"\"\"\"\nb = '''{long}'\n'''\nc = \"{digits}\" # {long}\nd = '{long}'\n"
    assert read_toml(text, "config.toml") == {"a": f'{long} = 1\n{digits}"', "b": f"{long}'\n", "c": digits, "d": long}
    assert read_toml(f"{'a.' * 60}a = {'9' * 900}", "config.toml") != {}


def test_a_text_that_never_ends_is_refused_in_time() -> None:
    for text in ('"\\' * 100_000, "'" * 300_001, '"' * 300_001, '"""' + "\\" * 100_001):
        assert "the file is not TOML" in refused(text)


def test_a_large_number_of_a_run_is_a_text() -> None:
    number = "0x" + "f" * 5_000
    config = layer_config([("task", {"limit": 1})])
    assert override_config(config, [f"limit={number}"])["limit"].value == number


def test_a_large_number_in_json_is_refused() -> None:
    with pytest.raises(DefinitionInvalid, match=r"^a\.json: the file is not JSON"):
        read_json("9" * 5_000, "a.json")

"""Ids: one spelling of one number, and nothing that only looks like it."""

from __future__ import annotations

import pytest

from bubbot.errors import ConfigError
from bubbot.identity import is_id, numeric_id


@pytest.mark.parametrize("text", ["0", "7", "42", "-1001234567890", "18446744073709551615"])
def test_a_number_in_its_one_spelling_is_an_id(text: str) -> None:
    assert is_id(text)
    assert numeric_id(text) == numeric_id(int(text)) == numeric_id(f" {text}\n") == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "+7",
        "007",
        "-0",
        "--7",
        "7 ",
        "7\n",
        "4 2",
        "4_2",
        "1e3",
        "7.0",
        "@ann",
        "ann",
        "9" * 21,
        "9" * 5000,
        "٤٢",
        "४२",
        "４２",
        "4２",
        "²",
        "Ⅻ",
        "−7",
        "7\u200b",
        "\u202e24",
        "7\x00",
    ],
)
def test_what_only_looks_like_one_is_none(text: str) -> None:
    assert not is_id(text)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("@ann", "username"),
        ("４２", "another script"),
        ("٤٢", "another script"),
        ("007", "at most 20 digits"),
        ("9" * 5000, "at most 20 digits"),
        (10**25, "not a numeric id"),
        (True, "not a numeric id"),
        (4.2, "not a numeric id"),
        (None, "not a numeric id"),
        (["7"], "not a numeric id"),
    ],
)
def test_the_reason_is_named_and_the_value_cut(value: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        numeric_id(value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("@ann", "'@ann' is"),
        (10**20, "100000000000000000000 is"),
        (-(10**20), "-100000000000000000000 is"),
        ("x" * 38, f"'{'x' * 38}' is"),
        ("x" * 39, f"'{'x' * 39}... is"),
        ("https://ann:secret@example.org", "'https://***@example.org' is"),
        (10**100, f"{10**39}... is"),
    ],
)
def test_the_value_is_named_without_a_password_and_cut(value: object, shown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        numeric_id(value)
    assert str(caught.value).startswith(shown)


def test_a_number_has_at_most_twenty_digits() -> None:
    assert numeric_id(10**20 - 1) == "9" * 20
    assert numeric_id(1 - 10**20) == "-" + "9" * 20

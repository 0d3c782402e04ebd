"""Any `SKILL.md` and any folder: the reader raises nothing but `ConfigError`, and its verdict is that of the reference validator."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skills_ref import validate

from bubbot.errors import ConfigError
from bubbot.features.skills.document import read_document, write_document
from bubbot.features.skills.folder import read_folder

NAME = "pdf-forms"
KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools", "version", "Name", "a b", "")
VALUES = (
    NAME, "other", "PDF", "a--b", "-a", "", "''", '"x"', "d", "a: b", "a # b", "'it''s'", "[a, b]", '{"a": 1}', "{}", "|\n  text\n  more", ">-\n  folded",
    "\n  a: 1\n  b: x", "\n  - a\n  - b", "\n   a: 1", "&x y", "*x", "!!str x", "! x", "%x", "@x", "`x`", "null", "true", "1.0", "2024-01-01", "a --- b",
    "- a", "? a", "x" * 65, "x" * 501, "x" * 1_025, "技能", "é", "\t", "a\tb", "\n  a:\n    b: 1\n  c:\n    d: 2", "<<", "=", "~", "# x", "''' '", '"\\u0041"', '"\\x"',
)  # fmt: skip


@st.composite
def fronts(draw: st.DrawFn) -> str:
    """A front matter that is nearly right: lines with known and unknown keys, and values of all kinds."""
    lines = [f"name: {NAME}", "description: d"] if draw(st.integers(0, 4)) else []
    for _ in range(draw(st.integers(0, 4))):
        lines.insert(
            draw(st.integers(0, len(lines))), f"{draw(st.sampled_from(KEYS))}: {draw(st.sampled_from(VALUES))}"
        )
    return "\n".join(lines)


texts = st.one_of(
    fronts().map(lambda front: f"---\n{front}\n---\nText"),
    st.tuples(fronts(), st.sampled_from(["---", "--", "----", "\n---", "--- ", ""])).map(
        lambda each: f"---\n{each[0]}\n{each[1]}\n"
    ),
    st.lists(
        st.sampled_from(
            ["---", "\n", "name: pdf-forms", ": ", "- ", "'", '"', "[", "{", "&a", "*a", "#", "|", "\t", "x"]
        ),
        max_size=12,
    ).map("".join),
)


def judge(text: str) -> tuple[bool, bool]:
    """Whether a text is valid, as the reference validator and as ours say it; what makes that one raise is not valid."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        path.mkdir()
        (path / "SKILL.md").write_bytes(text.encode())
        try:
            is_valid = validate(path) == []
        except Exception:  # noqa: BLE001 - it has faults of its own
            is_valid = False
    return is_valid, read_document(text.encode(), NAME).is_valid


@settings(max_examples=200, deadline=None)
@given(texts)
def test_the_verdict_is_that_of_the_reference_validator(text: str) -> None:
    theirs, ours = judge(text)
    assert theirs == ours, text


@pytest.mark.proof
@settings(max_examples=5_000, deadline=None)
@given(texts)
def test_the_verdict_is_that_of_the_reference_validator_for_many(text: str) -> None:
    theirs, ours = judge(text)
    assert theirs == ours, text


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=400),
        st.text(max_size=300).map(lambda text: text.encode(errors="surrogatepass")),
        texts.map(str.encode),
    )
)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for whole in (data, b"---\n" + data, b"---\n" + data + b"\n---\n"):
        try:
            read_document(whole, NAME)
        except ConfigError as error:
            assert str(error)  # noqa: PT017 - whatever else it raises fails


@settings(max_examples=200, deadline=None)
@given(st.text(min_size=1, max_size=100), st.text(min_size=1, max_size=100))
def test_what_is_written_is_read_as_it_was_or_not_valid(description: str, body: str) -> None:
    try:
        document = read_document(write_document(NAME, description, body).encode(errors="replace"), NAME)
    except ConfigError:
        return
    if document.is_valid:
        assert document.description.split() == description.encode(errors="replace").decode().split()


KINDS = (
    "file",
    "folder",
    "link",
    "link out",
    "link loop",
    "pipe",
    "socket name",
    "hidden",
    "odd name",
    "long path",
    "empty",
)


def plant(folder: Path, kind: str, number: int) -> None:
    """Put one thing into a folder."""
    path = folder / f"{kind.replace(' ', '-')}{number}"
    match kind:
        case "file":
            path.write_bytes(os.urandom(20))
        case "folder":
            (path / "below").mkdir(parents=True)
            (path / "below" / "a.md").write_text("a")
        case "link":
            path.symlink_to("SKILL.md")
        case "link out":
            path.symlink_to("/etc/passwd")
        case "link loop":
            path.symlink_to(path.name)
        case "pipe":
            os.mkfifo(path)
        case "socket name":
            path.mkdir()
        case "hidden":
            (folder / f".git{number}").write_text("x")
        case "odd name":
            (folder / os.fsdecode(b"\xff\x1b[2J\n" + str(number).encode())).write_text("x")
        case "long path":
            deep = folder
            for _ in range(12):
                deep /= "d"
                deep.mkdir(exist_ok=True)
        case _:
            path.write_bytes(b"")


def refusals(kinds: list[str]) -> Iterator[str]:
    """The kinds among these with which no folder is a skill."""
    return (kind for kind in kinds if kind in ("link", "link out", "link loop", "pipe", "odd name", "long path"))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(KINDS), max_size=5))
def test_any_folder_is_read_whole_or_refused(kinds: list[str]) -> None:
    with TemporaryDirectory() as root:
        folder = Path(root) / NAME
        folder.mkdir()
        (folder / "SKILL.md").write_text(write_document(NAME, "d", "b"))
        for number, kind in enumerate(kinds):
            plant(folder, kind, number)
        refusal, found = "", None
        try:
            found = read_folder(folder)
        except ConfigError as error:
            refusal = str(error)
        assert refusal.isprintable()
        assert bool(refusal) is bool([*refusals(kinds)])
        assert found is None or {file.name for file in found.files} == {
            path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
        }

"""`SKILL.md`: the strict check agrees with the reference validator of the specification; the lenient reader reads what it can."""

from __future__ import annotations

from pathlib import Path

import pytest
from skills_ref import validate

from bubbot.errors import ConfigError
from bubbot.features.skills.document import MAX_FRONT_CHARS, MAX_SKILL_BYTES, read_document, write_document

NAME = "pdf-forms"
LONG = "x" * 1_025
GOOD = {
    "plain": "name: pdf-forms\ndescription: Fill in forms.",
    "quoted": "name: 'pdf-forms'\ndescription: \"Fill in: forms\"",
    "folded": "name: pdf-forms\ndescription: >\n  Fill in\n  forms.",
    "all fields": (
        "name: pdf-forms\ndescription: d\nlicense: MIT\ncompatibility: needs python\nmetadata:\n  author: x\n  version: 1.0\n"
        "allowed-tools: Bash(git:*) Read"
    ),
    "values that look typed": "name: pdf-forms\ndescription: 2024-01-01\nlicense: null",
    "a comment": "name: pdf-forms # the name\ndescription: d",
    "a sign that nobody looks at": "name: pdf-forms\ndescription: d\nlicense: =",
    "dashes": "name: pdf-forms\ndescription: a --- b",
    "the longest": f"name: pdf-forms\ndescription: {LONG[1:]}\ncompatibility: {'x' * 500}",
}
BAD = {
    "no name": "description: d",
    "no description": "name: pdf-forms",
    "an empty description": "name: pdf-forms\ndescription: ''",
    "another name": "name: other\ndescription: d",
    "capitals": "name: PDF-forms\ndescription: d",
    "an underscore": "name: pdf_forms\ndescription: d",
    "hyphens": "name: pdf--forms\ndescription: d",
    "a long description": f"name: pdf-forms\ndescription: {LONG}",
    "a long need": f"name: pdf-forms\ndescription: d\ncompatibility: {'x' * 501}",
    "another field": "name: pdf-forms\ndescription: d\nversion: 1",
    "JSON": 'name: pdf-forms\ndescription: d\nmetadata: {"author": "x"}',
    "a list in brackets": "name: pdf-forms\ndescription: d\nallowed-tools: [Read]",
    "a colon": "name: pdf-forms\ndescription: Use it: when asked",
    "twice": "name: pdf-forms\nname: pdf-forms\ndescription: d",
    "an anchor": "name: &a pdf-forms\ndescription: d",
    "an alias": "name: &a pdf-forms\ndescription: *a",
    "a tag": "name: pdf-forms\ndescription: !!python/object:os.system x",
    "a list": "- name: pdf-forms",
    "a text": "pdf-forms",
    "nothing": "",
    "a tab": "name: pdf-forms\ndescription:\n\t- d",
    "dashes before the name": "description: a --- b\nname: pdf-forms",
    "a sign": "name: pdf-forms\ndescription: d\ncompatibility: <<",
    "different indents": "name: pdf-forms\ndescription:\n   a: b\nmetadata:\n  a:\n     b: c\n  c:\n    d: e",
}
WHOLE = {
    "no front matter": "# Text",
    "no end": "---\nname: pdf-forms\ndescription: d\n",
    "a mark first": "\ufeff---\nname: pdf-forms\ndescription: d\n---\n",
}


def judge(folder: Path, text: str) -> tuple[bool, bool]:
    """Whether a text is valid, as the reference validator and as ours say it."""
    path = folder / NAME
    path.mkdir()
    (path / "SKILL.md").write_text(text, encoding="utf-8")
    return validate(path) == [], read_document(text.encode(), NAME).is_valid


@pytest.mark.parametrize("front", GOOD.values(), ids=GOOD)
def test_what_the_specification_allows_is_valid(tmp_path: Path, front: str) -> None:
    assert judge(tmp_path, f"---\n{front}\n---\nText") == (True, True)


@pytest.mark.parametrize("front", BAD.values(), ids=BAD)
def test_what_it_does_not_allow_is_named(tmp_path: Path, front: str) -> None:
    text = f"---\n{front}\n---\nText"
    assert judge(tmp_path, text) == (False, False)
    assert str(read_document(text.encode(), NAME).problems[0]).startswith("SKILL.md")


@pytest.mark.parametrize("text", WHOLE.values(), ids=WHOLE)
def test_a_text_without_front_matter_is_not_valid(tmp_path: Path, text: str) -> None:
    assert judge(tmp_path, text) == (False, False)


def test_the_lenient_reader_reads_values_in_braces() -> None:
    text = '---\nname: pdf-forms\ndescription: d\nmetadata: {"author": {"name": "x"}, "tags": ["a"]}\n---\nText'
    document = read_document(text.encode(), NAME)
    assert (document.name, document.description, document.body) == (NAME, "d", "Text")
    assert document.metadata == {"author": '{"name": "x"}', "tags": '["a"]'}


def test_the_lenient_reader_reads_lines_that_are_no_yaml() -> None:
    document = read_document(b"---\nname: pdf-forms\ndescription: Use it: when asked\n---\nText", NAME)
    assert (document.name, document.description) == (NAME, "Use it: when asked")
    assert [each.is_warning for each in document.problems] == [False, True]


def test_without_a_description_its_first_line_stands_for_it() -> None:
    assert read_document(b"# Forms\n\nFill them in.", NAME).description == "Forms"


def test_a_front_matter_that_would_grow_is_not_followed() -> None:
    laughs = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9) if n else 'x'}]\n" for n in range(20))
    document = read_document(f"---\nname: pdf-forms\ndescription: d\n{laughs}---\n".encode(), NAME)
    assert document.description == "d"
    assert not document.is_valid


@pytest.mark.parametrize(
    "front",
    ["a: " + "[" * 5_000, "- " * 5_000, "a: 1\n" * 3_000, "x" * (MAX_FRONT_CHARS + 1)],
    ids=["flow", "deep", "many", "long"],
)
def test_a_front_matter_beyond_its_limits_is_named(front: str) -> None:
    assert not read_document(f"---\nname: pdf-forms\ndescription: d\n{front}\n---\n".encode(), NAME).is_valid


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"x" * (MAX_SKILL_BYTES + 1), "has 262145 bytes"), (b"\xff", "is no UTF-8"), (b"a\0b", "has a NUL character")],
)
def test_what_is_no_text_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_document(data, NAME)


def test_a_long_text_is_a_warning() -> None:
    document = read_document(b"---\nname: pdf-forms\ndescription: d\n---\n" + b"line\n" * 501, NAME)
    assert document.is_valid
    assert "501 lines" in str(document.problems[0])


@pytest.mark.parametrize(
    "description", ["plain", 'with "quotes" and: a colon', "# no comment", "back\\slash", "{no: json}", "多语言", "'"]
)
def test_a_written_one_is_valid_and_read_as_it_was_written(tmp_path: Path, description: str) -> None:
    text = write_document(NAME, description, "# Text\n---\nmore")
    assert judge(tmp_path, text) == (True, True)
    document = read_document(text.encode(), NAME)
    assert (document.name, document.description, document.body) == (NAME, description, "# Text\n---\nmore")

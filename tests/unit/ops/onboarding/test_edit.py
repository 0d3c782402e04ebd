"""Changing one value in the text of a config.toml: that value, and not a byte besides."""

from __future__ import annotations

import tomllib
from typing import TypeAlias

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from bubbot.app.settings import describe_settings
from bubbot.errors import ConfigError
from bubbot.ops.onboarding.edit import format_toml, parse_toml, remove_key, set_key
from bubbot.ops.onboarding.existing import read_example

BOT = ("bot",)
WRITTEN = """\
# Mine.
[bot]   # the bot
name = "Ada # 1"   # who it is
#language = "en"

#[channels.telegram]
#owners = []
[log]
level = "debug"
"""
PLACES = [
    (tuple(one.section.split(".")), one.key)
    for one in describe_settings()
    if "<" not in one.section and isinstance(one.default, str | int | float) and not isinstance(one.default, bool)
]


def changed(before: str, after: str) -> list[tuple[str, str]]:
    """The lines that differ, where no line was added."""
    pairs = zip(before.split("\n"), after.split("\n"), strict=True)
    return [pair for pair in pairs if pair[0] != pair[1]]


def test_a_value_is_changed_in_its_line_and_its_comment_stays() -> None:
    assert changed(WRITTEN, set_key(WRITTEN, BOT, "name", "Bob")) == [
        ('name = "Ada # 1"   # who it is', 'name = "Bob"   # who it is')
    ]


def test_a_commented_default_becomes_the_line_of_the_value() -> None:
    assert changed(WRITTEN, set_key(WRITTEN, BOT, "language", "zh")) == [('#language = "en"', 'language = "zh"')]


def test_a_commented_section_is_switched_on_and_the_rest_of_it_stays() -> None:
    made = set_key(WRITTEN, ("channels", "telegram"), "owners", [42])
    assert changed(WRITTEN, made) == [
        ("#[channels.telegram]", "[channels.telegram]"),
        ("#owners = []", "owners = [42]"),
    ]


def test_what_has_no_line_gets_one_behind_the_last_of_its_section() -> None:
    assert '[log]\nlevel = "debug"\nformat = "x"' in set_key(WRITTEN, ("log",), "format", "x")


def test_what_has_no_section_gets_one_at_the_end() -> None:
    assert set_key(WRITTEN, ("model",), "name", "local") == f'{WRITTEN}\n[model]\nname = "local"\n'
    assert set_key("", ("a-b", "c d"), "e", 1) == '[a-b."c d"]\ne = 1\n'
    assert set_key('[bot]\nname="x"', ("log",), "level", "info") == '[bot]\nname="x"\n\n[log]\nlevel = "info"\n'
    assert set_key("[bot]", BOT, "name", "x") == '[bot]\nname = "x"\n'


@pytest.mark.parametrize("odd", ["\x85", "\u2028", "\u2029"])
def test_what_ends_a_line_elsewhere_does_not_end_one_here(odd: str) -> None:
    text = set_key(WRITTEN, BOT, "name", f"a{odd}b")
    assert changed(text, set_key(text, BOT, "name", "c")) == [
        (f'name = "a{odd}b"   # who it is', 'name = "c"   # who it is')
    ]


def test_line_ends_and_the_mark_of_the_encoding_stay() -> None:
    text = "\ufeff" + WRITTEN.replace("\n", "\r\n")
    made = set_key(set_key(text, BOT, "name", "Bob"), BOT, "persona", "kind")
    assert made.startswith("\ufeff# Mine.\r\n[bot]")
    assert "\n" not in made.replace("\r\n", "")


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ('bot.name = "x" # who\n', 'bot.name = "y" # who\n'),
        ('bot = {name = "x", language = "en"} # it\n', 'bot = {name = "y", language = "en"} # it\n'),
        ('[bot]\nname = """\nx""" # who\n# end\n', '[bot]\nname = "y" # who\n# end\n'),
        ('[bot]\npersona = """\n[log]\n"""\nname = """x\ny"""\n', '[bot]\npersona = """\n[log]\n"""\nname = "y"\n'),
        ("['bot']\n  'name'='x'#who\n", "['bot']\n  'name'=\"y\"#who\n"),
        ("[bot]\nname = ['a', # b\n]\n", '[bot]\nname = "y"\n'),
        # There is no line of the key, and no header to put one below.
        ("bot.language = 'zh' # its\n[log]\n", "bot.language = 'zh' # its\nbot.name = \"y\"\n[log]\n"),
        ("bot = {language = 'zh'}\n", "bot = {language = 'zh',name = \"y\"}\n"),
        ("log.level = '''\n[bot]\n#name = 1\n'''\n", "log.level = '''\n[bot]\n#name = 1\n'''\n\n[bot]\nname = \"y\"\n"),
    ],
)
def test_a_value_is_changed_in_whatever_form_it_is_written(text: str, edited: str) -> None:
    assert set_key(text, BOT, "name", "y") == edited
    assert set_key(text.replace("\n", "\r\n"), BOT, "name", "y") == edited.replace("\n", "\r\n")


def test_a_list_that_grows_keeps_what_is_in_it() -> None:
    text = "[bot]\nowners = [ # people\n  42, # me\n] # all\n"
    assert set_key(text, BOT, "owners", [42, 43]) == text.replace("# me\n", "# me\n  43,\n")
    assert set_key(text, BOT, "owners", [43]) == "[bot]\nowners = [43] # all\n"


def test_a_text_that_would_change_elsewhere_is_left_to_the_person() -> None:
    text = '[x]\n[["x".y]]\n[bot]\nname = """\nx"""\n'  # tomlkit writes the second line as [[x.y]]
    with pytest.raises(ConfigError, match=r'change it by hand \(\[bot\] name = "y"\)'):
        set_key(text, BOT, "name", "y")
    with pytest.raises(ConfigError, match=r"change it by hand \(remove \[bot\] name\)"):
        remove_key(text, BOT, "name")
    assert set_key(text, BOT, "language", "zh") == text.replace("[bot]", '[bot]\nlanguage = "zh"')


def test_a_value_with_a_line_of_its_own_is_changed_without_tomlkit_reading_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    parse = tomlkit.parse

    def note(text: str) -> tomlkit.TOMLDocument:
        read.append(text)
        return parse(text)

    monkeypatch.setattr(tomlkit, "parse", note)
    text = '[bot]\n#name = "me" # who\nname = "x" # mine\n#language = "en"\n[log]\nname = "z"\n'
    assert set_key(text, BOT, "name", "y") == text.replace('"x"', '"y"')
    assert set_key(text, BOT, "language", "zh") == text.replace('#language = "en"', 'language = "zh"')
    assert set_key(text, BOT, "persona", "kind") == text.replace("# mine\n", '# mine\npersona = "kind"\n')
    assert read == ['name = "x" # mine\n', 'language = "en"\n']


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("[bot]\n#  name = 'x' # who\n", '[bot]\nname = "y" # who\n'),
        (
            "[bot]\n# name = the name\n\n[log]\n#name = 1\n",
            '[bot]\nname = "y"\n# name = the name\n\n[log]\n#name = 1\n',
        ),
        ("# [bot] # it\n# 'name' = ''\n", '[bot] # it\nname = "y"\n'.replace("name", "'name'")),
        ("\ufeff#[bot]", '\ufeff[bot]\nname = "y"\n'),
        ("#[bot]\n\t[bot]\n#[log]\n#name = 1\n", '#[bot]\n\t[bot]\nname = "y"\n#[log]\n#name = 1\n'),
        ("a = 1\r\n[bot]\nb = 2\r\nname = 3\r\nc = 4\n", 'a = 1\r\n[bot]\nb = 2\r\nname = "y"\r\nc = 4\n'),
        ("a = 1\r\n#[bot]\r\n# b = 2\n", 'a = 1\r\n[bot]\r\nname = "y"\n# b = 2\n'),
        # The last line would come into the section.
        ("[log]\n#[bot]\nb = 2\n", '[log]\n#[bot]\nb = 2\n\n[bot]\nname = "y"\n'),
    ],
)
def test_a_comment_is_switched_on_only_if_it_is_the_key_or_the_section(text: str, edited: str) -> None:
    assert set_key(text, BOT, "name", "y") == edited


def test_names_may_stand_in_quotes() -> None:
    table = ("channels", "my bot")
    text = "# [channels . 'my bot']\n#\"the kind\"=1\n"
    assert set_key(text, table, "the kind", "x") == '[channels . \'my bot\']\n"the kind"="x"\n'
    live = "[log]\n[channels.'my bot']\n\"kind\" = 1 # one\n"
    assert set_key(live, table, "kind", "x") == live.replace("1 #", '"x" #')
    assert set_key("", table, "kind", "x") == '[channels."my bot"]\nkind = "x"\n'
    assert remove_key(live, table, "kind") == "[log]\n[channels.'my bot']\n"
    assert remove_key("channels.'my bot' = {a = 1, kind = 2} # mine\n", table, "a").endswith("{ kind = 2} # mine\n")
    assert remove_key("bot.a = 1\nbot.b = 2 # two\n", BOT, "b") == "bot.a = 1\n"


def test_a_section_that_is_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\[bot\] must be a section"):
        set_key("bot = 1\n", BOT, "name", "y")


def test_a_line_is_removed_and_nothing_else() -> None:
    assert remove_key(WRITTEN, BOT, "name") == WRITTEN.replace('name = "Ada # 1"   # who it is\n', "")
    assert remove_key(WRITTEN, BOT, "persona") == WRITTEN
    with pytest.raises(ConfigError, match=r"remove \[bot\] name"):
        remove_key('bot.name = "x"\n', BOT, "name")


@given(place=st.sampled_from(PLACES), value=st.text(st.characters(codec="utf-8")) | st.integers() | st.booleans())
def test_any_value_of_the_example_can_be_set_and_everything_else_is_as_it_was(
    place: tuple[tuple[str, ...], str], value: str | int
) -> None:
    table, key = place
    before = read_example()
    made = set_key(before, table, key, value)
    section = parse_toml(made)
    for name in table:
        section = section[name]
    assert section[key] == value
    assert len(changed(before, made)) == 1
    assert set_key(made, table, key, value) == made


NAMES = st.sampled_from(["bot", "log", "my bot", "\u00fc.x"])
VALUES = ['"x"  # it', "1", "[]", "[1, 2]# two", "[\n  1, # one\n]", '"""\n[bot]\n#name = 1\n"""', "'#'"]
TABLES = st.tuples(st.just("channels"), NAMES)
FORMS = st.sampled_from(["header", "comment", "dotted", "inline"])
Row: TypeAlias = tuple[str, object]
"""A line, and what it holds: a key of a table, a table (if the line may change with it), or None."""


@st.composite
def config_rows(draw: st.DrawFn) -> list[Row]:
    """The lines of a text with sections in several forms; what has no header stands above them."""
    top: list[Row] = [(draw(st.sampled_from(["# Mine.", "\ufeff# Mine."])), None)]
    below: list[Row] = []
    for table, form in draw(st.dictionaries(TABLES, FORMS)).items():
        head = ".".join(map(quoted, table))
        pairs = draw(st.dictionaries(NAMES, st.sampled_from(VALUES), max_size=3)).items()
        if form == "inline":
            top.append((f"{head} = {{{', '.join(f'{quoted(key)} = 1' for key, _ in pairs)}}} # inline", table))
        elif form == "dotted":
            for key, value in pairs:
                top += [(row, (table, key)) for row in f"{head} . {quoted(key)}={value}".split("\n")]
        else:
            mark = "# " if form == "comment" else ""
            below += [(f"{mark}[{head}] # head", table if mark else None), ("# prose", None)]
            for key, value in pairs:
                below += [(f"{mark}{row}", (table, key)) for row in f"{quoted(key)} = {value}".split("\n")]
            below.append(("", None))
    return top + below


def quoted(name: str) -> str:
    return name if name.isalpha() else f"'{name}'"


@given(config_rows(), TABLES, NAMES, st.sampled_from(["y", 5, [1, 2, 3]]), st.sampled_from(["\n", "\r\n"]))
def test_in_every_form_one_value_changes_and_all_other_lines_stay(
    rows: list[Row], table: tuple[str, str], key: str, value: str | int | list[int], end_of_line: str
) -> None:
    text = "".join(f"{row}{end_of_line}" for row, _ in rows)
    data = parse_toml(text)
    others = [row for row, holds in rows if holds not in (table, (table, key))]
    edited = set_key(text, table, key, value)
    data.setdefault(table[0], {}).setdefault(table[1], {})[key] = value
    assert parse_toml(edited) == data
    lines = iter(edited.split(end_of_line))
    assert [row for row in others if row not in lines] == []  # in this order: `in` reads on
    assert "\n" not in edited.replace(end_of_line, "")


@given(st.recursive(st.text(st.characters(codec="utf-8")) | st.integers() | st.booleans(), st.lists, max_leaves=3))
def test_a_value_is_written_as_toml_reads_it(value: str) -> None:
    assert tomllib.loads(f"x = {format_toml(value)}") == {"x": value}

"""Memory from the shell with the real command."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.e2e import bot
from tests.e2e.bot import sentence
from tests.e2e.inside import run, said
from tests.e2e.terminal import Terminal

NANOBOT = Path(__file__).parents[1] / "data" / "nanobot"
LASTING = {"BUBBOT_MEMORY__RETENTION_DAYS": "36500"}


def memory(home: Path, *arguments: str, lines: str | bytes = b"") -> str:
    done = run(home, "memory", *arguments, lines=lines, env=LASTING)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_what_is_saved_in_the_shell_is_what_the_chat_knows(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert b"version 1" in bot.run(home, "memory", "save", "default", "Likes green tea.").stdout
    assert "Likes green tea." in "\n".join(said(home, ",memory.recall"))
    assert "No longer there:\n- Likes green tea." in memory(
        home, "save", "--yes", "default", "-", lines="Ünï\r\nzwei\n"
    )
    assert memory(home, "show", "default").startswith("# Memory, version 2\n\n## Long-term memory\n\nÜnï\nzwei\n")


def test_forget_and_restore_tell_what_happened_and_the_way_back(tmp_path: Path) -> None:
    home = tmp_path / "home"
    memory(home, "save", "default", "Likes TEA.\nIs Ada.")
    printed = memory(home, "forget", "default", "tea")
    assert "- Likes TEA." in printed
    assert "`bubbot memory restore default 1`" in printed
    assert run(home, "memory", "forget", "default", "tea").returncode == 1
    assert "version 3" in memory(home, "restore", "default", "1")
    assert "Likes TEA." in memory(home, "show", "default")
    assert "Nothing changed" in memory(home, "restore", "default", "1")
    assert "the versions 1 to 3" in sentence(run(home, "memory", "restore", "default", "9"))


def test_an_export_imports_as_the_same_memory(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "memory.md"
    said(home, ",memory.save Likes tea.", ",memory.daily date=2026-11-20 Rain.", ",memory.daily Sun.", env=LASTING)
    memory(home, "export", "default", str(file))
    assert memory(home, "export", "default") == file.read_text()
    memory(home, "import", "other", str(file))
    before, after = file.read_text().split("\n", 1)[1], memory(home, "export", "other").split("\n", 1)[1]
    assert after == before


def test_a_folder_of_nanobot_becomes_the_memory(tmp_path: Path) -> None:
    home = tmp_path / "home"
    printed = memory(home, "import", "default", str(NANOBOT))
    assert "with 2 daily notes" in printed
    assert "Left out: HISTORY.md." in printed
    shown = memory(home, "show", "default")
    for part in (
        "- Name: Ada",
        "Keeps bees.",
        "### 2026-11-21\n\n# 2026-11-21\n\n- Grüße an Björn 🐝",
        "### 2026-11-20",
    ):
        assert part in shown
    assert "Keeps bees." in "\n".join(said(home, ",memory.recall bees", env=LASTING))
    copy = shutil.copytree(NANOBOT / "memory", tmp_path / "nb")
    memory(home, "import", "second", str(copy))
    assert memory(home, "show", "second") == shown.replace("restore default", "restore second")


def test_old_notes_are_told_before_they_leave(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "2020-01-01.md").write_text("Long ago.")
    printed = run(tmp_path / "home", "memory", "import", "default", str(folder)).stdout.decode()
    assert "1 of the 1 notes are of days more than 30 days ago or ahead" in printed


def test_an_import_puts_nothing_in_the_place_of_a_memory_unasked(tmp_path: Path) -> None:
    home, page = tmp_path / "home", tmp_path / "page.md"
    page.write_text("# My page\n\nJust text.\n")
    memory(home, "save", "default", "Old.")
    assert "--replace" in sentence(run(home, "memory", "import", "default", str(page)))
    printed = memory(home, "import", "default", str(page), "--replace")
    assert "`bubbot memory restore default 1`" in printed
    assert "# My page\n\nJust text." in memory(home, "show", "default")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("show", "nobody"), 1, "there is no tape nobody"),
        (("forget", "nobody", "x"), 1, "there is no tape nobody"),
        (("save", "default", " "), 2, "the text is empty"),
        (("forget", "default", " "), 2, "is empty"),
        (("show", "bubbot/inbox/stdin"), 2, "belongs to the system"),
        (("import", "default", "none.md"), 2, "cannot be read"),
        (("save", ":", "x"), 2, "is not a session"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    home = tmp_path / "home"
    said(home, "hi")
    before = run(home, "tape", "list").stdout
    done = run(home, "memory", *arguments)
    assert (done.returncode, words in sentence(done)) == (code, True), done.stderr
    assert run(home, "tape", "list").stdout == before


def test_an_empty_folder_and_a_text_that_is_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.md").write_bytes(b"# Memory\n\n\xff")
    assert "holds no memory" in sentence(run(tmp_path / "home", "memory", "import", "a", str(tmp_path / "empty")))
    assert "line 3 is not UTF-8" in sentence(run(tmp_path / "home", "memory", "import", "a", str(tmp_path / "bad.md")))
    assert "not UTF-8" in sentence(run(tmp_path / "home", "memory", "save", "a", "-", lines=b"\xff"))


def test_an_archive_keeps_its_memory_and_takes_no_other(tmp_path: Path) -> None:
    home = tmp_path / "home"
    memory(home, "save", "default", "Likes tea.")
    archive = run(home, "tape", "archive", "default").stdout.decode().strip()
    assert "Likes tea." in memory(home, "show", archive)
    assert "is an archive" in sentence(run(home, "memory", "save", "--yes", archive, "x"))
    assert "Likes tea." not in memory(home, "show", "default")


def test_the_memory_of_a_person_and_of_the_workspace_is_changed_as_that_of_a_session(tmp_path: Path) -> None:
    home, page = tmp_path / "home", tmp_path / "page.md"
    page.write_text("Has a boat.\n")
    for owner, words in (("--user", ("--user", "stdin:0")), ("--workspace", ("--workspace",))):
        reference = " ".join(words)
        assert "version 1" in memory(home, "save", *words, "Likes TEA.\nIs Ada.")
        printed = memory(home, "forget", *words, "tea")
        assert "- Likes TEA." in printed
        assert f"`bubbot memory restore {reference} 1`" in printed
        assert "version 3" in memory(home, "restore", "1", *words)
        assert "Likes TEA." in memory(home, "show", *words)
        assert "--replace" in sentence(run(home, "memory", "import", *words, str(page)))
        assert "version 4" in memory(home, "import", *words, str(page), "--replace")
        assert "Has a boat." in memory(home, "export", *words), owner
        assert "Likes TEA." not in memory(home, "show", *words)
    assert "\n".join(said(home, ",memory.recall boat", env=LASTING)).count("Has a boat.") == 2
    assert run(home, "memory", "show", "default").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("save", "default"), "the text is missing"),
        (("save", "--user", "stdin:0"), "the text is missing"),
        (("save", "--user", "nobody", "x"), "'nobody' is not an account"),
        (("save", "--workspace", "--user", "stdin:0", "x"), "name a session such as default, or --user"),
        (("forget", "--workspace"), "the text is missing"),
        (("restore", "--workspace"), "the version is missing"),
        (("restore", "--workspace", "x"), "'x' is not the number of a version"),
        (("show", "default", "--as-of", "0"), "'0' is not the number of an entry"),
        (("show", "default", "--as-of", "1.5"), "'1.5' is not the number of an entry"),
        (("import", "--workspace"), "the path is missing"),
        (("save", "--workspace", "default", "x"), "name a session such as default, or --user"),
    ],
)
def test_a_memory_that_is_not_named_right_stays_as_it_is(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = run(tmp_path / "home", "memory", *arguments)
    assert (done.returncode, words in sentence(done)) == (2, True), done.stderr


def test_all_memory_of_a_person_or_of_the_workspace_is_erased_after_a_yes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    named = (("--user", "stdin:0"), "the person with the account stdin:0"), (("--workspace",), "the workspace")
    for words, _ in named:
        memory(home, "save", *words, "Keeps bees.")
        memory(home, "save", "--yes", *words, "Keeps sheep.")
    for words, owner in named:
        question = f"Erase all memory of {owner}, with its older versions?"
        done = run(home, "memory", "erase", *words)
        assert (done.returncode, f"{question} There is no terminal" in sentence(done)) == (2, True)
        with Terminal(home, "memory", "erase", *words, first="[y/N] ", script=None, **LASTING) as terminal:
            terminal.type("n\n")
            assert terminal.ended() == 1
        assert "Keeps sheep." in memory(home, "show", *words)
        assert f"Erased all memory of {owner}: 2 entries." in memory(home, "erase", *words, "--yes")
        assert "Keeps" not in memory(home, "show", *words)
        again = run(home, "memory", "erase", *words, "--yes")
        assert (again.returncode, again.stdout.decode()) == (1, f"Erased all memory of {owner}: 0 entries.\n")
    left = [path.name for path in home.rglob("*") if path.is_file() and b"Keeps" in path.read_bytes()]
    assert left == []


@pytest.mark.parametrize("words", [(), ("--workspace", "--user", "stdin:0")])
def test_an_erasure_that_names_no_memory_or_two_asks_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run(tmp_path / "home", "memory", "erase", *words)
    assert (done.returncode, "name --user CHANNEL:ID or --workspace" in sentence(done)) == (2, True)


def test_lines_go_only_after_a_yes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert bot.run(home, "memory", "save", "default", "Likes green tea.\nIs Ada.").returncode == 0
    refused = bot.run(home, "memory", "save", "default", "-", lines=b"Is Ada.\n")
    assert refused.returncode == 2
    assert "- Likes green tea." in refused.stderr.decode()
    assert "bubbot memory save --yes does not ask" in refused.stderr.decode()
    assert b"green tea" in bot.run(home, "memory", "show", "default").stdout
    assert (
        bot.run(home, "memory", "save", "default", "-", lines=b"Is Ada.\nLikes green tea.\nHas a cat.\n").returncode
        == 0
    )
    replaced = bot.run(home, "memory", "save", "--yes", "default", "-", lines=b"Is Ada.\n")
    assert "No longer there:\n- Likes green tea.\n- Has a cat." in replaced.stdout.decode()

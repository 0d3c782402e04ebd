"""Files below a root: nothing outside is reached, and a change is whole or did not happen."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from bubbot.features.files.feature import files_feature
from bubbot.features.files.settings import FileSettings
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.store import TapeStore
from tests.unit.features.files.test_tools import Begin, owner, refusal, shown_digest, use

Act = Callable[..., Awaitable[str]]
LINK = "links are not followed"


@pytest.fixture
def store(memory_store: InMemoryStore) -> TapeStore:
    """One store: files do not know which it is."""
    return memory_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a file, a folder with another one, and beside it a secret."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.txt").write_text("the canary")
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "a.txt").write_text("one\ntwo\n")
    (root / "inner" / "b.md").write_text("Two and THREE\n")
    return root


@pytest.fixture
async def act(begin: Begin, root: Path) -> Act:
    """Uses a tool for files on a path below the root, for an owner; `refused` tells what is refused."""
    settings = FileSettings(enabled=True, roots=[str(root)], max_bytes=1_000)
    tools = {tool.name: tool for tool in files_feature(root.parent / "home", settings).tools}
    turn = await begin(**owner())

    async def act(name: str, path: str, *, refused: bool = False, **values: object) -> str:
        do = refusal if refused else use
        return (await do(tools[f"file.{name}"], turn, path=f"{root}/{path}".rstrip("/"), **values)).replace(
            f"{root}/", ""
        )

    return act


class TestReading:
    async def test_it_reads_a_file_and_knows_a_missing_one(self, act: Act) -> None:
        assert (await act("read", "a.txt")).endswith("\none\ntwo")
        for path in ("nothing.txt", "nothing/at/all.txt"):
            assert await act("read", path, refused=True) == f"There is no file {path}; file_list shows what is there."

    async def test_a_link_is_not_followed_wherever_it_stands(self, act: Act, root: Path) -> None:
        (root / "file-link").symlink_to(root.parent / "secret" / "key.txt")
        (root / "folder-link").symlink_to(root.parent / "secret")
        (root / "inner-link").symlink_to("inner")
        for path in ("file-link", "folder-link/key.txt", "inner-link/b.md"):
            assert LINK in await act("read", path, refused=True)

    @pytest.mark.parametrize(
        ("path", "reason"),
        [
            ("pipe", "a device or a pipe"),
            ("inner", "is a folder, not a file"),
            ("a.txt/deeper", "is not a folder"),
            ("", "is a folder, not a file"),
            ("x" * 300, "cannot be read"),
        ],
    )
    async def test_what_is_no_file_is_refused_at_once(self, act: Act, root: Path, path: str, reason: str) -> None:
        os.mkfifo(root / "pipe")
        assert reason in await act("read", path, refused=True)

    async def test_a_file_as_large_as_the_limit_is_read_and_a_larger_one_is_not_read_to_its_end(
        self, act: Act, root: Path
    ) -> None:
        (root / "full").write_bytes(b"x" * 1_000)
        (root / "over").write_bytes(b"x" * 1_001)
        with (root / "huge").open("wb") as huge:
            huge.truncate(1 << 40)
        assert "lines 1 to 1 of 1" in await act("read", "full")
        assert "1001 bytes; the limit is 1 kB" in await act("read", "over", refused=True)
        assert "the limit is 1 kB" in await act("read", "huge", refused=True)


class TestReplacing:
    async def test_it_makes_the_folders_and_the_file(self, act: Act, root: Path) -> None:
        await act("write", "x/y/c.txt", content="new")
        assert (root / "x" / "y" / "c.txt").read_bytes() == b"new"

    async def test_it_keeps_the_rights_of_a_file(self, act: Act, root: Path) -> None:
        (root / "a.txt").chmod(0o600)
        await act("write", "a.txt", content="new", digest=shown_digest("one\ntwo\n"))
        assert (root / "a.txt").stat().st_mode & 0o777 == 0o600

    @pytest.mark.parametrize("name", ["a.txt", "new.txt"])
    async def test_a_file_that_somebody_else_changes_meanwhile_stays(
        self, act: Act, root: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        replace = vars(sys.modules["bubbot.features.files.service"])["replace_file"]

        def late(*args: object) -> None:
            (root / name).write_text("theirs")
            replace(*args)

        monkeypatch.setattr("bubbot.features.files.service.replace_file", late)
        given = {"digest": shown_digest("one\ntwo\n")} if name == "a.txt" else {}
        said = await act("write", name, refused=True, content="new", **given)
        assert "was changed meanwhile by somebody else" in said
        assert (root / name).read_text() == "theirs"

    async def test_it_changes_nothing_behind_a_link(self, act: Act, root: Path) -> None:
        (root / "folder-link").symlink_to(root.parent / "secret")
        assert LINK in await act("write", "folder-link/new.txt", refused=True, content="new")
        assert sorted(item.name for item in (root.parent / "secret").iterdir()) == ["key.txt"]

    async def test_another_name_of_a_file_outside_keeps_its_content(self, act: Act, root: Path) -> None:
        outside = root.parent / "secret" / "key.txt"
        (root / "hard").hardlink_to(outside)
        await act("write", "hard", content="new", digest=shown_digest("the canary"))
        assert ((root / "hard").read_text(), outside.read_text()) == ("new", "the canary")

    async def test_what_a_killed_process_left_is_hidden_and_goes_with_the_next_change(
        self, act: Act, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names, real = list[str](), os.rename

        def noted(source: str, target: str, **folders: int) -> None:
            names.append(source)
            real(source, target, **folders)

        monkeypatch.setattr(os, "rename", noted)
        await act("write", "c.txt", content="1")
        assert names[0].startswith(".bubbot-")
        (root / names[0]).write_text("half")
        assert names[0] not in await act("list", "")
        await act("write", "c.txt", content="2", digest=shown_digest("1"))
        assert sorted(await asyncio.to_thread(os.listdir, root)) == ["a.txt", "c.txt", "inner"]


class TestFolders:
    async def test_it_lists_by_depth_and_pattern(self, act: Act, root: Path) -> None:
        (root / "link").symlink_to("/")
        listed = (await act("list", "")).splitlines()
        assert [line.split()[0].rstrip("/") for line in listed] == ["a.txt", "inner", "link"]
        assert "8" in listed[0]
        (found,) = (await act("list", "", pattern="*.md", depth=5)).splitlines()
        assert found.startswith("inner/b.md")

    async def test_a_long_list_ends_and_says_so(self, act: Act, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bubbot.features.files.commands.MAX_LISTED_ITEMS", 2)
        assert (await act("list", "", depth=5)).splitlines()[2] == (
            "… and more: only 2 are listed; name a folder or a pattern."
        )

    async def test_it_finds_text_in_any_case_and_not_behind_links(self, act: Act, root: Path) -> None:
        (root / "link").symlink_to(root.parent / "secret")
        (root / "binary").write_bytes(b"two \xff")
        assert (await act("search", "", text="TWO")).splitlines() == ["a.txt:2: two", "inner/b.md:1: Two and THREE"]
        assert "No file in" in await act("search", "", text="canary")

    @pytest.mark.parametrize(
        ("limits", "pattern", "is_cut"),
        [
            ({"lines": 10}, "many.txt", True),
            ({"files": 1}, "", True),
            ({"files": 1, "bytes": 200, "file_bytes": 200}, "many.txt", False),
            ({"bytes": 20}, "", True),
            ({"walked": 2}, "*.none", True),
        ],
    )
    async def test_a_search_ends_at_its_limits_and_says_so(
        self,
        act: Act,
        root: Path,
        monkeypatch: pytest.MonkeyPatch,
        limits: dict[str, int],
        pattern: str,
        *,
        is_cut: bool,
    ) -> None:
        (root / "many.txt").write_text("two\n" * 50)
        usual = {"files": 99, "bytes": 9_999, "file_bytes": 9_999, "lines": 99, "depth": 20, "walked": 99}
        monkeypatch.setattr("bubbot.features.files.commands.SearchLimits", lambda: SimpleNamespace(**usual | limits))
        assert ("the search stopped here" in await act("search", "", text="two", pattern=pattern)) is is_cut

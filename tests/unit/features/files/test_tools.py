"""The tools for files: who reaches what, and what the tape keeps of a change."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from bubbot.errors import CommandRefused, ConfigError, ToolFailed, ToolRetry
from bubbot.features.files.feature import files_feature
from bubbot.features.files.settings import FileSettings
from bubbot.ports.channel import Inbound, Role, Sender, session_folder
from bubbot.ports.turn import AcceptedInbound, Turn
from bubbot.tool import GrantKind, GrantTarget, Power, Tool, plan_call

Begin = Callable[..., Any]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text("one\ntwo\n")
    return notes


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def tools(home: Path, notes: Path) -> dict[str, Tool]:
    settings = FileSettings(enabled=True, roots=[str(notes)], max_bytes=1_000, workspace_bytes=2_000)
    return {tool.name: tool for tool in files_feature(home, settings).tools}


def owner(*, direct: bool = True) -> dict[str, Any]:
    sent = Inbound("stdin", "1", "default", Sender("1"), "go", "2026-11-24T10:00:00Z", direct=direct)
    return {"role": Role.OWNER, "inbounds": [AcceptedInbound(1, sent)]}


async def use(tool: Tool, turn: Turn, **values: Any) -> str:
    output = await tool.run(turn, tool.validate(values))
    assert isinstance(output, str)
    return output


async def refusal(tool: Tool, turn: Turn, **values: Any) -> str:
    with pytest.raises((ToolRetry, ToolFailed)) as raised:
        await use(tool, turn, **values)
    return str(raised.value)


def shown_digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


class TestReach:
    async def test_a_chat_has_a_workspace_that_no_other_chat_reaches(
        self, begin: Begin, tools: dict[str, Tool], home: Path
    ) -> None:
        turn, other = await begin(), await begin(session="telegram:7")
        await use(tools["file.write"], turn, path="plan/a.txt", content="the canary")
        file = session_folder(home, turn.session) / "workspace" / "plan" / "a.txt"
        assert file.read_text() == "the canary"
        assert "There is no file" in await refusal(tools["file.read"], other, path="plan/a.txt")
        assert "outside" in await refusal(tools["file.read"], other, path=str(file))
        assert "canary" not in await use(tools["file.search"], other, text="canary")

    @pytest.mark.parametrize(
        "asker", [{}, owner(direct=False), {"role": Role.OWNER}, owner() | {"role": Role.ADMIN}], ids=str
    )
    async def test_only_owners_in_direct_chats_reach_the_roots(
        self, begin: Begin, tools: dict[str, Tool], notes: Path, asker: dict[str, Any]
    ) -> None:
        if not asker.get("inbounds") and asker.get("role") == Role.OWNER:
            job = structs.replace(owner()["inbounds"][0].inbound, origin="schedule")
            asker = asker | {"inbounds": [AcceptedInbound(1, job)]}
        turn = await begin(**asker)
        for name, values in (
            ("file.read", {}), ("file.list", {}), ("file.search", {"text": "one"}), ("file.write", {"content": "x"}),
        ):  # fmt: skip
            assert "outside" in await refusal(tools[name], turn, path=str(notes / "a.txt"), **values)

    async def test_an_owner_reaches_them(self, begin: Begin, tools: dict[str, Tool], notes: Path) -> None:
        turn = await begin(**owner())
        text = await use(tools["file.read"], turn, path=f"{notes}/a.txt", first=2)
        assert (
            text == f"{notes}/a.txt: lines 2 to 2 of 2; digest {shown_digest('one' + chr(10) + 'two' + chr(10))}\ntwo"
        )

    @pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "~root/x", "\0", "x" * 5_000, "notes2/../a"])
    async def test_no_path_leads_outside(self, begin: Begin, tools: dict[str, Tool], path: str) -> None:
        turn = await begin(**owner())
        if path == "x" * 5_000 or path.startswith(("..", "a/", "/", "\0", "notes2", "~")):
            await refusal(tools["file.read"], turn, path=path)
        await refusal(tools["file.write"], turn, path=path, content="x")

    async def test_a_root_beside_another_of_the_same_beginning_is_not_inside_it(
        self, begin: Begin, tools: dict[str, Tool], notes: Path
    ) -> None:
        (notes.parent / "notes2").mkdir()
        assert "outside" in await refusal(tools["file.list"], await begin(**owner()), path=f"{notes}2")

    @pytest.mark.parametrize("key", ["roots", "read_only"])
    @pytest.mark.parametrize("root", ["/", "{home}", "{home}/sessions", "notes", "{home}/../home", "{link}"])
    def test_a_root_around_or_in_the_home_is_refused(self, home: Path, key: str, root: str) -> None:
        link = home.parent / "link"
        link.symlink_to(home)
        settings = FileSettings(enabled=True, **{key: [root.format(home=home, link=link)]})  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=rf"\[tools.files\] {key} has"):
            files_feature(home, settings)

    async def test_nothing_is_changed_in_a_read_only_root(self, begin: Begin, home: Path, notes: Path) -> None:
        settings = FileSettings(enabled=True, roots=[str(notes.parent / "other")], read_only=[str(notes)])
        tools = {tool.name: tool for tool in files_feature(home, settings).tools}
        turn = await begin(**owner())
        assert "read-only" in await refusal(tools["file.write"], turn, path=f"{notes}/b.txt", content="x")
        assert os.listdir(notes) == ["a.txt"]  # noqa: PTH208 - ruff takes the other for slow

    async def test_a_read_only_folder_is_that_under_the_name_of_a_link_to_it_too(
        self, begin: Begin, home: Path, notes: Path
    ) -> None:
        (notes / "old").mkdir()
        linked = notes.parent / "linked"
        linked.symlink_to(notes)
        settings = FileSettings(enabled=True, roots=[str(linked)], read_only=[str(notes / "old")])
        tools = {tool.name: tool for tool in files_feature(home, settings).tools}
        turn, write = await begin(**owner()), tools["file.write"]
        said = await refusal(write, turn, path=f"{linked}/old/b.txt", content="x")
        assert f"{notes}/old is read-only" in said
        await use(write, turn, path=f"{linked}/new.txt", content="x")
        assert not list((notes / "old").iterdir())

    async def test_the_home_of_a_user_who_is_unknown_is_no_path(self, begin: Begin, tools: dict[str, Tool]) -> None:
        assert "is not a path" in await refusal(tools["file.read"], await begin(), path="~nobody-of-this-name/a")

    async def test_a_name_is_on_one_line(self, begin: Begin, tools: dict[str, Tool], home: Path) -> None:
        turn, write = await begin(), tools["file.write"]
        name = "a\n--- before\n+++ after\n\u202etxt.b"
        plan = await plan_call(turn, write, write.validate({"path": name, "content": "x"}))
        assert plan.details.splitlines()[0] == repr(name)
        await use(write, turn, path=name, content="x")
        assert (await use(tools["file.list"], turn)).splitlines() == [f"{name!r}  1 byte"]
        assert (await use(tools["file.search"], turn, text="x")).splitlines() == [f"{name!r}:1: x"]

    def test_it_has_nothing_while_it_is_off(self, home: Path) -> None:
        feature = files_feature(home, FileSettings())
        assert not feature.tools
        assert not feature.prompt


class TestChanges:
    async def test_a_file_is_replaced_only_if_this_version_was_read(self, begin: Begin, tools: dict[str, Tool]) -> None:
        turn, write = await begin(), tools["file.write"]
        await use(write, turn, path="a", content="1")
        assert "read it first" in await refusal(write, turn, path="a", content="2")
        assert "Read it again" in await refusal(write, turn, path="a", content="2", digest=shown_digest("other"))
        assert "Read it again" in await refusal(write, turn, path="a", content="2", digest=shown_digest("1")[:4])
        await use(write, turn, path="a", content="2", digest=shown_digest("1"))
        assert "exactly that already" in await use(write, turn, path="a", content="2")

    async def test_an_edit_names_one_place(self, begin: Begin, tools: dict[str, Tool]) -> None:
        turn, edit = await begin(), tools["file.edit"]
        await use(tools["file.write"], turn, path="a", content="tea, tea")
        given = {"path": "a", "digest": shown_digest("tea, tea")}
        assert "2 times" in await refusal(edit, turn, **given, old="tea", new="milk")
        assert "does not contain" in await refusal(edit, turn, **given, old="milk", new="tea")
        await use(edit, turn, **given, old="tea", new="milk", everywhere=True)
        assert "milk, milk" in await use(tools["file.read"], turn, path="a")

    async def test_the_plan_shows_the_changed_lines_and_the_version(self, begin: Begin, tools: dict[str, Tool]) -> None:
        turn, edit = await begin(), tools["file.edit"]
        await use(tools["file.write"], turn, path="a", content="one\ntwo\nthree\n")
        args = edit.validate({"path": "a", "digest": shown_digest("one\ntwo\nthree\n"), "old": "two", "new": "2"})
        plan = await plan_call(turn, edit, args)
        assert [line for line in plan.details.splitlines() if line[:1] in "+-"][2:] == ["-two", "+2"]
        assert plan.state == sha256(b"one\ntwo\nthree\n").hexdigest()
        assert plan.effect.power is Power.NONE
        assert "three" in await use(tools["file.read"], turn, path="a")

    async def test_a_change_in_a_folder_of_the_owner_says_so(
        self, begin: Begin, tools: dict[str, Tool], notes: Path
    ) -> None:
        turn, write = await begin(**owner()), tools["file.write"]
        plan = await plan_call(turn, write, write.validate({"path": str(notes / "new"), "content": "x"}))
        assert plan.effect.power is Power.FOLDERS
        assert plan.target == GrantTarget(GrantKind.FOLDER, str(notes))

    async def test_a_change_is_a_fact_with_both_versions(self, begin: Begin, tools: dict[str, Tool]) -> None:
        turn = await begin()
        await use(tools["file.write"], turn, path="a", content="1")
        await use(tools["file.write"], turn, path="a", content="2", digest=shown_digest("1"))
        fact = next(entry for entry in reversed(turn.tape.delta) if entry.name == "file/changed").payload["data"]
        assert [await turn.tape.get_blob(fact[version]) for version in ("before", "after")] == [b"1", b"2"]

    async def test_an_edit_that_would_make_a_file_too_large_is_refused_before_it_is_made(
        self, begin: Begin, tools: dict[str, Tool]
    ) -> None:
        turn, text = await begin(), "a" * 900
        await use(tools["file.write"], turn, path="a", content=text)
        tracemalloc.start()
        try:
            values = {"digest": shown_digest(text), "old": "a", "new": "b" * 100_000, "everywhere": True}
            assert "max_bytes" in await refusal(tools["file.edit"], turn, path="a", **values)
            assert tracemalloc.get_traced_memory()[1] < 10_000_000, "it would have had 90 MB"
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize("places", [10, 50_000])
    async def test_a_change_in_many_places_is_shown_whole_at_once(self, begin: Begin, home: Path, places: int) -> None:
        """To find the least difference would take hours, in which the bot would stand still."""
        tools = {
            tool.name: tool for tool in files_feature(home, FileSettings(enabled=True, max_bytes=10_000_000)).tools
        }
        turn, edit = await begin(), tools["file.edit"]
        old = "".join(f"{number}\n" for number in range(places))
        folder = session_folder(home, turn.session) / "workspace"
        folder.mkdir(parents=True)
        (folder / "a").write_text(f"first\nsame\nsame\n{old}last\n")
        values = {"path": "a", "digest": shown_digest((folder / "a").read_bytes().decode()), "old": "\n", "new": "\n\n"}
        plan = await plan_call(turn, edit, edit.validate({**values, "everywhere": True}))
        lines = plan.details.splitlines()
        assert [line[1:] for line in lines[4:] if line[0] != "-"] == (folder / "a").read_text().replace(
            "\n", "\n\n"
        ).splitlines()
        assert lines[3] == f"@@ -1,{places + 4} +1,{2 * places + 8} @@"

    async def test_many_changed_lines_are_shown_with_those_around_them(
        self, begin: Begin, tools: dict[str, Tool]
    ) -> None:
        """More than can be compared: all that were there, then all that come."""
        old, new = (f"1\n2\n3\n{lines}4\n5\n6\n" for lines in ("\n" * 700, "a\n" * 400))
        turn, write = await begin(), tools["file.write"]
        await use(write, turn, path="a", content=old)
        plan = await plan_call(turn, write, write.validate({"path": "a", "content": new, "digest": shown_digest(old)}))
        changed = [" 2", " 3", *["-"] * 700, *["+a"] * 400, " 4", " 5"]
        assert plan.details.split("\n")[3:] == ["@@ -2,704 +2,404 @@", *changed]

    @pytest.mark.parametrize(
        ("old", "new", "changed"),
        [
            ("a\nb\n", "a\x0cb\n", ["-a", "-b", "+a\x0cb"]),
            ("a\nb\n", "a\u2028b\n", ["-a", "-b", "+a\u2028b"]),
            ("a\nb\n", "a\r\nb\r\n", ["-a", "-b", "+a<U+000D>", "+b<U+000D>"]),
            ("a\r\nb\r\n", "a\r\nc\r\n", [" a", "-b", "+c"]),  # as in the rest of the file
            ("a\r\nb\r\n", "a\nb\r\n", ["-a<U+000D>", "+a", " b<U+000D>"]),
            ("a\n", "a", ["-a", "+a<no line end>"]),
            ("a", "b", ["-a", "+b"]),
        ],
    )
    async def test_no_change_of_line_ends_is_hidden(
        self, begin: Begin, tools: dict[str, Tool], old: str, new: str, changed: list[str]
    ) -> None:
        turn, write = await begin(), tools["file.write"]
        await use(write, turn, path="a", content=old)
        args = write.validate({"path": "a", "content": new, "digest": shown_digest(old)})
        plan = await plan_call(turn, write, args)
        assert plan.details.split("\n")[4:] == changed

    async def test_a_difference_names_the_lines_of_the_whole_file(self, begin: Begin, tools: dict[str, Tool]) -> None:
        turn, text = await begin(), "".join(f"{number}\n" for number in range(100))
        await use(tools["file.write"], turn, path="a", content=text)
        edit = tools["file.edit"]
        values = {"path": "a", "digest": shown_digest(text), "old": "50\n", "new": "fifty\nmore\n"}
        plan = await plan_call(turn, edit, edit.validate(values))
        changed = ["@@ -49,5 +49,6 @@", " 48", " 49", "-50", "+fifty", "+more", " 51", " 52"]
        assert plan.details.splitlines() == ["a", "--- before", "+++ after", *changed]

    async def test_undo_goes_back_and_forth(self, begin: Begin, tools: dict[str, Tool]) -> None:
        turn, undo = await begin(), tools["file.undo"]
        await use(tools["file.write"], turn, path="a", content="1")
        first = next(entry.id for entry in turn.tape.delta if entry.name == "file/changed")
        await use(tools["file.write"], turn, path="a", content="2", digest=shown_digest("1"))
        await use(undo, turn, path="a")
        assert "\n1" in await use(tools["file.read"], turn, path="a")
        await use(undo, turn, path="a")
        assert "\n2" in await use(tools["file.read"], turn, path="a")
        await use(undo, turn, path="a", entry=first)
        assert "\n1" in await use(tools["file.read"], turn, path="a")

    @pytest.mark.parametrize("odd", [{"path": "b"}, {"path": "a"}, {"path": 5}, {"change": "x"}, {}], ids=str)
    @pytest.mark.parametrize("name", ["file/changed", "file/failed"])
    async def test_undo_passes_over_records_that_cannot_be_read(
        self, begin: Begin, tools: dict[str, Tool], odd: dict[str, Any], name: str
    ) -> None:
        turn = await begin()
        await use(tools["file.write"], turn, path="a", content="1")
        await use(tools["file.write"], turn, path="a", content="2", digest=shown_digest("1"))
        await turn.tape.append_event(name, odd)
        await use(tools["file.undo"], turn, path="a")
        assert "\n1" in await use(tools["file.read"], turn, path="a")

    async def test_a_lost_file_comes_back_from_the_tape(self, begin: Begin, tools: dict[str, Tool], home: Path) -> None:
        turn = await begin()
        await use(tools["file.write"], turn, path="a", content="1")
        entry = next(entry.id for entry in turn.tape.delta if entry.name == "file/changed")
        (session_folder(home, turn.session) / "workspace" / "a").unlink()
        assert "somebody else" in await refusal(tools["file.undo"], turn, path="a")
        await use(tools["file.undo"], turn, path="a", entry=entry)
        assert "\n1" in await use(tools["file.read"], turn, path="a")

    async def test_a_change_that_a_kill_prevented_is_not_undone(
        self, begin: Begin, tools: dict[str, Tool], home: Path
    ) -> None:
        turn = await begin()
        await use(tools["file.write"], turn, path="a", content="1")
        fact = next(entry for entry in turn.tape.delta if entry.name == "file/changed").payload["data"]
        # The fact of the next change is durable; then the process dies before the file changes.
        await turn.tape.append_event(
            "file/changed", {**fact, "before": sha256(b"1").hexdigest(), "after": sha256(b"2").hexdigest()}
        )
        assert "is gone" in await use(tools["file.undo"], turn, path="a")

    async def test_a_change_that_fails_says_so_on_the_tape(
        self, begin: Begin, tools: dict[str, Tool], home: Path
    ) -> None:
        turn = await begin()
        await use(tools["file.write"], turn, path="in/a", content="1")
        folder = session_folder(home, turn.session) / "workspace" / "in"
        (folder / "a").unlink()
        folder.rmdir()
        folder.write_text("no folder")
        assert "not a folder" in await refusal(tools["file.write"], turn, path="in/b", content="2")
        assert not [entry for entry in turn.tape.delta if entry.name == "file/failed"]  # nothing was announced

    async def test_a_change_that_fails_after_it_was_announced_is_followed_by_its_failure(
        self, begin: Begin, tools: dict[str, Tool], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        turn = await begin()

        def fail(*_: object) -> None:
            raise CommandRefused("file_forbidden", path="a")

        monkeypatch.setattr("bubbot.features.files.service.replace_file", fail)
        await refusal(tools["file.write"], turn, path="a", content="1")
        changed, failed = (
            next(one for one in turn.tape.delta if one.name == name) for name in ("file/changed", "file/failed")
        )
        assert failed.payload["data"] == {"change": changed.id, "reason": "file_forbidden"}

    @pytest.mark.parametrize(("content", "words"), [("x" * 1_001, "max_bytes"), ("x" * 900, "workspace_bytes")])
    async def test_sizes_are_limited(self, begin: Begin, tools: dict[str, Tool], content: str, words: str) -> None:
        turn = await begin()
        for name in ("a", "b"):
            await use(tools["file.write"], turn, path=name, content="y" * 600)
        assert words in await refusal(tools["file.write"], turn, path="c", content=content)

    async def test_what_is_no_text_is_not_shown(self, begin: Begin, tools: dict[str, Tool], notes: Path) -> None:
        (notes / "b").write_bytes(b"\xff\xfe")
        assert "not text" in await refusal(tools["file.read"], await begin(**owner()), path=f"{notes}/b")

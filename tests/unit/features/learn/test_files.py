"""Exported files are exported again: as they are, in another format, and not at all if they or their people say no."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from bubbot.features.people.consent import CONSENT_TAPE, WITHDRAWN
from bubbot.features.people.facts import Consent
from bubbot.home import Home
from bubbot.stores.sqlite.store import open_store
from bubbot.tape.service import TapeService
from tests.doubles import SteppingClock
from tests.e2e import inside
from tests.family import MEMBER, OWNER
from tests.learn.exports import has_lines
from tests.learn.home import CHAT, TEAM, LearnHome
from tests.learn.validators import CHECKS
from tests.trace.home import apart

RECEIPT = ".receipt.json"
EMPTY = {"openai-preference", "trl-preference", "trl-kto"}
"""Formats that hold nothing of a file without what they are made of: a choice, or a reward."""


def again(home: Path, form: str, path: Path, out: Path, *options: str) -> subprocess.CompletedProcess[bytes]:
    return inside.run(home, "export", form, "--from", str(path), "--out", str(out), *options)


def receipt(path: Path) -> Any:
    return json.loads(path.with_name(path.name + RECEIPT).read_text("utf-8"))


def copy_export(path: Path, folder: Path) -> Path:
    """Copy a file with its receipt."""
    shutil.copy(path.with_name(path.name + RECEIPT), folder)
    return Path(shutil.copy(path, folder))


def forge(path: Path, data: bytes, **fields: object) -> None:
    """Put other bytes into a file, and let its receipt say that it is so."""
    known = receipt(path)
    path.write_bytes(data)
    known |= {"bytes": len(data), "sha256": sha256(data).hexdigest(), **fields}
    path.with_name(path.name + RECEIPT).write_text(json.dumps(known))


def withdraw(home: Path, person: str, purpose: str = "training") -> None:
    async def append() -> None:
        store = await open_store(Home(home).database, salt=os.urandom, now=SteppingClock())
        tape = TapeService(store, CONSENT_TAPE, now=SteppingClock(), new_id=str)
        await tape.append([Consent("tg", person, purpose).to_entry(WITHDRAWN)])
        await store.aclose()

    apart(append())


@pytest.mark.parametrize("form", CHECKS)
def test_a_file_exported_again_has_the_same_bytes(
    home: LearnHome, exports: dict[str, list[Path]], tmp_path: Path, form: str
) -> None:
    for path in exports[form]:
        out = tmp_path / path.name
        done = again(home.path, form, path, out)
        assert done.returncode == 0, done.stderr
        assert out.read_bytes() == path.read_bytes()
        before, after = receipt(path), receipt(out)
        assert after.pop("source") == {"file": path.name, "format": before["format"], "sha256": before["sha256"]}
        assert before.pop("source") is None
        counts = {"turns": 0, "steps": 0, "rewarded": 0}  # as far as the file says them
        assert [part | counts for part in after.pop("slices")] == [part | counts for part in before.pop("slices")]
        assert after == before


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("source", "form"), [*product(CHECKS, CHECKS)])
def test_readers_accept_what_becomes_of_each_format(
    home: LearnHome, exports: dict[str, list[Path]], tmp_path: Path, source: str, form: str
) -> None:
    for path in exports[source]:
        out = tmp_path / "out"
        done = again(home.path, form, path, out, "--json")
        if has_lines(source) and not has_lines(form):
            assert b"one slice" in done.stderr
        elif done.returncode:
            assert b"there is nothing to export (" in done.stderr
            assert form in EMPTY or source in ("openai-preference", "trl-preference")
        else:
            CHECKS[form](out.read_bytes())
            assert not json.loads(done.stdout)["receipt"]["is_complete"] or receipt(path)["is_complete"]
            out.unlink()
            out.with_name(out.name + RECEIPT).unlink()


def test_a_trajectory_becomes_the_rows_that_its_chat_has(
    home: LearnHome, exports: dict[str, list[Path]], tmp_path: Path
) -> None:
    for chat, path in zip((CHAT, TEAM), exports["atif"], strict=True):
        direct, out = (tmp_path / f"{name}{chat}" for name in ("direct", "again"))
        assert inside.run(home.path, "export", "trl-sft", chat, "--out", str(direct)).returncode == 0
        assert again(home.path, "trl-sft", path, out).returncode == 0
        # Arguments that are no JSON were shown to later requests in another form than their model wrote them in.
        rows = direct.read_bytes().replace(b'"arguments": {"not_json": ', b'"arguments": {"text": ').splitlines()
        assert [json.loads(line) for line in out.read_bytes().splitlines()] == [*map(json.loads, rows)]


class TestPeople:
    """What was allowed when the file was written counts only as long as it is allowed."""

    @pytest.mark.parametrize("form", CHECKS)
    @pytest.mark.parametrize("person", [OWNER, MEMBER])
    def test_a_file_is_refused_if_somebody_took_the_consent_back(
        self, home: LearnHome, exports: dict[str, list[Path]], tmp_path: Path, form: str, person: str
    ) -> None:
        copy = shutil.copytree(home.path, tmp_path / "home")
        withdraw(copy, person, receipt(exports[form][0])["purpose"])
        for path in exports[form]:
            done = again(copy, form, path, tmp_path / path.name)
            is_refused = person == OWNER or path == exports[form][-1]
            assert done.returncode == (2 if is_refused else 0), done.stderr
            if done.returncode:
                assert b"may not be exported any more (consent, entry " in done.stderr
                assert not (tmp_path / path.name).exists()

    def test_another_purpose_is_refused(self, home: LearnHome, exports: dict[str, list[Path]], tmp_path: Path) -> None:
        done = again(home.path, "inspect", exports["atif"][0], tmp_path / "out", "--for", "evaluation")
        assert done.returncode == 2
        assert b"was exported for training" in done.stderr
        assert again(home.path, "inspect", exports["atif"][0], tmp_path / "out").returncode == 0
        assert receipt(tmp_path / "out")["purpose"] == "training"

    def test_a_file_of_a_chat_that_was_put_away_is_refused(
        self, home: LearnHome, exports: dict[str, list[Path]], tmp_path: Path
    ) -> None:
        copy = shutil.copytree(home.path, tmp_path / "home")
        assert inside.run(copy, "tape", "archive", CHAT).returncode == 0
        done = again(copy, "atif", exports["atif"][0], tmp_path / "out")
        assert done.returncode == 2
        assert b"is not in this home as it was when it was exported" in done.stderr
        assert again(copy, "atif", exports["atif"][1], tmp_path / "out").returncode == 0

    def test_a_file_of_another_home_is_refused(self, exports: dict[str, list[Path]], tmp_path: Path) -> None:
        other = tmp_path / "home"
        assert inside.run(other, "ask", "Hello").returncode == 0
        done = again(other, "atif", exports["atif"][0], tmp_path / "out")
        assert done.returncode == 2
        assert b"is not in this home" in done.stderr


class TestWrongFiles:
    """Files that are not what they seem, and receipts that lie."""

    @pytest.fixture
    def path(self, exports: dict[str, list[Path]], tmp_path: Path) -> Path:
        return copy_export(exports["atif"][0], tmp_path)

    @pytest.fixture
    def rows(self, exports: dict[str, list[Path]], tmp_path: Path) -> Path:
        return copy_export(exports["openai-chat"][0], tmp_path)

    def refuse(self, home: LearnHome, path: Path, words: str, form: str = "atif", *options: str) -> None:
        out = path.with_name("out")
        done = again(home.path, form, path, out, *options)
        assert done.returncode == 2, done.stderr
        assert words in done.stderr.decode(), done.stderr
        assert not [*path.parent.glob("out*")]

    def test_a_changed_file_is_refused(self, home: LearnHome, path: Path) -> None:
        path.write_bytes(path.read_bytes().replace(b"Lisbon", b"London"))
        self.refuse(home, path, "is not the file of its receipt")
        path.write_bytes(b"")
        self.refuse(home, path, "is not the file of its receipt")

    @pytest.mark.parametrize("kind", ["pipe", "device"])
    @pytest.mark.parametrize("is_receipt", [False, True])
    def test_what_may_never_answer_or_end_is_not_read(
        self, home: LearnHome, path: Path, kind: str, *, is_receipt: bool
    ) -> None:
        forge(path, b"")  # such as the size of a device
        bad = path.with_name(path.name + RECEIPT) if is_receipt else path
        bad.unlink()
        os.mkfifo(bad) if kind == "pipe" else bad.symlink_to("/dev/zero")
        self.refuse(home, path, "it is no file")

    @pytest.mark.parametrize("depth", [700, 900, 990])
    def test_what_can_just_be_decoded_is_not_nested_too_deeply_for_the_rest(
        self, home: LearnHome, rows: Path, depth: int
    ) -> None:
        lines = rows.read_bytes().splitlines(keepends=True)
        row = json.loads(next(line for line in lines if b'"tools"' in line))
        row["tools"][0]["function"]["parameters"] = {"deep": "HERE"}
        line = json.dumps(row).replace('"HERE"', "[" * depth + "]" * depth).encode()
        forge(rows, b"\n".join([line] * len(lines)) + b"\n")
        self.refuse(home, rows, "nested too deeply", "openai-chat")

    @pytest.mark.parametrize(("source", "form"), [("areal", "inspect"), ("inspect", "inspect")])
    def test_a_result_of_no_call_is_refused(
        self, home: LearnHome, exports: dict[str, list[Path]], tmp_path: Path, source: str, form: str
    ) -> None:
        path = copy_export(exports[source][0], tmp_path)
        document = json.loads(path.read_bytes())
        rows = document.get("samples") or document["interactions"].values()
        result = next(each for row in rows for each in row["messages"] if each["role"] == "tool")
        del result["tool_call_id"]
        forge(path, json.dumps(document).encode())
        self.refuse(home, path, "without `tool_call_id` - at `$.", form)

    def test_a_file_without_a_receipt_is_refused(self, home: LearnHome, path: Path) -> None:
        receipt_path = path.with_name(path.name + RECEIPT)
        receipt_path.unlink()
        self.refuse(home, path, "only with its receipt beside it")
        receipt_path.mkdir()
        self.refuse(home, path, "only with its receipt beside it")
        self.refuse(home, path.with_name("nothing"), "cannot be read")
        self.refuse(home, path.parent, "cannot be read")

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "is no receipt"),
            ("[]", "is no receipt"),
            ("{}", "is no receipt"),
            ("[" * 100_000, "is no receipt"),
            ('{"format": 7}', "$.format"),
        ],
    )
    def test_what_is_no_receipt_is_refused(self, home: LearnHome, path: Path, text: str, words: str) -> None:
        path.with_name(path.name + RECEIPT).write_text(text)
        self.refuse(home, path, words)

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"format": "ATIF 9"}, "unknown format 'ATIF 9'"),
            ({"slices": []}, "names 0 slices"),
            ({"purpose": "fun"}, "$.purpose"),
            ({"records": "many"}, "$.records"),
        ],
    )
    def test_a_receipt_of_no_export_is_refused(
        self, home: LearnHome, path: Path, fields: dict[str, Any], words: str
    ) -> None:
        forge(path, path.read_bytes(), **fields)
        self.refuse(home, path, words)

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"tape": "bubbot/home", "last": 1}, "is not in this home"),
            ({"tape": "../../etc/passwd"}, "is not in this home"),
            ({"last": 10**15}, "is not in this home"),
            ({"first": -5}, "is not in this home"),
            ({"first": 40}, "has other turns now"),
            ({"turn_ids": ""}, "has other turns now"),
            ({"records": -1}, "records"),
            ({"records": 10**30}, "records"),
        ],
    )
    def test_a_receipt_of_another_slice_is_refused(
        self, home: LearnHome, path: Path, fields: dict[str, Any], words: str
    ) -> None:
        (part,) = receipt(path)["slices"]
        forge(path, path.read_bytes(), slices=[{**part, **fields}])
        self.refuse(home, path, words)

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"", "the file: Input data was truncated"),
            (b"not JSON", "the file: JSON is malformed"),
            (b"\xff\xfe", "the file: "),
            (b"{}", "missing required field"),
            (b'{"extra":' + b'{"more":' * 200_000, "nested too deeply"),
            (b"[" * 1_000_000, "the file: Expected `object`"),
            (b"\xef\xbb\xbf{}", "the file: JSON is malformed"),
            (b'{"extra": 1' + b"0" * 400 + b"}", "the file: "),
        ],
    )
    def test_what_is_no_trajectory_is_refused(self, home: LearnHome, path: Path, data: bytes, words: str) -> None:
        forge(path, data)
        self.refuse(home, path, words)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda doc: doc["steps"][3].update(message=7), "$.steps[3].message"),
            (lambda doc: doc["steps"][2].update(source="tool"), "$.steps[2].source"),
            (lambda doc: doc["steps"][2].update(more=1), "`more` - at `$.steps[2]`"),
            (lambda doc: doc.update(schema_version="ATIF-v9"), "$.schema_version"),
            (lambda doc: doc.update(subagent_trajectories=[]), "which is not in the file"),
            (lambda doc: doc["subagent_trajectories"][0].update(steps=[]), "no step of a model"),
        ],
    )
    def test_an_error_names_the_place_in_a_trajectory(
        self, home: LearnHome, path: Path, change: Any, words: str
    ) -> None:
        document = json.loads(path.read_bytes())
        change(document)
        forge(path, json.dumps(document).encode())
        self.refuse(home, path, words)

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            (b"\n", "line 2: Input data was truncated"),
            (b"[1]\n", "line 2: Expected `object`"),
            (b'{"messages": [{"role": "developer", "content": ""}]}\n', "line 2: Invalid enum value 'developer'"),
            (b'{"messages": [{"role": "user", "content": ["words"]}]}\n', "$.messages[0].content[0]"),
            (b'{"messages": []}\n', "line 2: no answer of an assistant"),
            (b'{"messages": [{"role": "user", "content": "Hello"}]}\n', "line 2: no answer of an assistant"),
            (b'{"messages": ' + b'[{"content":' * 100_000, "line 2: "),
            (b'{"messages": [{"role": "assistant", "content": "' + b"x" * 3_000_000 + b'"}]\n', "line 2: "),
        ],
    )
    def test_an_error_names_the_line(self, home: LearnHome, rows: Path, line: bytes, words: str) -> None:
        first, *rest = rows.read_bytes().splitlines(keepends=True)
        forge(rows, first + line + b"".join(rest))
        self.refuse(home, rows, words, "openai-chat")

    def test_a_file_stands_alone(self, home: LearnHome, path: Path) -> None:
        for option in (CHAT, "--discount=0.5"):
            done = inside.run(home.path, "export", "atif", "--from", str(path), option, "--out", str(path) + "2")
            assert done.returncode == 2
            assert b"stands alone" in done.stderr
        done = inside.run(home.path, "export", "atif", "--out", str(path) + "2")
        assert done.returncode == 2
        assert b"name what to export" in done.stderr

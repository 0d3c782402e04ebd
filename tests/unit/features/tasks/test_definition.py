"""A definition: read from a folder that may hold anything, stored with a run, and told apart by its digest."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from bubbot.features.tasks.config import ConfigValue
from bubbot.features.tasks.definition import (
    MAX_FILE_BYTES,
    MAX_FILES,
    TaskDefinition,
    list_definitions,
    load_definition,
)
from bubbot.features.tasks.sources import DefinitionInvalid
from bubbot.tape.entry import encode, freeze

SCHEMA = '[nodes.a]\nprompt = "x"\nartifact = "schemas/a.json"\n'
SCRIPT = "Feature: order\n"
FILES = {
    "task.toml": SCHEMA,
    "config.toml": "limit = 3\n",
    "schemas/a.json": '{"type": "object"}',
    "scripts/order.feature": SCRIPT,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "tasks" / "digest", FILES)


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def load(folder: Path) -> TaskDefinition:
    return load_definition(folder, {"limit": 1, "mode": "dry"}, {"limit": 2})


def refused(folder: Path) -> list[str]:
    with pytest.raises(DefinitionInvalid) as caught:
        load(folder)
    return [str(problem) for problem in caught.value.problems]


def test_a_folder_is_read_with_its_schema_config_contracts_and_scripts(folder: Path) -> None:
    write(folder, {"scripts/b.feature": "Feature: b\n", "scripts/notes.txt": "no script", "other.json": "not read"})
    definition = load(folder)
    assert definition.name == "digest"
    assert definition.schema.nodes["a"].artifact == {"type": "object"}
    assert definition.config == {"limit": ConfigValue(3, "task"), "mode": ConfigValue("dry", "product")}
    assert list(definition.harness.items()) == [
        ("scripts/b.feature", "Feature: b\n"),
        ("scripts/order.feature", SCRIPT),
    ]


def test_a_task_needs_nothing_but_its_schema(tmp_path: Path) -> None:
    definition = load_definition(write(tmp_path / "small", {"task.toml": '[nodes.a]\nprompt = "x"'}), {}, {})
    assert (definition.config, definition.harness) == ({}, {})


def test_a_task_comes_back_equal_from_its_json(folder: Path) -> None:
    definition = load(folder)
    text = encode(definition.to_json())
    assert TaskDefinition.of_json(json.loads(text)) == definition
    assert TaskDefinition.of_json(freeze(json.loads(text))).digest == definition.digest


def test_what_a_later_version_added_to_a_snapshot_is_ignored(folder: Path) -> None:
    stored = load(folder).to_json()
    stored["later"] = stored["schema"]["later"] = 1
    assert TaskDefinition.of_json(stored) == load(folder)


def test_a_snapshot_that_is_none_is_refused() -> None:
    with pytest.raises(DefinitionInvalid, match="snapshot: this version cannot read it"):
        TaskDefinition.of_json({"name": "digest"})


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("task.toml", SCHEMA + "steps = 3\n"),
        ("config.toml", "limit = 4\n"),
        ("schemas/a.json", '{"type": "array"}'),
        ("scripts/order.feature", SCRIPT + "\n"),
        ("scripts/more.feature", SCRIPT),
    ],
)
def test_the_digest_changes_with_each_file(folder: Path, path: str, text: str) -> None:
    before = load(folder).digest
    assert load(folder).digest == before
    write(folder, {path: text})
    assert load(folder).digest != before


def test_the_digest_changes_with_the_layers_and_the_name(folder: Path) -> None:
    digests = {
        load(folder).digest,
        load_definition(folder, {"limit": 1, "mode": "wet"}, {}).digest,
        load_definition(folder, {"limit": 1}, {"mode": "dry"}).digest,
        load_definition(write(folder.parent / "other", FILES), {"limit": 1, "mode": "dry"}, {}).digest,
    }
    assert len(digests) == 4


def test_the_problems_of_all_sources_are_told_at_once(folder: Path) -> None:
    write(
        folder,
        {
            "task.toml": "titel = 1\n[nodes.a]\nprompt = 3",
            "config.toml": "limit = 1\nlimit = 2",
            "scripts/a.feature": b"Feature: \n\xff",
            "scripts/b.feature": b"\xff",
        },
    )
    assert [problem.partition(": ")[0] for problem in refused(folder)] == [
        "titel", "nodes.a.prompt", "config.toml:2", "scripts/a.feature:2", "scripts/b.feature:1",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["Digest", "a b", "1a", "a" * 33, "digest.d"])
def test_a_folder_without_the_name_of_a_task_is_refused(tmp_path: Path, name: str) -> None:
    assert "is not the name of a task" in refused(write(tmp_path / name, FILES))[0]


@pytest.mark.parametrize("name", ["..", ".", "../digest"])
def test_a_path_that_leads_elsewhere_names_no_task(folder: Path, name: str) -> None:
    with pytest.raises(DefinitionInvalid):
        load(folder / "scripts" / Path(name))


def test_a_missing_folder_and_a_missing_schema_are_told(tmp_path: Path) -> None:
    assert refused(tmp_path / "gone") == ["name: there is no task 'gone': No such file or directory."]
    (tmp_path / "bare").mkdir()
    assert refused(tmp_path / "bare") == ["task.toml: the file is missing: add it to the task's folder."]


@pytest.mark.parametrize(
    "path",
    ["../a.json", "/etc/a.json", "schemas/../../a.json", "./a.json", "a", "a.toml", "", "schemas//a.json", "~/a.json", "a\\u0000.json",
     "a/b/c/d/e/f.json", ".hidden.json"],
)  # fmt: skip
def test_a_contract_outside_of_the_folder_is_refused(folder: Path, path: str) -> None:
    write(folder.parent, {"a.json": "{}"})
    write(folder, {"task.toml": f'[nodes.a]\nprompt = "x"\nartifact = "{path}"'})
    (problem,) = refused(folder)
    assert "the path of a file within the task's folder" in problem


@pytest.mark.parametrize("path", FILES)
def test_a_link_is_not_followed(folder: Path, path: str) -> None:
    outside = write(folder.parent.parent, {"secret": FILES[path]}) / "secret"
    (folder / path).unlink()
    (folder / path).symlink_to(outside)
    (problem,) = refused(folder)
    assert "links are not followed" in problem


@pytest.mark.parametrize("name", ["scripts", "schemas"])
def test_a_link_to_a_folder_is_not_followed(folder: Path, name: str) -> None:
    (folder / name).rename(folder.parent.parent / name)
    (folder / name).symlink_to(folder.parent.parent / name)
    (problem,) = refused(folder)
    assert "is not a folder, or is a link" in problem


def test_a_task_that_is_itself_a_link_is_refused_and_not_listed(folder: Path) -> None:
    link = folder.parent / "linked"
    link.symlink_to(folder)
    assert "is a link" in refused(link)[0]
    assert list_definitions(folder.parent) == ["digest"]


@pytest.mark.parametrize("path", ["config.toml", "scripts/order.feature"])
def test_what_is_no_file_is_refused(folder: Path, path: str) -> None:
    (folder / path).unlink()
    os.mkfifo(folder / path)
    assert refused(folder) == [f"{path}: it is not a file: put a file in its place."]
    (folder / path).unlink()
    (folder / path).mkdir()
    assert refused(folder) == [f"{path}: it is not a file: put a file in its place."]


def test_a_file_may_have_a_megabyte(folder: Path) -> None:
    write(folder, {"scripts/order.feature": "x" * MAX_FILE_BYTES})
    assert len(load(folder).harness["scripts/order.feature"]) == MAX_FILE_BYTES
    write(folder, {"scripts/order.feature": "x" * (MAX_FILE_BYTES + 1)})
    assert refused(folder) == ["scripts/order.feature: the file is larger than 1000000 bytes: shorten it."]


def test_a_task_may_have_64_files(folder: Path) -> None:
    others = len(FILES) - 1
    write(folder, {f"scripts/s{number:02}.feature": "" for number in range(MAX_FILES - others - 1)})
    assert len(load(folder).harness) == MAX_FILES - others
    write(folder, {"scripts/zz.feature": ""})
    assert refused(folder) == ["scripts/zz.feature: it is one file too many: a task may have 64."]
    write(folder, {f"scripts/t{number:02}.feature": "" for number in range(MAX_FILES)})
    assert refused(folder) == ["scripts: there are 126 scripts, and a task may have 64 files."]


def test_a_script_whose_name_cannot_be_stored_is_refused(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder / "scripts") + b"/\xff.feature")).touch()
    assert "has characters that cannot be shown" in refused(folder)[0]


def test_the_mark_with_which_some_editors_begin_a_file_is_left_out(folder: Path) -> None:
    write(folder, {"task.toml": b"\xef\xbb\xbf" + SCHEMA.encode()})
    assert load(folder).schema.nodes.keys() == {"a"}


def test_nothing_stays_open(folder: Path) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    load(folder)
    write(folder, {"task.toml": b"\xff"})
    refused(folder)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_the_tasks_of_a_folder_are_its_folders_with_a_schema(folder: Path) -> None:
    tasks = folder.parent
    write(tasks, {"b/task.toml": "", "Bad/task.toml": "", "empty/config.toml": "", "file": ""})
    assert list_definitions(tasks) == ["b", "digest"]
    assert list_definitions(tasks / "gone") == []
    assert list_definitions(tasks / "file") == []


def test_a_definition_cannot_be_changed(folder: Path) -> None:
    with pytest.raises(AttributeError, match="immutable"):
        load(folder).name = "other"  # type: ignore[misc]
    assert msgspec.structs.asdict(load(folder)).keys() == {"name", "schema", "config", "harness"}

"""The definition of a task: its schema, config and harness as one value, and how it is read from its folder.

Everything that reads a folder blocks; call it in a thread.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bubbot.features.tasks.config import HOME, PRODUCT, TASK, ConfigValue, layer_config
from bubbot.features.tasks.schema import NODE_NAME, NODE_NAME_FORM, SCHEMA_FILE, TaskSchema, parse_schema
from bubbot.features.tasks.sources import DefinitionInvalid, read_toml
from bubbot.formatting import show_value
from bubbot.tape.entry import JsonObject, canonical, encode, thaw
from bubbot.toml_tables import Problem

CONFIG_FILE = "config.toml"
SCRIPTS_FOLDER = "scripts"
SCRIPT_ENDING = ".feature"
MAX_FILE_BYTES = 1_000_000
MAX_FILES = 64
_CONTRACT_PATH = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}/){0,4}[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}\.json")
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: a named pipe without a writer would hold the thread for ever. A terminal must not become the bot's.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class TaskDefinition(Struct, frozen=True, kw_only=True, dict=True):
    """Everything that is fixed of a task before a run: a run keeps a copy, so that later changes of the folder don't reach it.

    Attributes:
        name: of its folder.
        schema: with the contracts of all artifacts, those in files too.
        config: by dotted key, in the order in which the layers name them.
        harness: the texts of the scripts by path, such as `scripts/order.feature`, sorted.
    """

    name: str
    schema: TaskSchema
    config: Mapping[str, ConfigValue]
    harness: Mapping[str, str]

    @cached_property
    def digest(self) -> str:
        """The digest of all of it: equal digests mean equal sources, except for comments in TOML."""
        return sha256(canonical(self.to_json()).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object, from which `of_json` makes an equal one."""
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made

    def to_text(self) -> str:
        """Return it as JSON, from which `of_text` makes an equal one."""
        return encode(self.to_json())

    @classmethod
    def of_text(cls, text: str) -> TaskDefinition:
        """Read what `to_text` made; see `of_json`. Raise `DefinitionInvalid`."""
        try:
            value = json.loads(text)  # unlike msgspec it reads whole numbers of any size
        except ValueError as error:
            raise DefinitionInvalid([Problem("snapshot", f"it is not JSON: {error}")]) from error
        return cls.of_json(value)

    @classmethod
    def of_json(cls, value: JsonObject) -> TaskDefinition:
        """Read what `to_json` made, frozen or not; ignore keys of later versions. Raise `DefinitionInvalid`."""
        try:
            return msgspec.convert(thaw(value), cls)
        except msgspec.ValidationError as error:
            raise DefinitionInvalid([Problem("snapshot", f"this version cannot read it: {error}")]) from error


def list_definitions(folder: Path) -> list[str]:
    """Return the names of the tasks in a folder of tasks, sorted: its real folders with a file `task.toml`; none if it is missing."""
    try:
        with os.scandir(folder) as scan:
            names = [item.name for item in scan if item.is_dir(follow_symlinks=False) and is_task_name(item.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name for name in names if os.path.lexists(folder / name / SCHEMA_FILE))


def read_home_config(folder: Path) -> dict[str, Any]:
    """Read the layer of the home: `config.toml` of the folder of tasks, which may be a link itself; no file, no values.

    Raises:
        DefinitionInvalid: it cannot be read.
    """
    if not folder.is_dir():
        return {}
    try:
        with _open_task(folder.resolve()) as files:
            return files.read_config()
    except DefinitionInvalid as error:
        problems = [replace(each, where=f"{folder.name}/{each.where}") for each in error.problems]
        raise DefinitionInvalid(problems) from error


def is_task_name(name: str) -> bool:
    """Return true for a name of the form of a task, which names a folder and leads nowhere else."""
    return re.fullmatch(NODE_NAME, name) is not None


def load_definition(folder: Path, product: Mapping[str, Any], home: Mapping[str, Any]) -> TaskDefinition:
    """Read a task from its folder. Links are not followed, the folder itself included.

    Args:
        folder: the task's own folder; its name is that of the task.
        product: the weakest layer of the config, as tables.
        home: the layer above it; `config.toml` of the folder is the one above that.

    Raises:
        DefinitionInvalid: with the problems of all sources.
    """
    if not is_task_name(folder.name):
        raise DefinitionInvalid(
            [Problem("name", f"{show_value(folder.name)} is not the name of a task: write {NODE_NAME_FORM}")]
        )
    with _open_task(folder) as files:
        return files.load(folder.name, product, home)


def has_texts(folder: Path, texts: Mapping[str, str]) -> bool:
    """Return true if the folder of a task has these files, as they are. Links are not followed."""
    try:
        with _open_task(folder) as files:
            return all(files.read(path) == text for path, text in texts.items())
    except DefinitionInvalid:
        return False


@contextmanager
def _open_task(folder: Path) -> Iterator[_TaskFiles]:
    try:
        opened = os.open(folder, _FOLDER_FLAGS)
    except OSError as error:
        raise DefinitionInvalid([Problem("name", f"there is no task {folder.name!r}: {_reason(error)}")]) from error
    try:
        yield _TaskFiles(opened)
    finally:
        os.close(opened)


class _TaskFiles:
    """The files of one open folder, each read once. Each part of a path is opened in the folder before it."""

    def __init__(self, folder: int) -> None:
        self._folder = folder
        self._texts: dict[str, str] = {}
        self._count = 0

    def load(self, name: str, product: Mapping[str, Any], home: Mapping[str, Any]) -> TaskDefinition:
        """Read all sources. Raise `DefinitionInvalid` with the problems of all of them."""
        problems: list[Problem] = []
        schema: TaskSchema | None = None
        config: dict[str, ConfigValue] = {}
        harness: dict[str, str] = {}
        with _collected(problems):
            schema = parse_schema(self._read_required(SCHEMA_FILE), self.read_contract)
        with _collected(problems):
            config = layer_config([(PRODUCT, product), (HOME, home), (TASK, self.read_config())])
        with _collected(problems):
            for path in self._list_scripts():
                with _collected(problems):
                    harness[path] = self._read_required(path)
        if problems or schema is None:
            raise DefinitionInvalid(problems)
        return TaskDefinition(name=name, schema=schema, config=config, harness=harness)

    def read_config(self) -> dict[str, Any]:
        """Read `config.toml`; no file, no values. Raise `DefinitionInvalid`."""
        text = self.read(CONFIG_FILE)
        return read_toml(text, CONFIG_FILE) if text is not None else {}

    def read_contract(self, path: str) -> str:
        """Return the text of a contract. Raise `DefinitionInvalid`."""
        if not _CONTRACT_PATH.fullmatch(path):
            message = (
                "a contract is a table, or the path of a file within the task's folder, such as schemas/items.json"
            )
            raise DefinitionInvalid([Problem(show_value(path), message)])
        return self._read_required(path)

    def _read_required(self, path: str) -> str:
        text = self.read(path)
        if text is None:
            raise DefinitionInvalid([Problem(path, "the file is missing: add it to the task's folder")])
        return text

    def read(self, path: str) -> str | None:
        """Return the text of a file; None if it is missing. Raise `DefinitionInvalid`."""
        if path in self._texts:
            return self._texts[path]
        if self._count >= MAX_FILES:
            raise DefinitionInvalid([Problem(path, f"it is one file too many: a task may have {MAX_FILES}")])
        try:
            data = self._read_bytes(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DefinitionInvalid([Problem(path, f"the file cannot be read: {_reason(error)}")]) from error
        self._count += 1
        if data is None:
            raise DefinitionInvalid([Problem(path, "it is not a file: put a file in its place")])
        if len(data) > MAX_FILE_BYTES:
            raise DefinitionInvalid([Problem(path, f"the file is larger than {MAX_FILE_BYTES} bytes: shorten it")])
        try:
            text = data.decode("utf-8-sig")  # some editors begin a file with a mark
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            raise DefinitionInvalid([Problem(f"{path}:{line}", "the file is not UTF-8: save it as UTF-8")]) from error
        self._texts[path] = text
        return text

    def _read_bytes(self, path: str) -> bytes | None:
        """Return a byte more than a file may have at most; None if it is no regular file."""
        *parents, name = path.split("/")
        with self._open_folder(parents) as folder:
            file = os.open(name, _FILE_FLAGS, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return None
            with os.fdopen(file, "rb", closefd=False) as stream:
                return stream.read(MAX_FILE_BYTES + 1)
        finally:
            os.close(file)

    @contextmanager
    def _open_folder(self, parts: list[str]) -> Iterator[int]:
        folder = os.dup(self._folder)
        try:
            for part in parts:
                inner = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)

    def _list_scripts(self) -> list[str]:
        """Return the paths of the scripts, sorted; none without their folder. Raise `DefinitionInvalid`."""
        try:
            with self._open_folder([SCRIPTS_FOLDER]) as folder, os.scandir(folder) as scan:
                names = sorted(item.name for item in scan if item.name.endswith(SCRIPT_ENDING))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise DefinitionInvalid(
                [Problem(SCRIPTS_FOLDER, f"the folder cannot be read: {_reason(error)}")]
            ) from error
        if unreadable := [name for name in names if not name.isprintable()]:
            message = (
                f"the name {show_value(ascii(unreadable[0]))} has characters that cannot be shown: rename the file"
            )
            raise DefinitionInvalid([Problem(SCRIPTS_FOLDER, message)])
        if len(names) > MAX_FILES:
            message = f"there are {len(names)} scripts, and a task may have {MAX_FILES} files"
            raise DefinitionInvalid([Problem(SCRIPTS_FOLDER, message)])
        return [f"{SCRIPTS_FOLDER}/{name}" for name in names]


@contextmanager
def _collected(problems: list[Problem]) -> Iterator[None]:
    """Keep the problems of one source, and go on with the next one."""
    try:
        yield
    except DefinitionInvalid as error:
        problems.extend(error.problems)


def _reason(error: OSError) -> str:
    """Say why a file or a folder cannot be opened. With `O_NOFOLLOW` a link is ELOOP, or ENOTDIR for a folder."""
    if error.errno == errno.ELOOP:
        return "it is a link, and links are not followed: put the file itself there"
    if error.errno == errno.ENOTDIR:
        return "a part of its path is not a folder, or is a link"
    return error.strerror or str(error)

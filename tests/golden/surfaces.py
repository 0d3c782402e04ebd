"""What people, shells, clients and models see of the product, recorded: `tests/data/golden/{tools,calls,chat,shell,http,settings}.json`.

`python -m tests.golden.surfaces` compares what the product answers now with the recorded answers, and prints what differs.
`--write` records everything again: only for a new surface, since recorded values stay as recorded. A change that is wanted
is listed in `tests/data/golden/changes.toml`, as `[[surface]]` with

    file     the recorded file without `.json`
    key      the key in it
    value    the new value as JSON; empty: the key is gone
    reason   why people and programs get something else now

and the comparison takes that instead. Keys of lines begin with their number, so add lines at the end of a script only.
`--list REASON` lists all present differences there with one reason, which follows the older one of a key that is listed
already; read them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT
from tests.docs.settings_pages import all_settings
from tests.golden.surface_chat import SCRIPTS, record_chat
from tests.golden.surface_http import record_http
from tests.golden.surface_shell import record_shell
from tests.golden.surface_tools import record_calls, record_tools
from tests.made_settings import make_settings

DATA = ROOT / "tests" / "data" / "golden"
CHANGES = DATA / "changes.toml"


@dataclass(frozen=True)
class SurfaceChange:
    """A wanted change of a recorded value. See the module."""

    file: str
    key: str
    value: str
    reason: str


def record_settings(_folder: Path) -> dict[str, Any]:
    """Dump the default settings, and every key with its type and default, those of channels included."""
    described = {
        f"[{setting.section}] {setting.key}": {"type": setting.type, "default": setting.default}
        for setting in all_settings()
    }
    return {**dict(_flatten("dump", make_settings().model_dump(mode="json"))), **described}


def _flatten(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _flatten(f"{name} {key}", each)
    else:
        yield name, value


def _record_chat(folder: Path) -> dict[str, Any]:
    return {key: value for name in SCRIPTS for key, value in asyncio.run(record_chat(folder, name)).items()}


RECORDERS: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "tools": lambda folder: asyncio.run(record_tools(folder)),
    "calls": lambda folder: asyncio.run(record_calls(folder)),
    "chat": _record_chat,
    "shell": record_shell,
    "http": lambda folder: asyncio.run(record_http(folder)),
    "settings": record_settings,
}
"""What makes each file, given an empty folder."""


def record(name: str, folder: Path) -> dict[str, Any]:
    """Return what the product answers now, as it would be read from a file."""
    recorded = RECORDERS[name](folder)
    made: dict[str, Any] = json.loads(json.dumps(recorded, ensure_ascii=False, default=_plain))
    return made


def _plain(value: object) -> object:
    """Return a read-only mapping or list of a tape as JSON has it."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def read_recorded(name: str) -> dict[str, Any]:
    """Return what was recorded."""
    found: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return found


def read_changes() -> list[SurfaceChange]:
    """Return the listed changes."""
    if not CHANGES.exists():
        return []
    listed = tomllib.loads(CHANGES.read_text(encoding="utf-8")).get("surface", [])
    return [SurfaceChange(**change) for change in listed]


def expect(name: str) -> dict[str, Any]:
    """Return what was recorded, with the listed changes."""
    expected = read_recorded(name)
    for change in read_changes():
        if change.file == name and change.value:
            expected[change.key] = json.loads(change.value)
        elif change.file == name:
            expected.pop(change.key, None)
    return expected


def find_faults(changes: Sequence[SurfaceChange]) -> Iterator[str]:
    """Yield what is wrong with listed changes."""
    seen: set[tuple[str, str]] = set()
    for change in changes:
        where = f"{change.file}: {change.key}"
        if change.file not in RECORDERS:
            yield f"{where}: there is no such file"
            continue
        recorded = read_recorded(change.file)
        if not change.reason.strip():
            yield f"{where}: no reason"
        if (change.file, change.key) in seen:
            yield f"{where}: listed twice"
        seen.add((change.file, change.key))
        if not change.value and change.key not in recorded:
            yield f"{where}: it is not recorded, so it cannot go"
        if change.value and change.key in recorded and _same(json.loads(change.value), recorded[change.key]):
            yield f"{where}: that is the recorded value"


def find_differences(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the expected and the actual value of each key whose values differ; None if one is missing. Order of keys counts."""
    keys = dict.fromkeys([*expected, *actual])
    return {
        key: (expected.get(key), actual.get(key))
        for key in keys
        if (key in expected) != (key in actual) or not _same(expected[key], actual[key])
    }


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one) == json.dumps(other)


def main(argv: Sequence[str] | None = None) -> int:
    """Compare, write, or list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="record everything again")
    parser.add_argument("--list", metavar="REASON", help="list the differences in changes.toml with this reason")
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"of {', '.join(RECORDERS)}; default: all")
    args = parser.parse_args(argv)
    count = 0
    for name in args.files or RECORDERS:
        with tempfile.TemporaryDirectory() as folder:
            actual = record(name, Path(folder))
        if args.write:
            DATA.mkdir(parents=True, exist_ok=True)
            text = json.dumps(actual, ensure_ascii=False, indent=1)
            (DATA / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
            continue
        differences = find_differences(expect(name), actual)
        count += len(differences)
        for key, (expected, found) in differences.items():
            sys.stdout.write(f"{name}: {key}\n  - {json.dumps(expected)}\n  + {json.dumps(found)}\n")
            if args.list:
                list_change(SurfaceChange(name, key, _text(found), args.list))
    return 1 if count and not args.list else 0


def _text(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def list_change(change: SurfaceChange) -> None:
    """List a change, in place of an earlier one of the same key, whose reason stays before the new one."""
    text = CHANGES.read_text(encoding="utf-8") if CHANGES.exists() else ""
    for block in re.split(r"^(?=\[\[)", text, flags=re.MULTILINE):
        for earlier in tomllib.loads(block).get("surface", []):
            if (earlier["file"], earlier["key"]) == (change.file, change.key):
                new = replace(change, reason=f"{earlier['reason']} {change.reason}")
                CHANGES.write_text(text.replace(block, f"{_block(new)}\n"), encoding="utf-8")
                return
    append_change(change)


def append_change(change: SurfaceChange) -> None:
    """List a change."""
    with CHANGES.open("a", encoding="utf-8") as file:
        file.write(f"\n{_block(change)}")


def _block(change: SurfaceChange) -> str:
    fields = "".join(f"{name} = {_toml(getattr(change, name))}\n" for name in ("file", "key", "value", "reason"))
    return f"[[surface]]\n{fields}"


def _toml(text: str) -> str:
    """Write a text as a basic string of TOML, whose escapes are those of JSON but for U+007F."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


if __name__ == "__main__":
    sys.exit(main())

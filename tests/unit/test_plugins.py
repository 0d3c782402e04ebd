"""Plugins: found by name in the entry points of real packages, and named where they fail."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from bubbot import plugins
from bubbot.errors import ConfigError

GROUP = "bubbot.tests"
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package on the path: `install("name", {"module": "source"}, plugin="module:object")`."""
    before = set(sys.modules)

    def put(package: str, modules: dict[str, str], **points: str) -> None:
        folder = tmp_path / package
        info = folder / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
        for module, source in modules.items():
            (folder / f"{module}.py").write_text(source)
        monkeypatch.syspath_prepend(folder)

    yield put
    for name in set(sys.modules) - before:
        if name.startswith("plugin_"):
            del sys.modules[name]


def test_loads_the_object_of_a_name_and_no_other(install: Install) -> None:
    modules = {"plugin_good": "def create(x): return x + 1\n", "plugin_bad": "raise RuntimeError\n"}
    install("first", modules, good="plugin_good:create", bad="plugin_bad:create")
    assert plugins.list_names(GROUP) == ["bad", "good"]
    assert "plugin_good" not in sys.modules
    assert plugins.load(GROUP, "good")(1) == 2


def test_an_unknown_name_has_a_nearest(install: Install) -> None:
    install("first", {}, telegram="plugin_x:create", discord="plugin_x:create")
    with pytest.raises(ConfigError, match=f"^No plugin 'telegrm' in {GROUP}: did you mean 'telegram'"):
        plugins.load(GROUP, "telegrm")
    with pytest.raises(ConfigError, match=r"there are: discord, telegram\.$"):
        plugins.load(GROUP, "zzz")


def test_a_group_nobody_fills() -> None:
    assert plugins.list_names("bubbot.nobody") == []
    with pytest.raises(ConfigError, match=r"there are: none\.$"):
        plugins.load("bubbot.nobody", "x")


@pytest.mark.parametrize("source", ["from bubbot.channel import Part\n", "from bubbot.ports.channel import Part\n"])
def test_an_import_of_an_old_name_points_to_the_page_with_the_new_ones(install: Install, source: str) -> None:
    install("first", {"plugin_old": source}, old="plugin_old:create")
    with pytest.raises(ConfigError, match=r"'old'.*first.*docs/howto/upgrade\.md lists the new names\.$"):
        plugins.load(GROUP, "old")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_library\n", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("def broken(:\n", "SyntaxError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("", "AttributeError: module 'plugin_bad' has no attribute 'create'"),
        ("create = 5\n", "is int, which cannot be called"),
    ],
)
def test_what_fails_is_named_with_its_package_and_reason(install: Install, source: str, reason: str) -> None:
    install("first", {"plugin_bad": source}, bad="plugin_bad:create")
    with pytest.raises(ConfigError) as raised:
        plugins.load(GROUP, "bad")
    told = str(raised.value)
    assert told.startswith(f"The plugin 'bad' of {GROUP} (plugin_bad:create, from the package first)")
    assert reason in told


def test_a_missing_module_is_named(install: Install) -> None:
    install("first", {}, gone="plugin_gone:create")
    with pytest.raises(ConfigError, match="No module named 'plugin_gone'"):
        plugins.load(GROUP, "gone")


def test_interruption_is_not_swallowed(install: Install) -> None:
    install("first", {"plugin_stop": "raise KeyboardInterrupt\n"}, stop="plugin_stop:create")
    with pytest.raises(KeyboardInterrupt):
        plugins.load(GROUP, "stop")


def test_two_packages_with_one_name(install: Install) -> None:
    install("first", {"plugin_one": "create = dict\n"}, same="plugin_one:create")
    install("second", {"plugin_two": "create = list\n"}, same="plugin_two:create")
    assert plugins.list_names(GROUP) == ["same"]
    with pytest.raises(ConfigError, match="is offered by first and second: uninstall all but one"):
        plugins.load(GROUP, "same")


def test_the_packages_are_read_once_and_again_if_one_was_added(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("first", {}, one="plugin_x:create")
    reads: list[object] = []

    def read() -> object:
        reads.append(None)
        return entry_points()

    monkeypatch.setattr(metadata, "entry_points", read)
    for _ in range(3):
        assert sorted(plugins.find_entry_points(GROUP).names) == ["one"]
    assert len(reads) == 1
    folder = tmp_path / "first"
    before = folder.stat().st_mtime_ns
    (folder / "second-1.0.dist-info").mkdir()
    (folder / "second-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: second\nVersion: 1.0\n")
    (folder / "second-1.0.dist-info" / "entry_points.txt").write_text(f"[{GROUP}]\ntwo = plugin_x:create\n")
    os.utime(folder, ns=(before + 10**9, before + 10**9))  # some disks count in seconds
    assert sorted(plugins.find_entry_points(GROUP).names) == plugins.list_names(GROUP) == ["one", "two"]


def test_packages_are_described_without_being_imported(install: Install) -> None:
    install("first", {"first_module": "raise RuntimeError"}, one="first_module:x")
    install("second", {}, two="nowhere:x")
    info = next(Path(folder) for folder in sys.path if folder.endswith("second")) / "second-1.0.dist-info" / "METADATA"
    info.write_text(info.read_text() + "Summary: Counts\x1b[2J words.\n")
    assert plugins.describe(GROUP) == {
        "one": "of the package first",
        "two": "Counts\N{REPLACEMENT CHARACTER}[2J words.",
    }

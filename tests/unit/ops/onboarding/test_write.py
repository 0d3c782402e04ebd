"""Writing a configuration: all of it or nothing, whatever goes wrong on the way."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.ops.onboarding.existing import ExistingConfig, read_example, read_existing
from bubbot.ops.onboarding.write import write

OLD, NEW = '[bot]\nname = "old"\n', '[bot]\nname = "new"\n'


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "some" / "home")


def filled(home: Home) -> ExistingConfig:
    """A home with a configuration and a secret."""
    (home.path / "secrets").mkdir(parents=True)
    home.config.write_text(OLD)
    secret(home).write_text("old\n")
    return read_existing(home, None)


def secret(home: Home) -> Path:
    return home.path / "secrets" / "telegram-token"


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can become longer than 4 KiB, which a write learns as it learns of a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def put(home: Home, present: ExistingConfig, error: BaseException | None = None, *, meanwhile: str = "") -> list[Path]:
    def check(candidate: Path) -> None:
        assert candidate.read_text() == NEW
        assert secret(home).read_text() == "new\n"
        assert (home.config.read_text() if home.config.exists() else None) == present.text
        if meanwhile:
            home.config.write_text(meanwhile)
        if error is not None:
            raise error

    return write(home, present, NEW, {secret(home): "new"}, stamp="T", check=check)


def test_it_is_checked_beside_the_old_one_with_its_secrets_in_place_before_it_takes_its_place(home: Home) -> None:
    backups = put(home, filled(home))
    assert contents(home.path) == {
        "config.toml": NEW,
        "config.toml.T.bak": OLD,
        "secrets/telegram-token": "new\n",
        "secrets/telegram-token.T.bak": "old\n",
    }
    assert {path.name for path in backups} == {"config.toml.T.bak", "telegram-token.T.bak"}


def test_a_backup_never_takes_the_place_of_another(home: Home) -> None:
    filled(home)
    (home.path / "config.toml.T.bak").write_text("older")
    put(home, read_existing(home, None))
    assert (home.path / "config.toml.T.bak").read_text() == "older"
    assert (home.path / "config.toml.T-2.bak").read_text() == OLD


@pytest.mark.parametrize("error", [ConfigError("no"), OSError(28, "No space left"), KeyboardInterrupt()])
def test_whatever_ends_it_everything_is_as_it_was(home: Home, error: BaseException) -> None:
    present = filled(home)
    before = contents(home.path)
    with pytest.raises((ConfigError, KeyboardInterrupt)):
        put(home, present, error)
    assert contents(home.path) == before


@pytest.mark.parametrize("error", [ConfigError("no"), OSError(28, "No space left"), KeyboardInterrupt()])
def test_a_home_that_was_not_there_is_not_there_again(home: Home, error: BaseException) -> None:
    present = read_existing(home, None)
    assert not home.path.parent.exists()
    with pytest.raises((ConfigError, KeyboardInterrupt)):
        put(home, present, error)
    assert not home.path.parent.exists()


def test_what_somebody_else_wrote_meanwhile_is_not_written_over(home: Home) -> None:
    present = filled(home)
    with pytest.raises(ConfigError, match="changed by another program"):
        put(home, present, meanwhile="[log]\n")
    assert contents(home.path) == {"config.toml": "[log]\n", "secrets/telegram-token": "old\n"}


def test_a_disk_that_is_full_leaves_everything_as_it_was(home: Home) -> None:
    present = filled(home)
    before = contents(home.path)
    with full_disk(), pytest.raises(ConfigError, match="nothing was changed"):
        write(home, present, NEW + "#\n" * 4096, {secret(home): "new"}, stamp="T", check=lambda _: None)
    assert contents(home.path) == before


def test_a_disk_that_is_full_leaves_no_new_home_behind(home: Home) -> None:
    present = read_existing(home, None)
    with full_disk(), pytest.raises(ConfigError, match="nothing was changed"):
        write(home, present, read_example(), {secret(home): "new"}, stamp="T", check=lambda _: None)
    assert not home.path.parent.exists()

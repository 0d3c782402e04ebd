"""How little a command loads: people wait for each module, 0.3 milliseconds on average."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bubbot.home import Home, WriterLock

ROOT = Path(__file__).parents[3]
CODE = """
import sys, typing
from bubbot.__main__ import main
sys.argv[0] = "bubbot"
try:
    main()
except SystemExit:
    pass
everything = [sys.modules["pydantic"].BaseModel] if "pydantic" in sys.modules else []
for model in everything:
    everything.extend(model.__subclasses__())
models = [model for model in everything if not model.__module__.startswith("pydantic")]
built = sum(model.__pydantic_complete__ for model in models)
names = {name for name in sys.modules if name.startswith("bubbot")}
values = [value for name in names for value in vars(sys.modules[name]).values() if getattr(value, "__module__", "") in names]
facts = {value for value in values if typing.is_typeddict(value)}
kinds = [kind for owner in (*models, *facts) for kind in vars(owner).get("__annotations__", {}).values()]
texts = sum(isinstance(kind, (str, typing.ForwardRef)) for kind in kinds)
print("loaded", built, texts, *sorted(sys.modules), file=sys.stderr)
"""
PYDANTIC = {
    "click", "msgspec", "pydantic", "pydantic_core", "pydantic_settings", "annotated_types", "dotenv", "typing_extensions", "typing_inspection",
}  # fmt: skip
STORE = PYDANTIC | {"aiosqlite"}
SENTENCES = STORE | {"polib"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    (home / "config.toml").write_text('[model]\nname = "scripted"\n')
    load(home, ["ask", "hi"])
    return home


def load(home: Path, command: Sequence[str]) -> list[str]:
    """Run a command; return how many validators were built, how many annotations of models and facts are text, and what was loaded."""
    environment = {"PATH": "/usr/bin", "BUBBOT_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", CODE, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stderr.rpartition("loaded ")[2].split()


def packages(modules: Sequence[str]) -> set[str]:
    """Return the packages of others, without what the installation itself loads at every start."""
    names = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names)
    return {
        name
        for name in names
        if not name.startswith(("_", "bubbot", "channels", "sitecustomize")) and not name.isdigit()
    }


@pytest.mark.parametrize(
    ("command", "ours", "others"),
    [
        ("--help", 20, {"click", "msgspec", "typing_extensions"}),
        ("status", 262, SENTENCES),
        # In the proof: `tape list` runs below in any case, and the features' commands load what these two do.
        pytest.param("tape list", 214, SENTENCES, marks=pytest.mark.proof),
        pytest.param(
            "tape search stdin:default hi",
            214,
            SENTENCES | {"rapidfuzz", "cython_runtime", "snowballstemmer"},
            marks=pytest.mark.proof,
        ),
        pytest.param("usage", 169, SENTENCES, marks=pytest.mark.proof),
        pytest.param("memory show stdin:default", 234, SENTENCES, marks=pytest.mark.proof),
        pytest.param("schedule list", 179, SENTENCES, marks=pytest.mark.proof),
        pytest.param("access list", 168, SENTENCES, marks=pytest.mark.proof),
        ("ask hi", 580, STORE),
    ],
)
def test_a_command_loads_no_more_modules_than(home: Path, command: str, ours: int, others: set[str]) -> None:
    validators, texts, *modules = load(home, command.split())
    assert int(validators) <= 2  # of the sections of the settings that are written
    assert (
        int(texts) <= 8
    )  # each is compiled; a file of models or of facts does not import `annotations` from the future
    assert packages(modules) <= others
    assert sum(name.partition(".")[0] in ("bubbot", "channels") for name in modules) <= ours


def test_the_client_of_a_bot_loads_none(home: Path) -> None:
    with WriterLock(Home(home)):
        modules = load(home, ["ask", "--wait", "0", "hi"])
    assert "bubbot.cli.chat.connection" in modules
    assert not {"bubbot.app.bot", "bubbot.app.features", "bubbot.runtime.app"} & set(modules)

"""`importlib.metadata`, which a library imports and few commands use."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
from bubbot.cli.deferred import defer_metadata
defer_metadata()
{use}
result = {result}
print("email" in sys.modules, result)
"""


@pytest.mark.parametrize(
    ("use", "result", "printed"),
    [
        ("from importlib.metadata import entry_points", "1", "False 1"),
        ("import importlib.metadata", "importlib.metadata.version('pydantic') != ''", "True True"),
        ("from importlib import metadata", "metadata.PackageNotFoundError.__name__", "True PackageNotFoundError"),
        (
            "from importlib.metadata import entry_points; found = entry_points(group='bubbot.channels')",
            "'telegram' in found.names",
            "True True",
        ),
        (
            "import importlib.util",
            "importlib.util.find_spec('importlib.metadata').name",
            "False importlib.metadata",
        ),
        (
            "import importlib.metadata._meta",
            "sys.modules['importlib.metadata._meta'].__name__",
            "False importlib.metadata._meta",
        ),
    ],
)
def test_it_is_loaded_when_it_is_used(use: str, result: str, printed: str) -> None:
    code = CODE.format(use=use, result=result)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == printed


def test_pydantic_imports_it_without_use() -> None:
    """If this fails, `bubbot.cli.deferred` is in vain."""
    code = CODE.format(
        use="import pydantic; pydantic.create_model('M', x=(int, 1))()", result="'pydantic' in sys.modules"
    )
    environment = {"PYDANTIC_DISABLE_PLUGINS": "__all__"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "False True"

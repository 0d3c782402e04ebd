"""The conformance tests of MCP judge our client: `make mcp-conformance` installs them. Missing, that is a failure in the proof.

Every scenario of the frozen lists runs alone, against our own connection and login (`tests/mcp/client_driver.py`). Sampling and roots
are refused, and no scenario of these lists wants them.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.mcp.judge import judge, read_requirements, read_version, require_judge

PAGE = ROOT / "docs" / "reference" / "mcp-conformance.md"
SCENARIOS = {
    "2026-07-28": (
        "tools_call", "request-metadata", "auth/metadata-default", "auth/metadata-var1", "auth/metadata-var2", "auth/metadata-var3",
        "auth/basic-cimd", "auth/scope-from-www-authenticate", "auth/scope-from-scopes-supported", "auth/scope-omitted-when-undefined",
        "auth/scope-step-up", "auth/scope-retry-limit", "auth/token-endpoint-auth-basic", "auth/token-endpoint-auth-post",
        "auth/token-endpoint-auth-none", "auth/pre-registration", "auth/resource-mismatch", "auth/offline-access-scope",
        "auth/offline-access-not-supported", "auth/authorization-server-migration", "auth/iss-supported", "auth/iss-not-advertised",
        "auth/iss-supported-missing", "auth/iss-wrong-issuer", "auth/iss-unexpected", "auth/iss-normalized",
        "auth/metadata-issuer-mismatch", "sep-2322-client-request-state", "http-standard-headers", "http-custom-headers",
        "http-invalid-tool-headers", "json-schema-ref-no-deref",
    ),
    "2025-11-25": (
        "initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry", "auth/metadata-default", "auth/metadata-var1",
        "auth/metadata-var2", "auth/metadata-var3", "auth/basic-cimd", "auth/scope-from-www-authenticate",
        "auth/scope-from-scopes-supported", "auth/scope-omitted-when-undefined", "auth/scope-step-up", "auth/scope-retry-limit",
        "auth/token-endpoint-auth-basic", "auth/token-endpoint-auth-post", "auth/token-endpoint-auth-none", "auth/pre-registration",
    ),
}  # fmt: skip
COMMAND = shlex.join([sys.executable, "-m", "tests.mcp.client_driver"])

pytestmark = pytest.mark.proof


@pytest.fixture(autouse=True)
def _judge_present(request: pytest.FixtureRequest) -> None:
    require_judge(request)


@pytest.mark.parametrize(
    ("revision", "scenario"), [(revision, scenario) for revision, names in SCENARIOS.items() for scenario in names]
)
@pytest.mark.timeout(300)
async def test_a_scenario_of_the_frozen_lists_passes(revision: str, scenario: str, tmp_path: Path) -> None:
    script = f'cd {shlex.quote(str(ROOT))} && exec {COMMAND} "$1"'
    verdict = await judge(
        *("client", "--command", f"sh -c {shlex.quote(script)} driver"),
        *("--scenario", scenario, "--spec-version", revision, "--timeout", "120000"),
        folder=tmp_path,
    )

    assert "timed out" not in verdict.words
    assert verdict.checks > 0, verdict.words
    assert (verdict.status, verdict.passed) == (0, verdict.checks), verdict.words[-8000:]


@pytest.mark.parametrize("revision", SCENARIOS)
def test_the_lists_are_those_of_the_judge(revision: str) -> None:
    assert sorted(SCENARIOS[revision]) == sorted(read_requirements(revision, "client"))


def test_the_page_names_every_scenario_and_the_version_of_the_judge() -> None:
    page = PAGE.read_text()

    assert read_version() in page
    for revision, names in SCENARIOS.items():
        (section,) = re.findall(rf"^### Client, {revision}: .*?(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
        assert re.findall(r"^\| `([^`]+)` \| passed", section, re.MULTILINE) == sorted(names)

"""The conformance tests of MCP judge our server: `make mcp-conformance` installs them. Missing, that is a failure in the proof.

Of the frozen lists the scenarios that apply to what bubbot offers run against the real `bubbot mcp serve --http`, behind a proxy that adds
the token. All scenarios run against a server with the tools, prompts and resources that they name, over the same transport
(`tests/mcp/fixture_server.py`): they are counted apart.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.mcp.judge import judge, read_requirements, require_judge
from tests.mcp.serving import EDITOR, HttpServer, by_http, make_token, write_home
from tests.mcp.token_proxy import add_token

SERVED: Mapping[str, tuple[str, ...]] = {
    "2026-07-28": (
        "server-stateless", "tools-list", "caching", "dns-rebinding-protection", "sep-2164-resource-not-found",
        "server-sse-multiple-streams", "input-required-result-unsupported-methods",
    ),
    "2025-11-25": ("server-initialize", "ping", "tools-list", "dns-rebinding-protection"),
}  # fmt: skip
"""The scenarios that apply to what `bubbot mcp serve` offers: tools that only read."""
NOT_OFFERED: Mapping[str, str] = {
    "sep-2575-server-rejects-undeclared-capability": "wants the tool test_missing_capability; no tool of ours needs a capability",
    "sep-2575-missing-capability-http-400": "the same",
    "sep-2575-http-server-no-independent-requests-on-stream": "wants the tool test_streaming_elicitation; ours ask nothing",
    "sep-2575-server-no-log-without-loglevel": "wants the tool test_logging_tool; ours send no log",
    "sep-2549-prompts-list-caching-hints": "no prompts are offered",
    "sep-2549-resources-list-caching-hints": "no resources are offered",
    "sep-2549-resources-templates-list-caching-hints": "no resources are offered",
}
"""Checks within these scenarios that want something else, and why the real server has it not. The fixture passes them all."""
ALL: Mapping[str, tuple[str, ...]] = {
    "2026-07-28": (
        "server-stateless", "completion-complete", "tools-list", "tools-call-simple-text", "tools-call-image", "tools-call-audio",
        "tools-call-embedded-resource", "tools-call-mixed-content", "tools-call-error", "tools-call-with-progress",
        "server-sse-multiple-streams", "resources-list", "resources-read-text", "resources-read-binary", "resources-templates-read",
        "sep-2164-resource-not-found", "prompts-list", "prompts-get-simple", "prompts-get-with-args", "prompts-get-embedded-resource",
        "prompts-get-with-image", "dns-rebinding-protection", "caching", "input-required-result-basic-elicitation",
        "input-required-result-basic-sampling", "input-required-result-basic-list-roots", "input-required-result-request-state",
        "input-required-result-multiple-input-requests", "input-required-result-multi-round",
        "input-required-result-missing-input-response", "input-required-result-non-tool-request", "input-required-result-result-type",
        "input-required-result-unsupported-methods", "input-required-result-tampered-state", "input-required-result-capability-check",
        "input-required-result-ignore-extra-params", "input-required-result-validate-input",
    ),
    "2025-11-25": (
        "server-initialize", "logging-set-level", "ping", "completion-complete", "tools-list", "tools-call-simple-text",
        "tools-call-image", "tools-call-audio", "tools-call-embedded-resource", "tools-call-mixed-content", "tools-call-with-logging",
        "tools-call-error", "tools-call-with-progress", "tools-call-sampling", "tools-call-elicitation", "elicitation-sep1034-defaults",
        "server-sse-multiple-streams", "elicitation-sep1330-enums", "resources-list", "resources-read-text", "resources-read-binary",
        "resources-templates-read", "resources-subscribe", "resources-unsubscribe", "prompts-list", "prompts-get-simple",
        "prompts-get-with-args", "prompts-get-embedded-resource", "prompts-get-with-image", "dns-rebinding-protection",
    ),
}  # fmt: skip
PAGE = ROOT / "docs" / "reference" / "mcp-conformance.md"
STARTED_SECONDS = 60.0

pytestmark = [pytest.mark.proof, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _judge_present(request: pytest.FixtureRequest) -> None:
    require_judge(request)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    home = tmp_path_factory.mktemp("judged") / "home"
    asyncio.run(write_home(home))
    with by_http(home) as started:
        yield started


@pytest.fixture(scope="module")
def fixture_url() -> Iterator[str]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.mcp.fixture_server"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip()
        process.terminate()
        process.wait(STARTED_SECONDS)


async def judge_server(url: str, revision: str, scenario: str, folder: Path) -> Mapping[str, str]:
    """Let the tool judge a server; return what it says of each check, by its id. What it skips does not apply."""
    words = ("--scenario", scenario, "--spec-version", revision, "--output-dir", str(folder / "results"))
    verdict = await judge("server", "--url", url, *words, "--timeout", "120000", folder=folder)
    (file,) = (folder / "results").glob("*/checks.json")
    checks = {check["id"]: check["status"] for check in json.loads(file.read_text())}
    assert "SUCCESS" in checks.values(), verdict.words
    return {name: status for name, status in checks.items() if status not in ("SUCCESS", "SKIPPED", "INFO")}


@pytest.mark.parametrize(
    ("revision", "scenario"), [(revision, scenario) for revision, names in SERVED.items() for scenario in names]
)
async def test_the_real_server_passes_what_applies_to_it(
    server: HttpServer, revision: str, scenario: str, tmp_path: Path
) -> None:
    token = await make_token(server.log.with_suffix(""), EDITOR)
    async with add_token(server.url, token) as url:
        failed = await judge_server(url, revision, scenario, tmp_path)

    assert failed.keys() <= NOT_OFFERED.keys(), failed


@pytest.mark.parametrize(
    ("revision", "scenario"), [(revision, scenario) for revision, names in ALL.items() for scenario in names]
)
async def test_our_transport_passes_every_scenario(
    fixture_url: str, revision: str, scenario: str, tmp_path: Path
) -> None:
    assert await judge_server(fixture_url, revision, scenario, tmp_path) == {}


@pytest.mark.parametrize("revision", ALL)
def test_the_lists_are_those_of_the_judge(revision: str) -> None:
    assert sorted(ALL[revision]) == sorted(read_requirements(revision, "server"))
    assert set(SERVED[revision]) <= set(ALL[revision])


def test_the_page_names_every_scenario_and_what_is_not_offered() -> None:
    page = PAGE.read_text()

    for part, lists in (("Server", SERVED), ("Fixture", ALL)):
        for revision, names in lists.items():
            (section,) = re.findall(rf"^### {part}, {revision}: .*?(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
            assert re.findall(r"^\| `([^`]+)` \| passed", section, re.MULTILINE) == sorted(names)
    for check, reason in NOT_OFFERED.items():
        assert f"| `{check}` | {reason} |" in page

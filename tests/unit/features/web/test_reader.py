"""The child process that reads pages: its limits, and what it leaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def in_child(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    begin = "from bubbot.features.web import reader\n"
    return subprocess.run([sys.executable, "-c", begin + code], cwd=folder, capture_output=True, text=True, check=False)


def test_it_writes_no_byte_to_a_file(tmp_path: Path) -> None:
    code = "reader.set_limits()\nfile = open('made', 'wb', buffering=0)\nfile.write(b'x')\nprint('written')"
    done = in_child(code, tmp_path)
    assert "written" not in done.stdout
    assert done.returncode != 0
    assert (tmp_path / "made").stat().st_size == 0


def test_the_time_for_an_article_ends_with_it(tmp_path: Path) -> None:
    code = (
        "import signal\n"
        "page = reader.read_page(b'<html><body><p>A page about tea.</p></body></html>', {'charset': 'utf-8', 'url': 'http://a.test/'})\n"
        "print('tea' in page['text'], signal.getitimer(signal.ITIMER_VIRTUAL))"
    )
    assert in_child(code, tmp_path).stdout == "True (0.0, 0.0)\n"

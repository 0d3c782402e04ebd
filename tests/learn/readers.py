"""Programs that read exports, which `make formats` installs: this file runs with the Python of their environment.

On standard input it gets lines, each with the name of a reader and a path; it answers each with what the reader says against the
file, as a line of JSON that is empty if it accepts it.
"""

# mypy: ignore-errors

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path


def read_harbor(path: Path) -> str:
    """Validate a trajectory as Harbor does."""
    from harbor.utils.trajectory_validator import TrajectoryValidator

    validator = TrajectoryValidator()
    return "" if validator.validate(str(path)) else "\n".join(validator.get_errors()) or "refused"


def read_atif(path: Path) -> str:
    """Validate a trajectory by the package `atif`."""
    from atif import Trajectory

    Trajectory.model_validate(json.loads(path.read_text("utf-8")))
    return ""


def read_inspect(path: Path) -> str:
    """Read a log with Inspect: its head first, then all of it."""
    from inspect_ai.log import read_eval_log

    head, log = (read_eval_log(str(path), header_only=is_head) for is_head in (True, False))
    problem = "" if log.status == head.status == "success" else "it was no success"
    return problem or ("" if len(log.samples) == head.results.total_samples else "samples are missing")


def read_datasets(path: Path) -> str:
    """Load rows with `datasets`; they have to come back as they were written."""
    import datasets

    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        loaded = [*datasets.load_dataset("json", data_files=str(path), cache_dir=folder)["train"]]
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    return "" if loaded == rows else "the rows come back changed"


READERS = {"harbor": read_harbor, "atif": read_atif, "inspect": read_inspect, "datasets": read_datasets}


def main() -> None:
    """Answer each line."""
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        name, path = json.loads(line)
        try:
            problem = READERS[name](Path(path))
        except Exception as error:  # noqa: BLE001 - each reader has its own
            problem = f"{type(error).__name__}: {error}"
        print(json.dumps(problem[:2_000]), file=answers, flush=True)


if __name__ == "__main__":
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    main()

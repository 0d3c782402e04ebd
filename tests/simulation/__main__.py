"""Run schedules again by their seeds: `python -m tests.simulation 17 [18 …]` prints what happened in each."""

from __future__ import annotations

import sys

from tests.simulation.schedules import Schedule

for argument in sys.argv[1:]:
    schedule = Schedule(int(argument))
    try:
        schedule.run()
    finally:
        print("\n".join(schedule.platform.story))
        print(f"{schedule.steps} steps, posts {len(schedule.platform.posts)}")

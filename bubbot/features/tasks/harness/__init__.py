"""The harness of a task: what a run must and must not do, judged while it runs. No I/O, no clock, no tape."""

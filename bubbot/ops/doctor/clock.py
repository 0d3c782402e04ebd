"""The clock: what the system says of it. Whether it agrees with the tapes is asked with the database."""

from __future__ import annotations

from collections.abc import Iterator

from bubbot.ops.doctor.finding import Finding
from bubbot.ops.doctor.tools import fields, told


def check_time_service() -> Iterator[Finding]:
    """Whether the system sets its clock by others; where it does not tell, nothing is said."""
    answer = told(["timedatectl", "show", "-p", "NTP", "-p", "NTPSynchronized"])
    found = fields(answer or "")
    if found.get("NTPSynchronized") == "yes":
        yield Finding("clock.set", "ok", "The system sets its clock by a time server.")
    elif found.get("NTPSynchronized") == "no":
        why = "is switched off" if found.get("NTP") == "no" else "has not reached a time server"
        cause = f"The clock of this machine is not set by others: its time service {why}. Schedules follow this clock."
        yield Finding("clock.unset", "warning", cause, "sudo timedatectl set-ntp true")

"""The system's time service. The check of the database compares the clock with the tapes."""

from __future__ import annotations

from collections.abc import Iterator

from bubbot.ops.doctor.finding import Finding
from bubbot.ops.doctor.tools import parse_properties, read_output


def check_time_service() -> Iterator[Finding]:
    """Check that the system synchronises its clock; report nothing if the system does not tell."""
    answer = read_output(["timedatectl", "show", "-p", "NTP", "-p", "NTPSynchronized"])
    properties = parse_properties(answer or "")
    if properties.get("NTPSynchronized") == "yes":
        yield Finding("clock.set", "ok", "The system sets its clock by a time server.")
    elif properties.get("NTPSynchronized") == "no":
        reason = "is switched off" if properties.get("NTP") == "no" else "has not reached a time server"
        cause = (
            f"The clock of this machine is not set by others: its time service {reason}. Schedules follow this clock."
        )
        yield Finding("clock.unset", "warning", cause, "sudo timedatectl set-ntp true")

"""Traces: turns as OpenTelemetry spans, for the tools people have."""

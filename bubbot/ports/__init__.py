"""Interfaces of channels, models and tools."""

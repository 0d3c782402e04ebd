"""Views: values computed from entries. A view reads, never writes, and has no clock."""

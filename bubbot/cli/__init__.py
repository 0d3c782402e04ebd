"""The commands people type, one small file each."""

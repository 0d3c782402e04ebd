"""Features over the kernel: each folder is one, and none knows another."""

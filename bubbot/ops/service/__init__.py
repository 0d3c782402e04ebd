"""bubbot as a service: what it tells a service manager such as systemd, and how it is put under one."""

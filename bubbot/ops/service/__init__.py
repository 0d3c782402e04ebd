"""bubbot as a service: notifications to a service manager such as systemd, and the installation under it."""

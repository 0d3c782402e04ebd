"""The control socket: how a shell command talks to the running bot. The server is in `gateway/control`."""

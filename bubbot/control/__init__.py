"""The control socket: how a command of the shell talks with the bot that runs. The server is in `gateway/control`."""

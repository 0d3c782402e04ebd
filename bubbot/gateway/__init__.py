"""The gateway: between the channels and the runtime."""

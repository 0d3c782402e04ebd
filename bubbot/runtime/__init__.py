"""The runtime: one turn, from the inbound to the staged reply.

The classes in reading order: `app.AppRuntime` finds the session, `session.SessionRuntime` queues, opens and merges its
turns, `loop.AgentLoop` answers one turn, `router.InputRouter` runs its commands, `runner.ModelRunner` asks the model
until there is an answer.
"""

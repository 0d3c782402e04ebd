"""The runtime: one turn, from the inbound to the staged reply.

The classes in reading order: `app.AppRuntime` finds the session, `session.SessionRuntime` queues, opens and merges its
turns, `loop.AgentLoop` answers one turn, the functions of `router` tell commands from messages for the model,
`runner.ModelRunner` asks the model until there is an answer.
"""

"""Tools: functions that a model may call and a person may type as a comma command."""

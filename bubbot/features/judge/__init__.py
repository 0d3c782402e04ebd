"""Judgements: what people, models and code think of answers, as facts beside them that no model is shown."""

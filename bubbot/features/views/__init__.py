"""Views: a chat is shown what goes on in another one, by grant, as evidence beside its messages."""

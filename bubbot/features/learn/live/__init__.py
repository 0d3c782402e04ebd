"""Calls of chats that a proxy of AReaL records to train on them: sessions of it, their rewards, and when they end."""

"""Attachments: files that people send, and files that answers carry."""

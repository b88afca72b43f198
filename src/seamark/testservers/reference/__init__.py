"""The known-answer server: an OpenAI API whose every time, token and fault is known. Only hands `main` on."""

from seamark.testservers.reference.command import main

__all__ = ["main"]

"""Reference server: an OpenAI API with exactly known times, tokens and faults. Exports `main` only."""

from seamark.testservers.reference.command import main

__all__ = ["main"]

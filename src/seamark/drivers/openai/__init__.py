"""The OpenAI API: completions and chats, streamed or whole."""

from seamark.drivers.openai.driver import HOOKS, OpenAi

__all__ = ["HOOKS", "OpenAi"]

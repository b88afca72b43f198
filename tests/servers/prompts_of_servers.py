"""Seeded texts for the attention server, and questions asked in its environment."""

from random import Random
from typing import Any

from service_environment import ask, environment

SYLLABLES = [consonant + vowel for consonant in "bdklmnprst" for vowel in "aeiou"]


def inside(question: str, **given: Any) -> Any:
    """Ask in the environment `evaluation`."""
    return ask(environment("evaluation"), "inside_attention_server", question, **given)


def words(count: int, seed: int) -> str:
    """Return seeded text that ends with a space."""
    random = Random(seed)
    return "".join(f"{random.choice(SYLLABLES)}{random.choice(SYLLABLES)} " for _ in range(count))


CONTEXT, OTHER = words(150, 1), words(150, 2)
QUESTIONS = [words(6, seed).strip() for seed in (11, 12, 13)]
PROMPTS = [*(CONTEXT + question for question in QUESTIONS), "ba", words(3, 4)]

"""Words and sentences of our own, for haystacks of made tasks: the published ones cannot be shipped. Pure data."""

from collections.abc import Iterator
from random import Random

_ADJECTIVES_TEXT = (
    "amber ancient bitter brave bright broad calm careful clever coarse cold crisp curious dark deep distant"
    " dry early eager empty faint fair famous fierce firm foggy fresh gentle glad golden grand green hidden"
    " hollow honest humble idle keen kind large late light little lonely loud lucky mellow mild modest narrow"
    " neat noble old pale patient plain proud quick quiet rapid rare ready rough round rusty salty sharp shy"
    " silent silver simple slender slow small smooth soft solid spare steady steep still stout strange strong"
    " subtle sunny sweet swift tall tame thick thin tidy tiny vast warm weary wide wild wise young"
)
ADJECTIVES = _ADJECTIVES_TEXT.split()
_NOUNS_TEXT = (
    "anchor apple arrow autumn badge barrel basin beacon bell bench blanket bottle branch bridge brook bucket"
    " button cabin candle canal carpet castle cedar chapel cherry cliff clock cloud comet copper corner cottage"
    " cradle crane curtain desert dial dolphin drum eagle engine falcon feather fence ferry field flute forest"
    " fountain garden gate glacier glove granite hammer harbor harvest hedge helmet hill hinge island jacket"
    " kettle ladder lagoon lantern ledger lemon letter maple market meadow mill mirror morning mountain needle"
    " oak orchard otter paddle palace path pebble pencil pepper pillar planet pocket pond puzzle quarry rabbit"
    " ribbon river saddle sail shadow shelf ship shore signal spoon spring stable statue stone street summer"
    " table tailor temple thread thunder ticket tower trail tunnel valley village violin wagon walnut whale"
    " wheel willow window winter"
)
NOUNS = _NOUNS_TEXT.split()
_VERBS_TEXT = (
    "stands near;leads to;looks like;belongs to;lies behind;points at;rests beside;leans on;reminds us of;hides"
)
_VERBS = _VERBS_TEXT.split(";")
_OPENINGS = ("In the end", "Every year", "By then", "At noon", "As they say", "For a while", "Now and again", "Later")
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
"""The sentence of noise that RULER and InfiniteBench repeat: 19 words."""


def compound(random: Random) -> str:
    """Return a key of two words, such as `quiet-lantern` (RULER takes them from the package wonderwords)."""
    return f"{random.choice(ADJECTIVES)}-{random.choice(NOUNS)}"


def coined(random: Random, syllables: int = 3) -> str:
    """Return a word that no language has, such as `bakelo`."""
    return "".join(random.choice(_CONSONANTS) + random.choice(_VOWELS) for _ in range(syllables))


def coined_words(random: Random, count: int) -> list[str]:
    """Return that many different coined words."""
    words: dict[str, None] = {}
    while len(words) < count:
        words[coined(random)] = None
    return list(words)


def sentences(random: Random) -> Iterator[str]:
    """Yield sentences without end, in place of the essays of the published haystacks."""
    while True:
        first, second = random.sample(NOUNS, 2)
        verb, adjective, other = random.choice(_VERBS), random.choice(ADJECTIVES), random.choice(ADJECTIVES)
        sentence = f"the {adjective} {first} {verb} a {other} {second}."
        if random.random() < 0.25:
            yield f"{random.choice(_OPENINGS)} {sentence}"
        else:
            yield sentence.capitalize()


def require_length(length_words: int, least: int) -> None:
    """Raise ValueError where a task does not fit a context of that many words."""
    if length_words < least:
        raise ValueError(f"a context of {length_words} words is too short for this task: {least} or more.")


def length_of(text: str) -> int:
    """Return the number of words of a text: what stands between blanks."""
    return len(text.split())

"""mock_benchmark: five questions on three contexts, of our own. To try a model, a method or an adapter offline."""

from collections.abc import Iterator
from random import Random

from seamark_evaluate.tasks.benchmark import Row

CONTEXTS = (
    (
        "The lighthouse of Ostrel was built in 1874 by the engineer Maren Dahl. It is 41 metres high and"
        " painted in red and white. Its lamp burned rape oil at first, and electric light came in 1922. Since"
        " 1991 no keeper has lived in the house beside it, which is a small museum now. On clear nights ships"
        " see the light from 19 miles away."
    ),
    (
        "Bread of rye keeps longer than bread of wheat. The baker Ines Falk mixes flour, water and salt with"
        " a sourdough that her grandmother began in 1938. The dough rests for sixteen hours in a cool room"
        " before it is baked for fifty minutes. She sells the loaves on Wednesdays and Saturdays, and gives"
        " the last ones to the school."
    ),
    (
        "The research vessel Petrel left Bergen on 3 May with a crew of 24. Its task was to map the floor of"
        " the sea north of the Faroe Islands. After nine days a storm damaged the winch, and the captain"
        " turned back. The map covers 620 square kilometres, about half of what was planned."
    ),
)
QUESTIONS = (
    (0, "Who built the lighthouse of Ostrel?", ("Maren Dahl",)),
    (0, "In which year did electric light come to the lighthouse?", ("1922",)),
    (1, "For how many hours does the dough rest?", ("sixteen", "16", "sixteen hours")),
    (2, "From which town did the Petrel leave?", ("Bergen",)),
    (2, "What did the storm damage?", ("the winch", "winch")),
)


def rows(random: Random, number: int) -> Iterator[Row]:
    """Yield the questions of one of the three contexts; they are the same for every seed."""
    for context, question, references in QUESTIONS:
        if context == number:
            yield {
                "context": CONTEXTS[context],
                "question": question,
                "references": references,
                "cluster": f"context {context}",
            }

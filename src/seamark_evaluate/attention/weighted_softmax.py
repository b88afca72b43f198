"""A softmax whose terms are weighted, and that has a value where every term is left out. Needs torch."""

import torch
from torch import Tensor


def weighted_terms(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return numerators [..., n] and denominator [..., 1] of the softmax of scores; -inf leaves a term out.

    A weight w of a term is log(w) added to its score. The maximum is that of the terms that are not left out, and a
    row without any has numerators of 0 and a denominator of 1.
    """
    highest = scores.amax(dim=-1, keepdim=True)
    terms = (scores - highest.masked_fill(highest == float("-inf"), 0)).exp()
    total = terms.sum(dim=-1, keepdim=True)
    return terms, torch.where(total > 0, total, 1.0)

"""pass@k: the probability that at least one of k samples of an answer is right (Chen et al., 2021). Pure."""

from math import comb


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Return the probability that at least one of k of the samples is right: 1 - C(n - c, k) / C(n, k).

    Unbiased for k up to the number of samples. https://arxiv.org/abs/2107.03374, equation 1. Raises ValueError for
    other numbers.
    """
    if not 0 <= right <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@{k} of {samples} samples with {right} right is not defined.")
    return 1 - comb(samples - right, k) / comb(samples, k)

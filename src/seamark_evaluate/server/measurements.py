"""What attention read: density by layer and phase, bytes of keys and values, output error of some positions."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

import torch

Phase = Literal["context", "question", "answer"]
REPORTED: tuple[Phase, ...] = ("question", "answer")
MOST_SAMPLED = 64
"""Limit of sampled positions of a reply: their queries are kept until its last token."""


@dataclass(kw_only=True)
class PhaseCounts:
    """Keys that were kept and keys that causality allows, of each layer; both count every query and every head."""

    kept: list[int]
    allowed: list[int]

    def density(self) -> list[float]:
        """Return kept over allowed keys of each layer; empty if nothing was computed."""
        return [kept / allowed for kept, allowed in zip(self.kept, self.allowed, strict=True) if allowed]


@dataclass(frozen=True, kw_only=True)
class SampledQuery:
    """The queries [heads, 1, head_dim] of one position in one layer; `positions` keys are there for it."""

    layer: int
    positions: int
    queries: torch.Tensor
    scale: float


@dataclass(kw_only=True)
class Measurements:
    """Counts of one reply. Positions are sampled by `random`, each with probability `error_ratio`; their error is
    computed after the last token, so that no token waits for it."""

    layers: int
    error_ratio: float = 0.0
    random: Random = field(default_factory=lambda: Random(0))
    kv_bytes_read: int = 0
    sampled: list[SampledQuery] = field(default_factory=list)
    errors: Mapping[int, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        zeros = [0] * self.layers
        self._phases = {phase: PhaseCounts(kept=[*zeros], allowed=[*zeros]) for phase in ("context", *REPORTED)}
        self._positions_sampled = 0
        self.layers_counted = 0

    def add(self, phase: Phase, layer: int, *, kept: int, allowed: int, kv_bytes_read: int) -> None:
        """Count the attention of one layer in one forward pass. Bytes of contexts are not those of an answer."""
        self.layers_counted += 1
        counts = self._phases[phase]
        counts.kept[layer] += kept
        counts.allowed[layer] += allowed
        if phase in REPORTED:
            self.kv_bytes_read += kv_bytes_read

    @contextmanager
    def counted_if_done(self) -> Iterator[None]:
        """Take what one forward pass has counted and sampled back where it fails: what it was for is computed again,
        in smaller parts, from its first layer."""
        counts = {phase: ([*tally.kept], [*tally.allowed]) for phase, tally in self._phases.items()}
        before = self.kv_bytes_read, len(self.sampled), self._positions_sampled, self.layers_counted
        try:
            yield
        except BaseException:
            self._phases = {name: PhaseCounts(kept=kept, allowed=allowed) for name, (kept, allowed) in counts.items()}
            self.kv_bytes_read, sampled, self._positions_sampled, self.layers_counted = before
            del self.sampled[sampled:]
            raise

    def place_to_sample(self, phase: Phase, queries: int) -> int | None:
        """Return which of a pass's queries to sample, None for none: of several that are drawn, the first."""
        if phase not in REPORTED or not self.error_ratio or self._positions_sampled >= MOST_SAMPLED:
            return None
        drawn = next((at for at in range(queries) if self.random.random() < self.error_ratio), None)
        self._positions_sampled += drawn is not None
        return drawn

    def counts(self) -> dict[str, float]:
        """Return what this reply adds to the server's counters, by their names."""
        found: dict[str, float] = {"kv_read_bytes": self.kv_bytes_read}
        for phase in REPORTED:
            found[f"{phase}_keys_kept"] = sum(self._phases[phase].kept)
            found[f"{phase}_keys_allowed"] = sum(self._phases[phase].allowed)
        if self.errors:
            found["output_errors"] = mean([mean(layer) for layer in self.errors.values()])
            found["output_errors_sampled"] = 1
        return found

    def document(
        self, *, kernel: str, context_tokens: int, cut: int, reused: bool, prefill_chunk: int
    ) -> dict[str, Any]:
        """Return the field `seamark` of a reply. Densities are ratios, errors relative to dense attention;
        `prefill_chunk` is the number of tokens of a prompt that were computed at a time, the least of this reply."""
        density = {phase: self._phases[phase].density() for phase in REPORTED}
        kept = sum(sum(self._phases[phase].kept) for phase in REPORTED)
        allowed = sum(sum(self._phases[phase].allowed) for phase in REPORTED)
        errors = [mean(self.errors[layer]) for layer in sorted(self.errors)] or None
        return {
            "context_tokens": context_tokens,
            "context_tokens_cut": cut,
            "context_reused": reused,
            "density": density,
            "density_mean": kept / allowed if allowed else None,
            "output_error": errors,
            "output_error_mean": mean(errors) if errors else None,
            "output_error_positions": self._positions_sampled if errors else 0,
            "kv_bytes_read": self.kv_bytes_read,
            "kernel": kernel,
            "prefill_chunk": prefill_chunk,
        }


def mean(values: Sequence[float]) -> float:
    """Return the mean of values, of which there is at least one."""
    return sum(values) / len(values)

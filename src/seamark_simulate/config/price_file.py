"""Reader of a file of prices: of a GPU hour by kind of GPU, and of an hour of a server without GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seamark.config.decode import WRONG, decode
from seamark.config.json_source import load_document
from seamark.config.yaml_source import Mistakes
from seamark.errors import UserError, did_you_mean
from seamark.model.annotations import limited


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices in one currency: of an hour of a GPU by its kind, and of an hour of a server without GPUs."""

    currency: str = ""
    gpu_hour: Mapping[str, float] = limited(default_factory=dict, above=0)
    server_hour: float | None = limited(None, above=0)

    def per_hour(self, gpu: str | None, count: int) -> float:
        """Return the price of an hour of that many GPUs of a kind, of servers for None. Raises UserError for a price
        that the file does not have."""
        if gpu is None:
            if self.server_hour is None:
                raise UserError("--price: it has no 'server_hour', the price of an hour of a server without GPUs.")
            return count * self.server_hour
        if gpu not in self.gpu_hour:
            known = ", ".join(self.gpu_hour) or "none"
            guess = did_you_mean(gpu, self.gpu_hour)
            raise UserError(f"--price: 'gpu_hour' has no price of {gpu}.{guess} It has: {known}.")
        return count * self.gpu_hour[gpu]


def read_prices(path: Path) -> Prices:
    """Return the prices of a YAML or JSON file. Raises UserError with every mistake and its line."""
    mistakes = Mistakes()
    tree = load_document(path, mistakes)
    mistakes.raise_any()
    assert tree is not None, "a file that cannot be read leaves a mistake"
    prices = decode(tree, Prices, mistakes)
    if prices is not WRONG and not prices.gpu_hour and prices.server_hour is None:
        mistakes.add(tree, "has no price. Write such as 'gpu_hour: {a100-40: 1.90}' or 'server_hour: 0.10'.")
    mistakes.raise_any()
    assert isinstance(prices, Prices)
    return prices

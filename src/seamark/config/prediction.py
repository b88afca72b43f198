"""Decoder of a scenario's key `prediction`: figures that a model predicted of its trials."""

from collections.abc import Sequence

from seamark.config.decode import WRONG, decode
from seamark.config.yaml_source import Item, Mistakes
from seamark.model.scenario import Prediction, Workload

PARTS = 3


def prediction_of(item: Item, workloads: Sequence[Workload], mistakes: Mistakes) -> Prediction | None:
    """Return the prediction of a scenario, or None after noting at least one mistake."""
    prediction = decode(item, Prediction, mistakes)
    if prediction is WRONG:
        return None
    before = mistakes.count
    rates = {level for workload in workloads for level in workload.levels.get("rate_rps", ())}
    if not prediction.loads:
        mistakes.add(item.value["loads"], "has no load. `bench capacity --verify` writes predictions.")
    if not 0 < prediction.interval < 1:
        mistakes.add(item.value["interval"], f"{prediction.interval:g} is no share between 0 and 1.")
    for part, load in zip(item.value["loads"].value, prediction.loads, strict=True):
        if load.rate_rps not in rates:
            known = ", ".join(f"{rate:g}" for rate in sorted(rates, key=str)) or "none"
            mistakes.add(part.value["rate_rps"], f"{load.rate_rps:g} is no rate_rps of a workload. Rates: {known}.")
        if not 0 <= load.met <= 1:
            mistakes.add(part.value["met"], f"{load.met:g} is no share from 0 to 1.")
        for name, numbers in load.figures.items():
            if len(numbers) != PARTS or not numbers[1] <= numbers[0] <= numbers[2]:
                at = part.value["figures"].value[name]
                mistakes.add(at, "needs three numbers: value, low and high, the value between the others.")
    assert isinstance(prediction, Prediction)
    return prediction if mistakes.count == before else None

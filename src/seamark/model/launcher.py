"""Who may carry the shards of a load, and what an address of each looks like. Starts nothing."""

import re
from typing import Literal, get_args

from seamark.errors import did_you_mean

CarrierName = Literal["local", "srun", "dask", "spark"]
CARRIERS: tuple[CarrierName, ...] = get_args(CarrierName)
ADDRESSES = {
    "dask": re.compile(r"(tcp|tls|ws|wss|ucx)://\S+:\d+"),
    "spark": re.compile(r"spark://\S+:\d+|local\[(\d+|\*)(,\d+)?\]|local-cluster\[\d+,\d+,\d+\]|yarn|k8s://\S+"),
}
EXAMPLES = {"dask": "tcp://HOST:8786", "spark": "spark://HOST:7077 or local[4]"}


def misplaced(name: str, address: str | None) -> str | None:
    """Return what is wrong with a carrier's name or address, None when nothing is."""
    if name not in CARRIERS:
        return f"'{name}' is none of {', '.join(CARRIERS)}.{did_you_mean(name, CARRIERS)}"
    if name not in ADDRESSES:
        return None if address is None else f"{name} takes no address. Remove '{address}'."
    if address is None:
        return f"{name} needs the address of its cluster, as {EXAMPLES[name]}."
    if not ADDRESSES[name].fullmatch(address):
        return f"'{address}' is no address for {name}. Give one as {EXAMPLES[name]}."
    return None

"""What test_milvus.py asks in the environment of Milvus. Every answer is JSON."""

import time
from pathlib import Path
from typing import Any

from pymilvus import MilvusClient

from seamark.drivers.vectors import milvus
from seamark.drivers.vectors.dataset import Dataset
from seamark.drivers.vectors.milvus_calls import MilvusSearch
from seamark.drivers.vectors.milvus_messages import Searching
from seamark.errors import UserError
from seamark.load.driver import Body, Target


def target(where: dict[str, Any]) -> Target:
    return Target(settings=where["settings"], data=Path(where["data"]), ports=where["ports"])


def populated(where: dict[str, Any], seed: int) -> Any:
    return dict(milvus.populate(target(where), seed))


def recalls(where: dict[str, Any], knob: str, levels: list[int]) -> Any:
    found = [milvus.quality(target({**where, "settings": {**where["settings"], knob: level}}), 0) for level in levels]
    return [dict(each) for each in found]


def mistakes(where: dict[str, Any], changes: list[dict[str, Any]]) -> Any:
    """Give what the driver says of each of these settings, None where it says nothing."""
    return [_mistake({**where, "settings": {**where["settings"], **each}}) for each in changes]


def _mistake(where: dict[str, Any]) -> Any:
    try:
        milvus.driver(target(where))
    except UserError as error:
        return str(error)
    return None


def refused(where: dict[str, Any]) -> Any:
    """Search a collection with a query of another length; give the category and Milvus's reason."""
    there = target(where)
    driver = MilvusSearch(there)
    session = driver.session()
    queries = Dataset.load(there.data).queries[:1, :-1]
    try:
        session.call(Body(content=Searching.of(there.settings).request(queries)))
    except Exception as error:
        return [driver.failure(error).name, str(error)]
    finally:
        session.close()
    return None


def rows(where: dict[str, Any], collection: str) -> Any:
    """Give how many rows the server counts in a collection, asked through MilvusClient alone."""
    client = MilvusClient(uri=f"http://127.0.0.1:{where['ports']['main']}")
    told = client.query(collection, filter="", output_fields=["count(*)"], consistency_level="Strong")
    client.close()
    return int(told[0]["count(*)"])


def client_costs(where: dict[str, Any], requests: int) -> Any:
    """Give the processor seconds that a search takes from us and from MilvusClient."""
    there = target(where)
    driver = MilvusSearch(there)
    bodies, session = driver.bodies(requests, 1), driver.session()
    queries = Dataset.load(there.data).queries
    client = MilvusClient(uri=f"http://127.0.0.1:{where['ports']['main']}")
    began_s = time.process_time()
    for body in bodies:
        assert session.call(body).units == 1
    ours_s = time.process_time()
    for number in range(requests):
        client.search("seamark", [queries[number % len(queries)]], limit=10, anns_field="vector")
    theirs_s = time.process_time()
    client.close()
    session.close()
    return [(ours_s - began_s) / requests, (theirs_s - ours_s) / requests]

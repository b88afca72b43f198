"""Requests and replies of Chroma's driver, without a server."""

import json

import numpy as np
import pytest

from seamark.drivers.vectors.chroma_search import ID_FILE, ChromaSearch
from seamark.drivers.vectors.dataset import Dataset
from seamark.load.driver import Target
from seamark.model.sample import Failure

DATA = Dataset.generate(vectors=200, dimensions=4, queries=6, seed=0)


def driver(folder, **settings):
    DATA.save(folder)
    (folder / ID_FILE).write_text("an-id")
    return ChromaSearch(
        Target(settings={"k": 3, "batch": 2, "vectors": 200} | settings, data=folder, ports={"main": 9})
    )


@pytest.mark.covers("E-FR22")
@pytest.mark.parametrize(
    ("settings", "where"), [({}, None), ({"filter_ratio": 0.1}, {"row": {"$lt": 20}})], ids=["plain", "filtered"]
)
def test_a_request_asks_a_batch_of_queries_and_says_its_filter(tmp_path, settings, where):
    search = driver(tmp_path, **settings)
    bodies = search.bodies(3, seed=4)
    head, _, content = search.encode(bodies[0]).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /api/v2/tenants/default_tenant/databases/default_database/collections/an-id/query ")
    asked = json.loads(content)
    assert (asked["n_results"], asked.get("where")) == (3, where)
    queries = [query for body in bodies for query in json.loads(body.content)["query_embeddings"]]
    assert sorted(np.float32(queries).tolist()) == sorted(DATA.queries.tolist())


@pytest.mark.covers("E-FR22")
@pytest.mark.parametrize(
    ("ids", "units", "failure"),
    [
        ([["1", "2"], ["3"]], 2, Failure.NONE),
        ([["1", "2"], []], 0, Failure.EMPTY_REPLY),
        ([["1", "2"]], 0, Failure.WRONG_REPLY),
    ],
)
def test_a_reply_counts_where_every_query_of_the_batch_got_an_answer(tmp_path, ids, units, failure):
    decoder = driver(tmp_path).decoder()
    decoder.reset()
    content = json.dumps({"ids": ids}).encode()
    assert decoder.feed(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))
    assert (decoder.units, decoder.failure) == (units, failure)

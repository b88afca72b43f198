"""Requests and replies of Milvus, as pymilvus's own messages. Requests are encoded before the clock starts.

Sending them directly costs 0.5 ms of CPU per request, MilvusClient.search 1.1 ms, and each is sent once, while
pymilvus retries by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pymilvus import CollectionSchema, DataType, MilvusClient
from pymilvus.client.prepare import Prepare
from pymilvus.grpc_gen import milvus_pb2

from seamark.drivers.vectors.dataset import Ids, Vectors, visible
from seamark.errors import UserError
from seamark.load.driver import whole
from seamark.model.sample import Failure
from seamark.model.service import Value

SERVICE = "/milvus.proto.milvus.MilvusService"
SEARCHED = "seamark"
"""The collection that is filled before the load, and searched."""
INSERTED = "seamark_inserts"
"""The collection that loads insert into."""
KINDS = {"flat": "FLAT", "ivf": "IVF_FLAT", "hnsw": "HNSW"}
METRICS = {"l2": "L2", "ip": "IP", "cosine": "COSINE"}
GUARANTEES = {"strong": 0, "eventually": 1, "bounded": 2}
"""Milvus's value for the time up to which a search must see all data."""
TIMED_OUT = 10001
PARAMETERS = range(1100, 1200)


class RefusedError(Exception):
    """Milvus answered that it will not or cannot; `code` is its own number."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"Milvus says {code}: {reason}")
        self.code = code

    @property
    def category(self) -> Failure:
        """The category of the code, by pkg/util/merr of Milvus."""
        if self.code in PARAMETERS:
            return Failure.CLIENT_ERROR
        return Failure.TIMEOUT if self.code == TIMED_OUT else Failure.SERVER_ERROR


def schema_of(collection: str, dimensions: int) -> CollectionSchema:
    """Return the fields of a collection: ids are Seamark's where it is searched, Milvus's where loads insert, and
    there each vector has the number of its load."""
    ours = collection == SEARCHED
    schema = MilvusClient.create_schema(auto_id=not ours, enable_dynamic_field=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    if not ours:
        schema.add_field("load", DataType.INT64)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimensions)
    return schema


def index_of(settings: Mapping[str, Value]) -> dict[str, Any]:
    """Return the index of the settings, in Milvus's terms."""
    kind = str(settings["index"])
    params = {
        "flat": {},
        "ivf": {"nlist": settings["lists"]},
        "hnsw": {"M": settings["m"], "efConstruction": settings["ef_construction"]},
    }
    return {"index_type": KINDS[kind], "metric_type": METRICS[str(settings["metric"])], "params": params[kind]}


@dataclass(frozen=True, kw_only=True)
class Searching:
    """How queries become requests and replies become ids, by a trial's settings."""

    settings: Mapping[str, Value]
    k: int
    guarantee: int

    @staticmethod
    def of(settings: Mapping[str, Value]) -> "Searching":
        """Return it for a trial's settings. Raises UserError for settings that Milvus refuses."""
        index, k, ef, nprobe, lists = (settings[name] for name in ("index", "k", "ef_search", "nprobe", "lists"))
        if index == "hnsw" and int(ef or 0) < int(k or 0):
            raise UserError(
                f"ef_search: {ef} is less than k, {k}: Milvus refuses that. Set ef_search to {k} or more."
            )
        if index == "ivf" and int(nprobe or 0) > int(lists or 0):
            raise UserError(f"nprobe: {nprobe} is more than lists, {lists}. Set it to {lists} or less.")
        return Searching(
            settings=settings, k=whole(settings, "k"), guarantee=GUARANTEES[str(settings["consistency"])]
        )

    def request(self, queries: Vectors) -> bytes:
        """Return the encoded search for these queries (q, d)."""
        passing = visible(self.settings, whole(self.settings, "vectors"))[1]
        knobs = {"hnsw": {"ef": self.settings["ef_search"]}, "ivf": {"nprobe": self.settings["nprobe"]}}
        params = {
            "metric_type": METRICS[str(self.settings["metric"])],
            "params": knobs.get(str(self.settings["index"]), {}),
        }
        message = Prepare.search_requests_with_expr(
            collection_name=SEARCHED,
            anns_field="vector",
            param=params,
            limit=self.k,
            data=list(queries),
            guarantee_timestamp=self.guarantee,
            use_default_consistency=False,
            **({} if self.settings.get("filter_ratio") is None else {"expr": f"id < {passing}"}),
        )
        return bytes(message.SerializeToString())

    def counts(self, reply: bytes) -> list[int]:
        """Return how many ids each query got. Raises RefusedError, DecodeError."""
        return list(self._results(reply).topks)

    def ids(self, reply: bytes) -> Ids:
        """Return the ids (q, k) of a reply, -1 for a missing one. Raises RefusedError, DecodeError."""
        results = self._results(reply)
        counts = list(results.topks)
        flat = np.array(results.ids.int_id.data, dtype=np.int64)
        found = np.full((len(counts), self.k), -1, dtype=np.int64)
        for row, part in enumerate(np.split(flat, np.cumsum(counts)[:-1])):
            found[row, : len(part)] = part
        return found

    def _results(self, reply: bytes) -> Any:
        message = milvus_pb2.SearchResults.FromString(reply)
        require_good(message.status)
        return message.results


def insert_request(fields: list[dict[str, Any]], vectors: Vectors, load: int) -> bytes:
    """Return the encoded insertion of these vectors (n, d), each with the number of the load."""
    rows = [{"load": load, "vector": vector} for vector in vectors]
    return bytes(Prepare.row_insert_param(INSERTED, rows, "", fields, []).SerializeToString())


def inserted(reply: bytes) -> int:
    """Return the number of vectors that Milvus accepted. Raises RefusedError, DecodeError."""
    message = milvus_pb2.MutationResult.FromString(reply)
    require_good(message.status)
    return int(message.insert_cnt)


def require_good(status: Any) -> None:
    """Raise RefusedError unless a reply's status is success; servers older than 2.3 have only `error_code`."""
    code = int(status.code or status.error_code)
    if code:
        raise RefusedError(code, status.reason)

"""load.json and samples.json: what came of a load, and what its samples are."""

from collections.abc import Mapping
from typing import Required, TypedDict

from seamark.model.results.values import Count, Moment, Number, Seconds, UnixNs, Word


class Lag(TypedDict, total=False):
    """How late a worker's loop or requests were, in ns."""

    p50: Number
    p99: Number
    max: Number


class Network(TypedDict, total=False):
    """The connections of one worker."""

    connections: Required[int]
    ports_free: Required[Count]
    churn_per_s_limit: Required[Number]
    connected_anew: Required[int]
    connected_anew_per_s: Required[Number]
    listen_backlog: Required[Count]
    listen_overflows: Required[Count]
    ports: Mapping[str, int | bool] | None


class Packages(TypedDict, total=False):
    """Which counters of processors' energy there are, or why none."""

    counters: list[str] | None
    reason: Word


class OfNode(TypedDict, total=False):
    """What Slurm says that a node used."""

    value_j: Number
    window_s: Seconds
    step: Word
    reason: Word


class Energy(TypedDict, total=False):
    """What is known of energy besides telemetry."""

    package: Packages | None
    node: OfNode | None
    idle_w: Mapping[str, Number] | None


class Worker(TypedDict, total=False):
    """The report of one worker of a load."""

    worker: Count
    ok: bool | None
    reason: Word
    errno: Count
    wall_s: Seconds
    cpu_s: Seconds
    spin_s: Seconds
    max_rss_bytes: Number
    lag_ns: Lag | None
    loop_lag_ns: Lag | None
    stalls_ns: list[list[int]] | None
    backlog_max: Count
    survivors: Count
    written_off: Count
    network: Network | None
    scheduled: Count
    ran_out: bool | None
    sent: Count
    completed: Count
    quality: Mapping[str, Number] | None
    carrier: Word
    host: Word
    shared: bool | None
    offset_ns: Number
    offset_error_ns: Number
    offset_drift_ns: Number


class Client(TypedDict, total=False):
    """Who sent a load."""

    workers: Word
    processes: Count
    cores: list[int] | None


class Server(TypedDict, total=False):
    """The identity of the server that a trial was measured on."""

    digest: Required[str]
    runtime: Word
    site: Word
    machine: Word
    partition: Word
    address: Word
    image_digests: Mapping[str, Word] | None


class Load(TypedDict, total=False):
    """load.json and samples.json: what came of a load."""

    scenario: Word
    trial: Word
    trial_id: Word
    config_hash: Word
    server_identity: Server | None
    status: Required[str]
    category: Word
    reason: Word
    log_tail: list[str] | None
    started_at: Moment | None
    finished_at: Moment | None
    node: Word
    warmup_s: Seconds
    duration_s: Seconds
    republished: bool | None
    in_client: bool | None
    quality: Mapping[str, Number] | None
    failures: Mapping[str, int] | None
    client: Client | None
    workers: list[Worker] | None
    scheduled: Count
    sent: Count
    completed: Count
    unit: Word
    kinds: list[str] | None
    epoch_unix_ns: UnixNs
    over_saturated_at_s: Seconds
    attempt: Count
    server_restarted: Word
    energy: Energy | None
    rows: Count
    samples_bytes: Count
    pruned_at: Moment | None


class Sent(TypedDict, total=False):
    """What samples.json has besides: it is the load.json of a load that ended well."""

    config_hash: Required[str]
    samples_bytes: Required[int]

"""Calibration of the gateway of a pool: what it carries on this machine, and the cost of its hop.

As the client is calibrated against a server without work of its own, before anything is compared: the recipe's own
gateway is started in front of reference servers that answer at once, in place of its replicas. One file for each
machine and gateway in the results, `.calibration/NODE.gateway-DIGEST.json`; the digest is of the server's identity,
of the settings that the gateway is started with, and of the requests. So no equal gateway is measured twice.
"""

import os
import re
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from seamark.dispatch import identity
from seamark.errors import UserError
from seamark.load.coordinator.coordinator import LoadError, PreparationError
from seamark.load.driver import Target
from seamark.load.engine.http import HttpDecoder
from seamark.load.fetch import READ_BYTES, connect
from seamark.model.digest import digest
from seamark.model.dotted import resolved
from seamark.model.results.deployment_record import Endpoint
from seamark.model.results.gateway_ceiling import GatewayCeiling
from seamark.model.scenario import filled
from seamark.model.service import Health, Part, Server, Service, Value
from seamark.model.trial import PARTY, SCHEMA_VERSION
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.device_locks import device_of_lane
from seamark.stats.quantiles import interval_ranks, rank
from seamark.storage.documents import read_or_none, write
from seamark.storage.redaction import redacted
from seamark.telemetry import provenance
from seamark.telemetry.process import used_by_others
from seamark.trials import sidecar
from seamark.trials.calibration import OPENAI, brief_load, reply_rate
from seamark.trials.deployment_context import DeploymentContext
from seamark.trials.load_lock import exclusive_load

GATEWAY = "gateway"
"""Member of the deployment as which the calibrated pool runs: what ends a deployment's servers ends this too."""
SECONDS = 1.5
CONNECTIONS, STREAMS = 32, 128
CHUNKS, GAP_MS = 64, 1
"""Chunks of a streamed reply, and the time between two: each is a write of its own."""
INSTANT = (
    *("{python}", "{package}/platform/isolated_main.py", "seamark.testservers.reference"),
    *("--host={host}", f"--gap-ms={GAP_MS}"),
)
PAIRS, UNTIMED = 200, 10
"""Requests of each way for the hop, and those before them, on which the gateway connects to its replicas."""
ANSWERED_S, WATCH_S = 30.0, 0.3
NAMED = re.compile(r"\{(?:settings|switches|words)\[(\w+)\]")
NOT_ASKED = (
    *("gen_tokens", "gen_tokens_shape", "gen_tokens_spread"),
    *("caches", "tokenizer", "headers", "api_key_env", "base_path"),
)
"""Settings of requests that are others here: lengths of replies, and what is there for the real replicas alone."""


def replicas_of(server: Server | None) -> tuple[Part, ...]:
    """Return the parts whose copies a server's own command names: it is their gateway."""
    parts = server.parts if server else ()
    return tuple(part for part in parts if server and part.count and f"{{urls[{part.name}]}}" in server.command)


def gateway_file(context: DeploymentContext) -> Path | None:
    """Return the file of a deployment's gateway on this machine; None without a gateway of the OpenAI API that is
    started here by itself."""
    server, deployment = context.service.server, context.deployment
    alone = deployment.whole == deployment.id and not deployment.members and deployment.nodes == 1
    if not (replicas_of(server) and alone and context.site.starts_servers and context.service.driver == OPENAI):
        return None
    key = digest({"server": context.server.digest, "asked": _asked(context)})[:16]
    return context.study.results / ".calibration" / f"{identity.node()}.gateway-{key}.json"


def known_gateway(context: DeploymentContext) -> GatewayCeiling | None:
    """Return what was measured of a deployment's gateway on this machine, None where nothing was."""
    path = gateway_file(context)
    return None if path is None else read_or_none(path, GatewayCeiling)


def calibrate_gateway(context: DeploymentContext, parent_pid: int) -> None:
    """Measure the gateway of a deployment unless that was done on this machine, and write its file.

    It takes about 8 s. A gateway that cannot be measured is recorded with the reason; the trials are measured all the
    same. It is measured again at the next start then, and where others used the machine.
    """
    if sidecar.FOLDER in os.environ:  # the container that starts the servers does it
        return
    path, known = gateway_file(context), known_gateway(context)
    if path is not None and not (known and known.holds):
        with exclusive_load(context, parent_pid):
            write(path, _measured(context))


def _asked(context: DeploymentContext) -> Mapping[str, Value]:
    """Return the settings that the gateway is started with, and those of its requests: of the trial with the longest
    prompts, since a gateway reads them."""
    server = context.service.server
    assert server is not None
    counted = replicas_of(server)
    others = replace(server, parts=tuple(part for part in server.parts if part not in counted))
    names = {*NAMED.findall(repr(others)), *(str(part.count) for part in counted)}
    asked = {name: context.deployment.settings.get(name) for name in sorted(names)}
    trials = context.study.whole.trials_of(context.scenario, context.deployment.id)
    prompts = (filled(trial.settings) for trial in trials)
    longest = max(prompts, key=lambda settings: float(settings.get("prompt_len") or 0), default={})
    own = (setting.name for setting in context.service.settings if setting.role == "workload")
    return asked | {name: longest[name] for name in own if name not in NOT_ASKED and longest.get(name) is not None}


def _with_instant_replicas(service: Service) -> Service:
    """Return the recipe with reference servers that answer at once in place of the replicas."""
    server = service.server
    assert server is not None
    instant = {
        part.name: Part(
            name=part.name,
            count=part.count,
            ports=part.ports,
            command=(*INSTANT, f"--port={{ports[{part.ports[0]}]}}"),
            health=Health(probe="http", port=part.ports[0], path="/health"),
        )
        for part in replicas_of(server)
    }
    parts = tuple(instant.get(part.name, part) for part in server.parts)
    return replace(service, server=replace(server, parts=parts))


def _measured(context: DeploymentContext) -> GatewayCeiling:
    """Start the pool, measure, and end it; nothing of it stays but the record."""
    deployment = replace(context.deployment, id=f"{context.deployment.id}{PARTY}{GATEWAY}")
    folder, asked = context.results.deployment(deployment.id), _asked(context)
    counted = replicas_of(context.service.server)
    record = GatewayCeiling(
        schema_version=SCHEMA_VERSION,
        at=provenance.now(),
        node=identity.node(),
        cores=len(os.sched_getaffinity(0)),
        replicas=sum(len(part.copies(deployment.settings)) for part in counted),
        asked=redacted(asked),
    )
    shutil.rmtree(folder.root, ignore_errors=True)
    others = used_by_others(WATCH_S, [os.getpid()])
    try:
        endpoint = servers.serve_planned(
            context.study,
            context.scenario,
            deployment,
            context.site,
            folder,
            service=_with_instant_replicas(context.service),
            evict=device_of_lane() is None,
        )
        if not endpoint.ok:
            return replace(record, reason=f"its pool did not start: {endpoint.reason}")
        first = counted[0].copies(deployment.settings)[0]
        [replica] = [part for part in endpoint.parts if part.name == first]
        settings = {**deployment.settings, **asked, "gen_tokens": 1}
        found = _with_figures(record, endpoint, next(iter(replica.ports.values())), settings)
        after = used_by_others(WATCH_S, [os.getpid(), endpoint.server_pid, endpoint.keeper_pid])
        seen = [ratio for ratio in (others, after) if ratio is not None]
        return replace(found, others_ratio=max(seen, default=None))
    except (LoadError, PreparationError, UserError, OSError) as error:
        return replace(record, reason=str(error))
    finally:
        servers.stop(folder, "teardown")
        shutil.rmtree(folder.root, ignore_errors=True)


def _with_figures(
    record: GatewayCeiling, endpoint: Endpoint, replica: int, settings: Mapping[str, Value]
) -> GatewayCeiling:
    """Return the record with what the gateway at `endpoint` carries, of which one replica listens on that port.

    The time of a chunk is what is left of a load of long replies, over all its chunks.
    """
    host, client = endpoint.host or "", endpoint.pinning.client if endpoint.pinning else ()
    load = partial(brief_load, "wire", seconds=SECONDS, driver=OPENAI, cores=client, host=host)
    driver: Any = resolved(OPENAI, type)(
        Target(settings={"timeout_s": ANSWERED_S, **settings}, data=Path(), host=host, ports=endpoint.ports)
    )
    pieces = map(driver.encode, driver.bodies(UNTIMED + PAIRS, 1))
    requests = [piece if isinstance(piece, bytes) else b"".join(piece) for piece in pieces]
    through = driver.address()[1]
    hops_ms = sorted(list(_hops_ms(host, through, replica, requests))[UNTIMED:])
    low, high = interval_ranks(0.5, len(hops_ms))
    short = {**settings, "concurrency": CONNECTIONS}
    direct_per_s = reply_rate(load(short, port=replica))
    requests_per_s = reply_rate(load(short, port=through))
    streamed = load({**settings, "gen_tokens": CHUNKS, "concurrency": STREAMS}, port=through)
    chunks = streamed.reads + streamed.joined
    chunks_s = streamed.wall_s - len(streamed.samples) / requests_per_s
    return replace(
        record,
        requests_per_s=requests_per_s,
        chunks_per_s=chunks / chunks_s if chunks and chunks_s > 0 else None,
        direct_per_s=direct_per_s,
        hop_ms=hops_ms[rank(0.5, len(hops_ms))],
        hop_interval_ms=(hops_ms[low], hops_ms[-1 if high is None else high]),
        pairs=len(hops_ms),
    )


def _hops_ms(host: str, through: int, direct: int, requests: Sequence[bytes]) -> Iterator[float]:
    """Yield how much longer each request took through the gateway than without it, until its reply was whole.

    One request at a time on connections that stay open, each way first in turns, so that a drift of the machine is in
    both. Raises OSError for a request without a good reply.
    """
    until_s = time.monotonic() + ANSWERED_S
    with (
        closing(connect(host, through, None, until_s)) as one,
        closing(connect(host, direct, None, until_s)) as other,
    ):
        ways = {through: (one, HttpDecoder()), direct: (other, HttpDecoder())}
        for connection, _ in ways.values():
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number, request in enumerate(requests):
            order = (through, direct) if number % 2 else (direct, through)
            took_ns = {port: _took_ns(*ways[port], request) for port in order}
            yield (took_ns[through] - took_ns[direct]) / 1e6


def _took_ns(connection: socket.socket, decoder: HttpDecoder, request: bytes) -> int:
    decoder.reset()
    sent_ns = time.monotonic_ns()
    connection.sendall(request)
    while not decoder.feed(data := connection.recv(READ_BYTES)):
        if not data:
            raise ConnectionError("a connection was closed before the end of a reply")
    took_ns = time.monotonic_ns() - sent_ns
    if decoder.status != 200:
        raise ConnectionError(f"a request was answered with {decoder.error}")
    return took_ns

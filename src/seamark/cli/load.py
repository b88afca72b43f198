"""bench load: a quick load on one address, without a scenario."""

import base64
import json
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

import click

from seamark.cli.load_settings import (
    known_settings,
    load_options,
    load_settings,
    require_fit,
    require_said_once,
    settings_from,
)
from seamark.cli.options import given_options, json_option, option, options, output_file, strict_option
from seamark.cli.output import ended_by_signals, terminal, warn_of_machine
from seamark.errors import SiteError, UserError, did_you_mean
from seamark.model.objectives import OBJECTIVES, is_objective
from seamark.model.plurals import counted
from seamark.model.results.load_record import ClientRecord, LoadRecord, WorkerReport
from seamark.model.scenario import Slo
from seamark.model.service import Setting, Value
from seamark.report.numbers import number
from seamark.stats.live_rate import LiveRate
from seamark.storage.documents import replacing

OBJECTIVE = re.compile(r"^([a-z0-9_]+)(<=|>=|=)([0-9.eE+-]+)$")
OF_THE_API = ("stream", "model", "prompt_tokens", "output_tokens", "extra_body", "mix", "prompt_seed")
BASE = re.compile(r"v\d+(alpha|beta)?|openai")
"""The last part of the path before the endpoints of an OpenAI API."""
IN_AN_ADDRESS = "/?%:@!$&'()*+,;=~[]"
"""Characters that are not quoted in the path or query of an address, besides letters, digits and '_.-'."""
SHOW_EVERY_S = 0.5
"""Least time between two changes of the progress line."""
STOPPED = " of the load: there are no metrics, and no samples were kept."


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """What is sent and from where, beside the settings of the load."""

    carrier: str = option(default="local", help="Launcher of the workers: local, srun, dask or spark.")
    carrier_address: str | None = option(
        help="Cluster of the launcher: tcp://HOST:8786, spark://HOST:7077 or local[4]."
    )
    carrier_python: Path | None = option(help="Python interpreter with Dask or Spark.")
    method: str | None = option(help="HTTP method. Default: GET, or POST with --body.")
    body: str | None = option(type=click.Path(), help="File with the body of every request.")
    header: tuple[str, ...] = option(
        metavar="NAME:VALUE", help="Header of every request; a value may be env:NAME or file:PATH."
    )
    insecure: bool = option(help="https: skip certificate verification.")
    cacert: str | None = option(type=click.Path(), help="https: PEM file of the certificate authority.")
    stream: bool = option(
        "--stream/--no-stream", default=True, show_default=False, help="OpenAI API: streamed replies, or whole ones."
    )
    model: str | None = option(help="OpenAI API: model. Default: the first in the server's list.")
    prompt_tokens: int = option(default=128, help="OpenAI API: length of a prompt.")
    output_tokens: int = option(default=128, help="OpenAI API: length of a reply.")
    extra_body: str | None = option(metavar="JSON", help="OpenAI API: changed fields of every request.")
    mix: str | None = option(help="OpenAI API: classes, as {chat: {weight: 3}, search: {prompt_len: 4096}}.")
    more: tuple[str, ...] = option("--set", metavar="NAME=VALUE", help="Any other setting.")
    slo: tuple[str, ...] = option(metavar="NAME=LIMIT", help="Objective, as latency_p99=0.2 (seconds).")
    seed: int | None = option(help="Seed of arrivals and bodies. Default: 1, and new prompts each time.")
    prompt_seed: int | None = option(help="OpenAI API: seed of the prompts.")
    output: str | None = option(type=click.Path(), help="Parquet file for the raw samples.")


@click.command("load")
@click.argument("address")
@load_options
@options(LoadOptions)
@strict_option
@json_option
def command(address: str, asked: LoadOptions, as_json: bool, strict: bool, **given: Any) -> int:
    """Load one address and print the metrics: the engine of a trial, without a scenario.

    \b
    Examples:
      bench load http://127.0.0.1:8000/ --concurrency 64 --requests 100000
      bench load https://example.org/search --pattern poisson --rate 50 --duration 30 --slo latency_p99=0.2
      bench load http://127.0.0.1:8000/echo --body request.json --header content-type:application/json
      bench load https://example.org/v1/chat/completions --model m --header 'Authorization: Bearer env:KEY'
      bench load standing/vllm-1/v1/completions --concurrency 8 --output-tokens 64
      bench load http://127.0.0.1:8000/ --pattern gamma --rate 50 --set burstiness=0.5
      bench load http://127.0.0.1:8000/v1/chat/completions --pattern poisson --rate 5 --turns 4 --think-time 2
      bench load http://10.0.0.5:8000/ --shards 8 --concurrency 64 --carrier dask --carrier-address tcp://10.0.0.1:8786

    standing/ID is a persistent server. An address that ends in /completions is loaded through the OpenAI API, unless
    --body is given; --extra-body '{"max_tokens": null, "max_completion_tokens": "{max_tokens}"}' renames a field.

    Exit code 1 when the verdict is INVALID or an objective is missed; with --strict also when too few samples tell.
    """
    from seamark.analysis.gate import gate_of_trial
    from seamark.dispatch.identity import node
    from seamark.load.coordinator.command_launcher import launcher_of
    from seamark.load.coordinator.coordinator import LoadError
    from seamark.platform.tls import tls_context
    from seamark.report.terminal import quick_load_text
    from seamark.storage.codec import encode
    from seamark.storage.paths import TrialFolder
    from seamark.telemetry.process import listener
    from seamark.trials.address import answer_of, look, port_of
    from seamark.trials.calibration import ceiling_of
    from seamark.trials.quick_load import Address, first_request, run_quick_load, statuses_of

    address = _of_standing(address)
    url, api = _endpoint(address, asked)
    slos = tuple(map(_slo, asked.slo))
    require_said_once(given_options(), asked.more, None if api else OF_THE_API)
    known = known_settings(given["pattern"], api=api)
    output = None if asked.output is None else output_file(asked.output, "--output", "samples.parquet")
    settings = load_settings(given, asked.mix, asked.more, known)
    secure = _secure(url, asked)
    tls = tls_context(secure)
    launcher = launcher_of(asked.carrier, asked.carrier_address, asked.carrier_python)
    asks = _prompts(url, asked, known) if api else _request(url, asked)
    here = asked.carrier == "local"
    if api and asks["model"] is None:
        from seamark.drivers.openai.driver import first_model

        if here:
            look(url, tls, given["timeout_s"])
        asks["model"] = first_model(url, asks, tls, given["timeout_s"])
    target = Address(
        driver="seamark.drivers.openai:OpenAi" if api else "seamark.drivers.http:Http",
        settings={**asks, **secure},
        host=url.hostname or "",
        port=port_of(url),
        service="openai" if api else "http",
    )
    seed = 1 if asked.seed is None else asked.seed
    prompt_seed = asked.seed if asked.prompt_seed is None else asked.prompt_seed
    if api and prompt_seed is None:  # those of the load before would be in the server's prefix cache
        prompt_seed = secrets.randbelow(1_000_000_000) + 1
        click.echo(f"Prompts of seed {prompt_seed}: --prompt-seed {prompt_seed} sends them again.", err=True)
    request, others = first_request(target, seed if prompt_seed is None else prompt_seed), None
    if here:
        look(url, tls, given["timeout_s"])
        others = warn_of_machine(own=listener(target.host, [target.port]), quiet=as_json)
    console = terminal(stderr=True)
    client = LoadRecord(
        status="ok",
        node=node(),
        client=ClientRecord(workers="wire", processes=given["shards"]),
        workers=(WorkerReport(carrier=asked.carrier),),
    )
    unwritten: OSError | None = None
    with ended_by_signals(STOPPED), tempfile.TemporaryDirectory(prefix="seamark-load-") as name:
        folder = TrialFolder(root=Path(name))
        try:
            with console.status("connecting") as line:
                live = LiveLine(line)
                derived = run_quick_load(
                    target,
                    settings,
                    folder,
                    slos=slos,
                    seed=seed,
                    prompt_seed=prompt_seed,
                    ceiling=ceiling_of(Path("results"), client),
                    on_progress=live,
                    launcher=launcher,
                    others_before=others,
                )
        except LoadError as error:
            raise UserError(f"bench load {address}: {error.reason}") from None
        except UserError:
            raise
        except Exception:  # memory, mostly
            click.echo(f"{live.text or 'No request'} recorded; the other figures could not be computed.", err=True)
            if output is not None and folder.samples.exists():
                write_output(folder.samples, output)
            raise
        statuses = statuses_of(folder.samples)
        if output is not None:
            try:
                write_output(folder.samples, output)
            except OSError as error:
                unwritten = error
    metrics, times = derived.metrics, derived.histograms.get("response_ns")
    click.echo(json.dumps(encode(metrics), indent=1) if as_json else quick_load_text(metrics, times, statuses))
    if not metrics.counts.ok:
        answer = answer_of(url, tls, request)
        click.echo(f"One request by hand: {answer.text}. {answer.remedy}".rstrip(), err=True)
    if unwritten is not None:
        raise SiteError(f"--output {output}: the samples were not written ({unwritten.strerror}). The figures stand.")
    failed = metrics.verdict == "INVALID" or any(slo.met is False for slo in metrics.slos)
    if strict:
        gate = gate_of_trial(metrics)
        click.echo(gate.text, err=True)
        failed = failed or not gate.passed
    return 1 if failed else 0


def _of_standing(address: str) -> str:
    """Return the address of a persistent server as a URL; any other as it is."""
    from seamark.load.engine.http import in_url
    from seamark.planning.external_servers import PERSISTENT_PREFIX
    from seamark.services.runtimes.runtimes import persistent_endpoint

    if not address.startswith(PERSISTENT_PREFIX):
        return address
    name, _, path = address.removeprefix(PERSISTENT_PREFIX).partition("/")
    endpoint = persistent_endpoint(Path("results"), f"{PERSISTENT_PREFIX}{name}")
    return f"http://{in_url(endpoint.host or '')}:{next(iter(endpoint.ports.values()))}/{path}"


def _endpoint(address: str, asked: LoadOptions) -> tuple[SplitResult, bool]:
    """Return the URL of an address, and whether it is an endpoint of the OpenAI API. Raises UserError for the base of
    one, whose own page is no service."""
    url = _url(address)
    path = url.path.rstrip("/")
    if asked.body is not None or asked.method is not None:
        return url, False
    if BASE.fullmatch(path.rpartition("/")[2]):
        base = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{path}"
        raise UserError(
            f"bench load {address}: the base address of an OpenAI API. Load {base}/chat/completions or "
            f"{base}/completions, or this page itself with --method GET."
        )
    api = path.endswith("/completions")
    return (url._replace(path=path) if api else url), api


def _url(address: str) -> SplitResult:
    try:
        url = urlsplit(address)
        known = url.scheme in ("http", "https") and url.hostname and (url.port or True)
    except ValueError:
        known = False
    if not known or not url.netloc.isascii():
        near = "" if "://" in address else f" Did you mean 'http://{address}'?"
        raise UserError(f"bench load {address}: not an address. Give one as http://HOST:PORT/PATH, or https.{near}")
    path, query = (quote(part, safe=IN_AN_ADDRESS, errors="surrogateescape") for part in (url.path, url.query))
    return url._replace(path=path, query=query)


def _secure(url: SplitResult, asked: LoadOptions) -> dict[str, Value]:
    if url.scheme == "http":
        for name in ("insecure", "cacert"):
            if getattr(asked, name):
                raise UserError(f"--{name}: http://{url.netloc} has no certificate. Use https, or leave it out.")
        return {}
    if asked.insecure and asked.cacert:
        raise UserError("--insecure, --cacert: one skips verification, the other verifies. Use one of them.")
    ca_file = asked.cacert and str(Path(asked.cacert).resolve())
    return {"tls": "unverified" if asked.insecure else "verified", "tls_ca_file": ca_file}


def _prompts(url: SplitResult, asked: LoadOptions, known: Mapping[str, Setting]) -> dict[str, Value]:
    chat = url.path.endswith("/chat/completions")
    base = url.path.removesuffix("/chat/completions" if chat else "/completions")
    for name in ("prompt_tokens", "output_tokens"):
        if (value := getattr(asked, name)) <= 0:
            raise UserError(f"--{name.replace('_', '-')} {value}: it must be greater than 0.")
    settings: dict[str, Value] = {
        "endpoint": "chat" if chat else "completions",
        "base_path": f"{base or '/'}?{url.query}" if url.query else base or "/",
        "headers": _headers(url, asked.header),
        "extra_body": asked.extra_body,
        "stream": asked.stream,
        "model": asked.model,
        "prompt_len": asked.prompt_tokens,
        "gen_tokens": asked.output_tokens,
        **settings_from(asked.more, known),
    }
    require_fit(settings, known)
    return settings


def _headers(url: SplitResult, written: Iterable[str]) -> str:
    """Return the headers of every request, with the user and password of the address, as a JSON object."""
    from seamark.drivers.http import TOKEN, VALUE

    headers: dict[str, str] = {}
    for header in written:
        name, colon, value = header.partition(":")
        if not (colon and TOKEN.fullmatch(name) and VALUE.fullmatch(value.lstrip())):
            shown = header.partition(" ")[0]
            raise UserError(f"--header {shown!r} is not a header. Give it as NAME:VALUE, in Latin letters.")
        if name in headers:
            raise UserError(f"--header {name!r} is given twice. Join the values with ', '.")
        headers[name] = value.lstrip()
    if url.username is not None and "authorization" not in map(str.lower, headers):
        user = f"{unquote(url.username)}:{unquote(url.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
    return json.dumps(headers)


def _request(url: SplitResult, asked: LoadOptions) -> dict[str, Value]:
    from seamark.drivers.http import TOKEN

    body = asked.body
    if body is not None and not Path(body).is_file():
        raise UserError(f"--body {body}: no such file.")
    method = (asked.method or ("GET" if body is None else "POST")).upper()
    if not TOKEN.fullmatch(method):
        raise UserError(f"--method {method!r}: not a method. Give one word, such as PUT.")
    return {
        "url": url.geturl(),
        "method": method,
        "headers": _headers(url, asked.header),
        "body_file": body and str(Path(body).resolve()),
    }


def _slo(text: str) -> Slo:
    match = OBJECTIVE.match(text.replace(" ", ""))
    try:
        name, op, limit = match[1], match[2], float(match[3])  # type: ignore[index]
    except (TypeError, ValueError):
        raise UserError(f"--slo {text}: not an objective. Give one as latency_p99=0.2, in seconds.") from None
    metric = name if is_objective(name) else f"{name}_s"
    if not is_objective(metric):
        raise UserError(f"--slo {text}: no objective '{name}'.{did_you_mean(name, OBJECTIVES)}")
    return Slo(metric=metric, op=">=" if op == ">=" else "<=", limit=limit)


class LiveLine:
    """Shows the number of recorded requests and their rate on the progress line."""

    def __init__(self, line: Any) -> None:
        self._line = line
        self._rate = LiveRate()
        self._shown_at_s = time.monotonic()
        self.text = ""

    def __call__(self, recorded: Mapping[str, int]) -> None:
        now_s = time.monotonic()
        rate = self._rate.update(now_s, recorded)
        live = "" if rate is None else f", {number(rate)}/s"
        self.text = counted(sum(recorded.values()), "request") + live
        if now_s - self._shown_at_s >= SHOW_EVERY_S:
            self._shown_at_s = now_s
            self._line.update(self.text)


def write_output(samples: Path, output: Path) -> None:
    """Write the samples atomically; into a pipe or device, as a stream."""
    if output.exists() and not output.is_file():
        shutil.copyfile(samples, output)
        return
    with replacing(output) as temporary:
        shutil.copyfile(samples, temporary)

"""Streamed trials as inputs of the fit of an LLM replica."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seamark.analysis.metrics.samples import DamagedError, open_samples
from seamark.analysis.trial_view import TrialView
from seamark.model.results.deployment_record import DeploymentRecord
from seamark.model.sample import MISSING_NS
from seamark.model.service import Value
from seamark.model.trial import Trial
from seamark.storage.documents import regular
from seamark.storage.paths import TrialFolder
from seamark_simulate.fit.replica_fit import ReplicaLimits
from seamark_simulate.fit.replica_trial import ReplicaTrial
from seamark_simulate.model.fitted_model import FitSource
from seamark_simulate.simulation.schedule import Floats, Ints

OF_REQUESTS = frozenset({"prompt_len", "gen_tokens", "gen_tokens_shape", "gen_tokens_spread", "ignore_eos"})
"""Settings of what is asked, in which the trials of one replica may differ: its cost follows from them."""
DEFAULT_SEQUENCES, DEFAULT_STEP_TOKENS, BLOCK_TOKENS = 256, 2_048, 16
"""Limits of vLLM's V1 engine on CPUs and on GPUs below 70 GiB, where a recipe does not set them."""
STEP_TOKENS_OF_GPUS = ((170, 16_384), (75, 8_192))
"""Memory of a GPU in GB, and vLLM's default tokens of a step from that size on (160 and 70 GiB); not of an A100."""


def is_streamed(view: TrialView) -> bool:
    """Return whether a trial has streamed replies of several tokens."""
    asked, settings = view.trial.settings.get("gen_tokens"), view.trial.settings
    return "prompt_len" in settings and isinstance(asked, int) and asked > 1 and view.folder.chunks.exists()


def replica_trial(
    view: TrialView, window_s: tuple[float, float], source: FitSource, treatment: str
) -> ReplicaTrial | str:
    """Return what a replica sees of a trial, or why it cannot take part. Raises DamagedError."""
    trial, files = view.trial, view.folder
    if why := _misfit(trial.settings):
        return why
    rows = _requests(trial, files)
    good = rows["last"] != MISSING_NS
    failed = int((~good).sum())
    if failed or good.sum() < 2:
        return f"{failed:,} of its {len(good):,} requests failed or were cut off"
    warmup_s, until_s = window_s
    if not ((rows["sent"] >= warmup_s * 1e9) & (rows["due"] >= warmup_s * 1e9)).any():
        return "it has no good requests after its warm-up"
    several = rows["units"] > np.maximum(rows["first_units"], 1)
    if several.any() and not np.median((rows["last"] - rows["first"])[several]):
        return "its replies came in one piece, so their tokens have no times"
    rows = {name: values[np.argsort(rows["sent"], kind="stable")] for name, values in rows.items()}
    of, at_s = _reads(files, rows["index"])
    settings = trial.settings
    return ReplicaTrial(
        source=source,
        treatment=treatment,
        due_s=np.where(trial.load.closed, rows["sent"], rows["due"]) / 1e9,
        sent_s=rows["sent"] / 1e9,
        first_s=rows["first"] / 1e9,
        last_s=rows["last"] / 1e9,
        prompt_tokens=np.full(len(rows["index"]), int(str(settings["prompt_len"])), np.int64),
        reply_tokens=rows["units"],
        first_tokens=np.minimum(np.maximum(rows["first_units"], 1), rows["units"]),
        token_of=of,
        token_at_s=at_s,
        concurrency=int(str(settings["concurrency"])) if trial.load.closed else None,
        warmup_s=warmup_s,
        until_s=until_s,
    )


def replica_limits(
    trial: Trial, seen: ReplicaTrial, record: DeploymentRecord | None, gpu: str | None
) -> ReplicaLimits:
    """Return the limits of the server of a trial: what it said at its start, its settings, else vLLM's defaults on
    that kind of GPU, and blocks for all that may run at once."""
    sequences = trial.settings.get("max_num_seqs")
    most = sequences if isinstance(sequences, int) else DEFAULT_SEQUENCES
    longest = int((seen.prompt_tokens + seen.reply_tokens).max())
    tokens = None if record is None else record.kv_tokens
    return ReplicaLimits(
        kv_blocks=max(1, tokens // BLOCK_TOKENS) if tokens else most * -(-longest // BLOCK_TOKENS),
        kv_counted=bool(tokens),
        block_tokens=BLOCK_TOKENS,
        max_num_seqs=most,
        max_num_batched_tokens=max(_step_tokens(gpu), most),
    )


def _step_tokens(gpu: str | None) -> int:
    """Return the tokens of a step that vLLM allows by default on a kind of GPU, such as h100-80; None: a CPU."""
    name, _, size = (gpu or "").rpartition("-")
    if name == "a100" or not size.isdigit():
        return DEFAULT_STEP_TOKENS
    return next((tokens for least_gb, tokens in STEP_TOKENS_OF_GPUS if int(size) >= least_gb), DEFAULT_STEP_TOKENS)


def _misfit(settings: Mapping[str, Value]) -> str | None:
    """Return why requests of these settings cannot be replayed."""
    if settings.get("prompt_len_shape", "fixed") != "fixed":
        return "its prompts differ in length, and their lengths are not recorded"
    if settings.get("prefix_len"):
        return "its prompts have a common prefix, and what a cache saves is not recorded"
    if settings.get("batch", 1) != 1:
        return "its requests have several prompts each"
    return None


def _requests(trial: Trial, files: TrialFolder) -> dict[str, Ints]:
    """Return the requests that were sent before the load ended, by column; times in ns. Those that are not good have
    no last time. Raises DamagedError."""
    names = ("index", "due", "sent", "first", "last", "units", "first_units")
    columns: dict[str, list[Ints]] = {name: [] for name in names}
    for batch in open_samples(files.samples, trial.config_hash).batches():
        sent = batch.sent != MISSING_NS
        good = batch.good & (batch.first != MISSING_NS) & (batch.units > 0)
        for name in names:
            values = np.where(good, batch.last, MISSING_NS) if name == "last" else getattr(batch, name)
            columns[name].append(values[sent])
    return {name: np.concatenate(parts) if parts else np.array([], np.int64) for name, parts in columns.items()}


def _reads(files: TrialFolder, index: Ints) -> tuple[Ints, Floats]:
    """Return the place of the request of each read of chunks, and its time in seconds, in the order of time. Raises
    DamagedError."""
    try:
        table = pq.read_table(regular(files.chunks), columns=["index", "at_ns"], page_checksum_verification=True)
    except (pa.ArrowException, OSError, KeyError) as cause:
        raise DamagedError(f"{files.chunks.name} is damaged: {' '.join(str(cause).split())[:200]}") from cause
    numbers, at_ns = (table.column(name).to_numpy() for name in ("index", "at_ns"))
    places = np.full(int(max(index.max(), numbers.max(initial=0))) + 1, -1, np.int64)
    places[index] = np.arange(len(index))
    known = places[numbers] >= 0
    order = np.argsort(at_ns[known], kind="stable")
    return places[numbers[known]][order], at_ns[known][order] / 1e9

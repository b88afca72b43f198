"""What Slurm's answers mean: partitions, QoS, limits, accounts, modules. Pure: from text to facts."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from seamark.dispatch.slurm.site_queries import Answers

GPU = re.compile(r"^gpu(?::([^:(]+))?:(\d+)")
DURATION = re.compile(r"^(?:(\d+)-)?(?:(\d+):)?(?:(\d+):)?(\d+)$")
UNLIMITED = ("", "infinite", "unlimited", "n/a", "none")
ONE_USER = re.compile(r"^PartitionName=(\S+) .*\bExclusiveUser=YES\b", re.MULTILINE)
ENGINE = re.compile(r"^((?:apptainer|singularity)(?:/\S*)?)$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class FoundPartition:
    """A partition by the kind of node it has most of; `mixed` when it has others too. Nobody else's jobs run beside
    those of a user whose nodes are `whole_nodes`; without `own_jobs_share` none of that user's either."""

    name: str
    nodes: int
    cpus: int
    mem_gb: int
    gpus: int
    gres: str
    time_limit_s: int | None
    whole_nodes: bool
    own_jobs_share: bool
    mixed: bool


@dataclass(frozen=True, kw_only=True)
class Found:
    """What is known of a site. Times in seconds, None for no limit."""

    cluster: str
    partitions: Sequence[FoundPartition]
    qos: Mapping[str, int | None]
    default_qos: str | None
    max_submit: int | None
    qos_max_submit: Mapping[str, int]
    accounts: Sequence[str]
    module_init: str | None
    engine_modules: Sequence[str]
    has_apptainer: bool


def found(answers: Answers) -> Found:
    """Return what the answers mean. QoS are those that the user may ask for, of all accounts."""
    config = dict(_settings(answers.config))
    associations = [line.split("|") for line in answers.associations.splitlines() if line.count("|") == 3]
    allowed = {name for row in associations for name in row[1].split(",") if name}
    limits = {row[0]: row for row in (line.split("|") for line in answers.qos.splitlines()) if len(row) == 4}
    named = [name for name in limits if name in allowed]
    most = [int(row[3]) for row in associations if row[3].isdigit()]
    return Found(
        cluster=config.get("ClusterName", "slurm"),
        partitions=tuple(_partitions(answers, config.get("SelectType", ""))),
        qos={name: seconds(limits[name][1]) for name in named},
        default_qos=next((row[2] for row in associations if row[2]), None),
        max_submit=min(most, default=None),
        qos_max_submit={name: int(limits[name][2]) for name in named if limits[name][2].isdigit()},
        accounts=tuple(dict.fromkeys(row[0] for row in associations)),
        module_init=None if answers.module_init is None else str(answers.module_init),
        engine_modules=tuple(_engines(answers.modules)),
        has_apptainer=answers.has_apptainer,
    )


def seconds(text: str) -> int | None:
    """Return a duration as Slurm writes it (`1-00:00:00`, `12:00:00`, `30:00`, minutes), None for no limit."""
    if text.strip().lower() in UNLIMITED:
        return None
    match = DURATION.match(text.strip())
    if match is None:
        return None
    days, first, second, last = match.groups()
    if first is None:
        return int(last) * 60 if days is None else int(days) * 86400 + int(last) * 3600
    hours, minutes = (first, second) if second is not None else (0, first)
    if days is not None and second is None:
        hours, minutes, last = first, last, "0"
    return int(days or 0) * 86400 + int(hours) * 3600 + int(minutes) * 60 + int(last)


def _partitions(answers: Answers, select: str) -> Iterator[FoundPartition]:
    rows: dict[str, list[list[str]]] = {}
    to_one_user = set(ONE_USER.findall(answers.rules))
    for line in answers.partitions.splitlines():
        row = [cell.strip() for cell in line.split("|")]
        if len(row) == 8 and row[7] == "up":
            rows.setdefault(row[0], []).append(row)
    for name, kinds in rows.items():
        most = max(kinds, key=lambda row: int(row[1]))
        gpus, gres = _gpus(most[4])
        to_one_job = most[6] == "EXCLUSIVE" or select.endswith("/linear")
        yield FoundPartition(
            name=name,
            nodes=sum(int(row[1]) for row in kinds),
            cpus=int(most[2].rstrip("+")),
            mem_gb=max(int(most[3].rstrip("+")) // 1024, 1),
            gpus=gpus,
            gres=gres,
            time_limit_s=seconds(most[5]),
            whole_nodes=to_one_job or name in to_one_user,
            own_jobs_share=not to_one_job,
            mixed=len({tuple(row[2:5]) for row in kinds}) > 1,
        )


def _gpus(text: str) -> tuple[int, str]:
    """Return how many GPUs a node has, and the word to ask for them: with a type where there are several."""
    kinds = Counter[str]()
    for entry in text.split(","):
        if match := GPU.match(entry):
            kinds[match[1] or ""] += int(match[2])
    if not kinds:
        return 0, "gpu"
    kind, count = kinds.most_common(1)[0]
    return count, f"gpu:{kind}" if kind and len(kinds) > 1 else "gpu"


def _engines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if match := ENGINE.match(line.strip().removesuffix("(default)").rstrip("/")):
            yield match[1]


def _settings(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            yield key.strip(), value.strip()

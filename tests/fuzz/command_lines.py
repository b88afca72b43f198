"""Strategies: command lines of every verb, from what `bench --help` itself knows of it, with odd values."""

from collections.abc import Iterator, Mapping

import click
from hypothesis import strategies as st
from yaml_changes import words as any_words

from seamark.cli.main import cli

words = any_words.filter(lambda text: "\x00" not in text)
"""A process can be given no NUL."""
NUMBERS = (
    *(
        "0",
        "1",
        "-1",
        "2",
        "0.5",
        "1e8",
        "1e-9",
        "inf",
        "-inf",
        "nan",
        "1e400",
        "9" * 30,
        "9" * 5000,
        "1_0",
        "١",
        "x",
        "",
    ),
    *("0x10", "0b1", "--", " 1", "1 ", "true", "1e308", "5e-324", "9223372036854775808"),
)
TEXTS = (
    *(
        "",
        " ",
        "x",
        "é",
        "λ: x",
        "\n",
        "\udcff",
        "a" * 5000,
        "[",
        "{",
        "{}",
        "[]",
        "x=[",
        "=",
        "a=",
        "=b",
        "-",
        "--",
    ),
    *("concurency=5", "concurrency=0", "concurrency=5", "concurrency=[", "burstiness=0.5", "timeout_s=inf", "seed=1"),
    *("stop_when_saturated=true", "stop_when_saturated=5", "step_rates=x", "step_rates=1:1e9,2", "trace=/nowhere"),
    *("trace=.", "extra_body={", "extra_body=[]", "temperature=nan", "api_key_env=NO_SUCH", "api_key_env==", "mix=5"),
    *(
        "latency_p99=0.2",
        "latency_p99=inf",
        "latency_p99<=1e999",
        "ttft=.",
        "x<=1",
        "latency_p99=1..2",
        "throughput>=5",
    ),
    *("name:value", "name: λ", "λ: name", "name:\x01", "Content-Length: 5", "Host: a", ":", "name:", "a:b\r\nc: d"),
    *(
        "45s",
        "2h",
        "0s",
        "9" * 400 + "d",
        "9" * 5000 + "d",
        "2026-01-31T12:00",
        "9999-12-31T23:59",
        "0001-01-01",
        "1:2:3",
        "99:99:99",
    ),
    *(
        "{chat: {weight: 3}}",
        "{chat: {weight: .inf}}",
        "{a: {weight: 0}}",
        "!!python/object:os.system {}",
        "[[[",
        "{a: {prompt_len: 1e9}}",
    ),
    *("local", "meluxina", "nowhere", "broken", "../local", "/etc/passwd", "~", "$HOME", "local.yaml", "."),
    *("tcp://10.0.0.1:8786", "spark://h:1", "local[4]", "srun", "dask", "spark", "GET", "G ET", "λ", "POST\r\n"),
    *(
        "try",
        "standing/x",
        "standing/..",
        "null",
        "null-1",
        "server",
        "load",
        "*",
        "[a",
        "a--b",
        "there",
        "here",
        "bash",
        "closed",
        "gamma",
    ),
)
FILES = (
    "good.yaml",
    "wrong.yaml",
    "nowhere.yaml",
    ".",
    "/",
    "/dev/null",
    "bytes.yaml",
    "good.yaml/x",
    "",
    "é.yaml",
    "loop.yaml",
    "a" * 300,
    "deep.yaml",
)
GOOD: Mapping[str, tuple[str, ...]] = {
    "scenario": ("good.yaml",),
    "pattern": ("poisson", "constant", "gamma", "ramp", "steps", "bursts", "diurnal", "trace"),
    "rate": ("50",),
    "ramp_to": ("80", "1e6"),
    "concurrency": ("2", "8"),
    "duration": ("0.1", "0.2"),
    "warmup": ("0", "0.1"),
    "requests": ("1", "5"),
    "timeout": ("1",),
    "turns": ("2",),
    "shards": ("1", "2"),
    "more": (
        *(
            "burstiness=0.5",
            "step_rates=50,100",
            "burst_rps=100",
            "burst_s=0.01",
            "burst_every_s=0.1",
            "amplitude=0.5",
        ),
        *(
            "period_s=0.1",
            "trace=arrivals.jsonl",
            "time_scale=0.5",
            "stop_when_saturated=true",
            "trace_lengths=false",
        ),
        *("temperature=0.5", "prefix_len=4", "endpoint=chat", "prompt_len_shape=uniform", "prompt_len_spread=0.5"),
    ),
    "headers": ("a: b",),
    "method": ("PUT", "HEAD"),
    "body": ("good.yaml",),
    "slos": ("latency_p99=0.2", "throughput>=5"),
    "mix": ("{chat: {weight: 3}, search: {prompt_len: 40}}",),
    "model": ("m",),
    "prompt_tokens": ("4",),
    "output_tokens": ("2",),
    "seed": ("1", "-5"),
    "site": ("local",),
    "folder": ("here",),
    "name": ("try",),
    "service": ("null",),
}
"""What is right, by the parameter's name: without it a line of several options would seldom come to the last one."""
REFUSED = tuple(name for name in FILES if name != "good.yaml")
ADDRESSES = (
    *("http://127.0.0.1:1/", "http://127.0.0.1:1/v1/completions", "https://127.0.0.1:1/"),
    *("http://127.0.0.1:1/é?λ#x", "ftp://x", ""),
    *("http://", "http://[", "http://[::1", "http://a..b/", "http://" + "a" * 300 + "/", "http://127.0.0.1:99999/"),
    *("http://127.0.0.1:x/"),
    *("http://u:p@127.0.0.1:1/", "http://127.0.0.1:1/ b", "http://127.0.0.1:1/\r\nX: y", "standing/"),
    *("standing/x/y", "127.0.0.1:1", "http:///x"),
    *("http://λ.invalid/", "//127.0.0.1:1", "http://127.0.0.1:1/../..", "\udcff"),
    *("http://127.0.0.1:0/"),
)  # fmt: skip
NEVER: Mapping[str, tuple[str, ...]] = {
    "doctor": ("--calibrate", "--self-test"),
    "status": ("--watch", "-w"),
    "load": ("--output", "--carrier"),
}
"""Options that measure, wait, or start something: tried elsewhere."""
Verb = tuple[tuple[str, ...], click.Command]
ACTS = ("submit", "start", "prepare", "retry", "export slurm")
"""Verbs that would start a run or ask a network for a good scenario: they get wrong ones."""


def commands(
    group: click.Command = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Give every verb with its command."""
    if isinstance(group, click.Group):
        for name in group.list_commands(click.Context(group)):
            found = group.get_command(click.Context(group), name)
            assert found is not None
            yield from commands(found, (*path, name))
    else:
        yield path, group


def values(verb: str, parameter: click.Parameter) -> st.SearchStrategy[str]:
    """Return what one parameter may be given: more often than not what it can take."""
    odd = odd_values(verb, parameter)
    if parameter.name not in GOOD or (parameter.name == "scenario" and verb in ACTS):
        return odd
    return st.integers(0, 2).flatmap(lambda die: st.sampled_from(GOOD[parameter.name or ""]) if die else odd)


def odd_values(verb: str, parameter: click.Parameter) -> st.SearchStrategy[str]:
    """Return what one parameter may be given, right or wrong."""
    if parameter.name == "scenario":
        return st.sampled_from(REFUSED if verb in ACTS else FILES)
    if parameter.name == "address":
        return st.sampled_from(ADDRESSES)
    if parameter.name == "source":
        return st.sampled_from(("", ".", "/nowhere", "results", "there", "é", "good.yaml"))
    if isinstance(parameter.type, (click.types.FloatParamType, click.types.IntParamType)):
        return st.one_of(st.sampled_from(NUMBERS), words)
    if isinstance(parameter.type, click.Choice):
        return st.one_of(st.sampled_from([str(each) for each in parameter.type.choices]), st.sampled_from(TEXTS))
    if isinstance(parameter.type, click.Path):
        return st.sampled_from(("here", "there", *FILES))
    return st.one_of(st.sampled_from(TEXTS), words)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A verb with some of its options and arguments; now and then one that is not there, or one too many."""
    path, command = draw(st.sampled_from(list(commands())))
    verb = " ".join(path)
    line = list(path)
    for parameter in draw(st.lists(st.sampled_from(command.params), max_size=6)) if command.params else []:
        if isinstance(parameter, click.Argument) or set(parameter.opts) & set(NEVER.get(verb, ())):
            continue
        line.append(draw(st.sampled_from([*parameter.opts, *parameter.secondary_opts])))
        if not (isinstance(parameter, click.Option) and parameter.is_flag):
            line.append(draw(values(verb, parameter)))
    if verb in ACTS:
        line += ["-c", draw(st.sampled_from(REFUSED))]
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            few = 3 if parameter.nargs < 0 else draw(st.sampled_from([1, 1, 1, 1, 0]))
            line += draw(st.lists(values(verb, parameter), min_size=0 if parameter.nargs < 0 else few, max_size=few))
    if verb == "servers start":
        line += ["--set", "no_such_setting=1"]
    if draw(st.integers(0, 20)) == 0:
        line.insert(draw(st.integers(0, len(line))), draw(st.sampled_from(TEXTS)))
    return line

"""Load-profile checks: a pattern's settings are complete and used, traces are readable, exclusions match."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from itertools import islice, product
from os.path import expandvars

from seamark.config.forms.mix import classes_in
from seamark.config.levels import show
from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import did_you_mean
from seamark.model.dotted import is_dotted
from seamark.model.load_profile import LoadProfile
from seamark.model.scenario import Resources, Workload
from seamark.model.service import Service, Value
from seamark.patterns.patterns import Trace, steps_of
from seamark.patterns.table import LOAD_SETTINGS, PATTERNS, kind_of
from seamark.patterns.trace_file import BLOCK_TOKENS, TraceRow, recorded_arrivals, recorded_rows

_OF_PATTERNS = dict.fromkeys(name for kind in PATTERNS.values() for name in (*kind.needs, *kind.reads))
MOST_MADE = 1000
"""Number of level combinations for which a user's own pattern is constructed as a check."""


def without_effect(pattern: str, turns: Value, own: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the settings that a pattern does not read; where it varies, they fall back to their defaults.

    `own` are settings of a user's own patterns, each read by its own alone. Users think between the `turns` of a
    session, whatever the pattern. Nothing comes of a pattern that does not exist: that mistake is noted elsewhere.
    """
    try:
        kind = kind_of(pattern)
    except ValueError:
        return ()
    read = {*kind.needs, *kind.reads, *(setting.name for setting in kind.settings)}
    if isinstance(turns, int) and turns > 1:
        read.add("think_time_s")
    return tuple(name for name in (*_OF_PATTERNS, *own) if name not in read)


def check_load_profile(item: Item, workload: Workload, service: Service, mistakes: Mistakes) -> Workload:
    """Note settings that a pattern needs, ignores or cannot use.

    Returns the workload without defaults that have no effect.
    """
    misread = {key for key in item.value if key not in workload.levels}
    if "pattern" in misread:
        return workload
    patterns = [str(pattern) for pattern in workload.every_level("pattern", LoadProfile.pattern)]
    given = {key for key, values in workload.levels.items() if values != (None,)}
    for pattern in dict.fromkeys(patterns):
        try:
            kind = kind_of(pattern)
        except ValueError as error:
            mistakes.add(item.value.get("pattern", item), f"{error}.")
            return workload
        needed = [name for name in kind.needs if name not in given | misread]
        missing = [name for name in needed if not _included(workload, pattern, name)]
        if missing:
            names = " and ".join(f"'{name}'" for name in missing)
            lines = " and ".join(f"'{name}: {kind.examples.get(name, '100')}'" for name in missing)
            such = "a line such as" if len(missing) == 1 else "lines such as"
            mistakes.add(
                item.value.get("pattern", item), f"the pattern '{pattern}' needs {names}. Add {such} {lines}."
            )
    most_turns = max((int(number) for number in _numbers(workload, "turns", LoadProfile.turns)), default=1)
    unread = set.intersection(*(set(without_effect(pattern, most_turns)) for pattern in patterns))
    for name in sorted(unread & given):
        if name in item.value:
            users = [pattern for pattern in PATTERNS if name not in without_effect(pattern, 1)]
            remedy = f"Remove it, or set 'pattern' to {' or '.join(users)}."
            remedy += " Or have sessions: 'turns: 2'." if name == "think_time_s" else ""
            mistakes.add(item.value[name], f"has no effect with the pattern '{patterns[0]}'. {remedy}")
    kept = replace(workload, levels={key: values for key, values in workload.levels.items() if key not in unread})
    if most_turns > 1 and service.workers != "wire":
        text = f"sessions need a driver that sends from an event loop; that of {service.name} does not. Set it to 1."
        mistakes.add(item.value.get("turns", item), text)
    _check_steps(item, kept, mistakes)
    _check_bursts(item, kept, mistakes)
    _check_own(item, kept, patterns, mistakes)
    if "trace" in patterns:
        _check_traces(item, kept, service, mistakes)
    return kept


def _included(workload: Workload, pattern: str, name: str) -> bool:
    """Return whether a pattern appears only in include entries that set everything it needs."""
    if pattern in workload.levels.get("pattern", (LoadProfile.pattern,)):
        return False
    entries = [entry for entry in workload.include if entry.get("pattern") == pattern]
    return all(entry.get(name) is not None for entry in entries)


def _check_steps(item: Item, workload: Workload, mistakes: Mistakes) -> None:
    for at, text in texts_of(item, workload, "step_rates"):
        try:
            steps = steps_of(text)
        except ValueError as error:
            mistakes.add(at, f"{error}.")
            continue
        until_s, total_s = _longest_s(item, workload), sum(length_s or 0.0 for _, length_s in steps)
        if until_s is not None and total_s > until_s * (1 + 1e-9):
            mistakes.add(
                at,
                f"the steps take {total_s:g} s, but the load only {until_s:g} s (warmup_s and duration_s). "
                f"Raise duration_s, or shorten them.",
            )


def _check_bursts(item: Item, workload: Workload, mistakes: Mistakes) -> None:
    lengths, periods = workload.levels.get("burst_s", ()), workload.levels.get("burst_every_s", ())
    pairs = list(product(lengths, periods))
    for entry in workload.include:  # what an entry does not name is at its first level
        first = pairs[0] if pairs else (None, None)
        pairs.append((entry.get("burst_s", first[0]), entry.get("burst_every_s", first[1])))
    for length, period in pairs:
        if isinstance(length, float) and isinstance(period, float) and length >= period:
            mistakes.add(
                item.value.get("burst_s", item),
                f"a burst of {length:g} s does not fit into a period of {period:g} s. "
                f"Raise burst_every_s, or shorten the burst.",
            )
            return


def _check_own(item: Item, workload: Workload, patterns: Iterable[str], mistakes: Mistakes) -> None:
    """Note settings with which a user's own pattern cannot be constructed, for each combination of their levels."""
    for pattern in filter(is_dotted, dict.fromkeys(patterns)):
        kind = kind_of(pattern)
        names = [*kind.needs, *kind.reads, *(setting.name for setting in kind.settings)]
        defaults = {setting.name: (setting.default,) for setting in (*LOAD_SETTINGS, *kind.settings)}
        levels = [workload.levels.get(name, defaults[name]) for name in names]
        try:
            for values in islice(product(*levels), MOST_MADE):
                kind.make(dict(zip(names, values, strict=True)), _longest_s(item, workload) or 1.0)
        except ValueError as error:
            mistakes.add(item.value.get("pattern", item), f"the pattern '{pattern}' cannot be made: {error}.")
        except Exception as error:  # a user's code may raise anything
            why = f"{type(error).__name__}: {error}"
            mistakes.add(item.value.get("pattern", item), f"the pattern '{pattern}' cannot be made: {why}.")


def _check_traces(item: Item, workload: Workload, service: Service, mistakes: Mistakes) -> None:
    """Read each trace as far as the longest load sends it. A path whose `$NAME` is not known here is not read; a file
    that cannot be read is noted elsewhere, as that of any setting."""
    for at, text in texts_of(item, workload, "trace"):
        if "$" in expandvars(text):
            continue
        try:
            _check_trace(item, at, text, workload, service, mistakes)
        except OSError:
            continue
        except ValueError as error:
            mistakes.add(at, f"{error}.")


def _check_trace(item: Item, at: Item, text: str, workload: Workload, service: Service, mistakes: Mistakes) -> None:
    until_s, scale = _longest_s(item, workload), min(_numbers(workload, "time_scale", Trace.time_scale), default=1.0)
    has_lengths = service.setting("prompt_len") is not None and workload.levels.get("trace_lengths") != (False,)
    mixes = [set(classes_in(mix)) for _, mix in texts_of(item, workload, "mix")]
    sizes = {int(size) for size in _numbers(workload, "trace_block_tokens", BLOCK_TOKENS)} or {BLOCK_TOKENS}
    rows = (
        recorded_rows(text, min(sizes))
        if has_lengths or mixes
        else (TraceRow(at_s=at_s) for at_s in recorded_arrivals(text))
    )
    first: TraceRow | None = None
    for row in rows:
        first = first or row
        if until_s is None or row.at_s * scale >= until_s:
            break
        name = row.request_class
        if name is not None and not all(name in mix for mix in mixes):
            guess = did_you_mean(name, {request_class for mix in mixes for request_class in mix})
            mistakes.add(at, f"{text}: its class '{name}' (at {row.at_s:.9g} s) is none of the mix.{guess}")
            break
    if first is None:
        mistakes.add(at, f"{text}: holds no arrival.")
    elif until_s is not None and first.at_s * scale >= until_s:
        mistakes.add(
            at,
            f"{text}: its first arrival lies at {first.at_s * scale:g} s, after the load ({until_s:g} s, warmup_s "
            f"and duration_s). Raise duration_s, lower time_scale, or count its times from its first row.",
        )
    elif has_lengths and first.has_lengths:
        _check_lengths(item, first, workload, mistakes)


def _check_lengths(item: Item, first: TraceRow, workload: Workload, mistakes: Mistakes) -> None:
    """Note settings that a trace with lengths overrides or excludes."""
    for name in ("batch", "turns"):
        if any(number is not None and number > 1 for number in _numbers(workload, name, 1.0)):
            text = "is one for each row of a trace. Set it to 1, or 'trace_lengths' to false."
            mistakes.add(item.value.get(name, item), text)
    if set(workload.levels.get("pattern", ())) != {"trace"} or len(workload.levels.get("trace_lengths", ())) > 1:
        return
    recorded = {"prompt_len": first.prompt_tokens, "gen_tokens": first.output_tokens}
    for setting in (name for name, length in recorded.items() if length is not None):
        for name in (setting, f"{setting}_shape", f"{setting}_spread"):
            if name in item.value:
                mistakes.add(
                    item.value[name],
                    "has no effect: the trace says every length. Remove it, or set 'trace_lengths' to false.",
                )


def texts_of(item: Item, workload: Workload, name: str) -> Iterator[tuple[Item, str]]:
    """Yield each text of a setting, with its place."""
    written = item.value.get(name, item)
    places = written.value if isinstance(written.value, list) else []
    for index, value in enumerate(workload.levels.get(name, ())):
        if isinstance(value, str):
            yield (places[index] if index < len(places) else written), value
    for entry in workload.include:
        if isinstance(value := entry.get(name), str):
            yield item.value.get("include", item), value


def _numbers(workload: Workload, name: str, default: float) -> list[float]:
    """Return every number of a setting, `default` if none is written."""
    return [float(value) for value in workload.every_level(name, default) if isinstance(value, (int, float))]


def _longest_s(item: Item, workload: Workload) -> float | None:
    """Return warm-up plus duration of the longest load; None if a value could not be decoded."""
    names = ("warmup_s", "duration_s")
    if any(name in item.value and name not in workload.levels for name in names):
        return None
    levels = [workload.every_level(name, getattr(LoadProfile, name)) for name in names]
    return max(LoadProfile.of(dict(zip(names, values, strict=True))).length_s for values in product(*levels))


def check_excluded(item: Item, workload: Workload, resources: Resources, mistakes: Mistakes) -> None:
    """Note exclusions that match no treatment: a setting that is not written, or a level that it does not have."""
    if "exclude" not in item.value or not isinstance(item.value["exclude"].value, list):
        return
    levels: dict[str, tuple[Value, ...]] = {**asdict(resources), **workload.levels}
    for entry in item.value["exclude"].value:
        for key, part in entry.items():
            if key not in levels:
                guess = did_you_mean(key, levels) or f" Written are: {', '.join(levels)}."
                mistakes.add(part, f"can exclude nothing, for the workload does not set '{key}'.{guess}")
            elif not isinstance(part.value, (list, dict)) and part.value not in levels[key]:
                known = ", ".join(show(level) for level in levels[key])
                mistakes.add(part, f"{part.shown} is none of the levels of '{key}': {known}.")

"""bench capacity: how many servers a load needs, by models of `bench fit`, and how such a plan came out."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from seamark.cli.options import FiniteRange, given_options, option, options
from seamark.errors import UserError
from seamark_simulate.model.fitted_model import Router


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """A plan: models, load and objectives, the layouts to choose from, and how they are simulated."""

    fit: Path | None = option(metavar="FILE", help="Models, as `bench fit` writes them.")
    rate: float | None = option(type=FiniteRange(1e-6, 1e7), metavar="RPS", help="Planned load in requests/s.")
    slo: tuple[str, ...] = option(metavar="OBJECTIVE", help="Such as 'ttft_p99_s <= 0.5'. Repeatable.")
    model: Path | None = option(metavar="DIR", help="Folder of a language model, for GPU memory.")
    gpus: str | None = option(metavar="KINDS", help="Kinds of GPU: a100-40,h100-80. Default: the servers of the fit.")
    server: tuple[str, ...] = option(metavar="NAME", help="Model of the fit. Default: all. Repeatable.")
    most_gpus: int = option(type=click.IntRange(1, 4096), default=16, help="Most GPUs, or servers without GPUs.")
    price: Path | None = option(metavar="FILE", help="Prices of an hour, by kind of GPU.")
    confidence: float = option(
        type=FiniteRange(0.5, 0.999), default=0.95, help="Probability of meeting the objectives."
    )
    prompt_tokens: int | None = option(
        type=click.IntRange(1, 10_000_000), help="Tokens of a prompt. Default: the fit's."
    )
    reply_tokens: int | None = option(
        type=click.IntRange(1, 1_000_000), help="Tokens of a reply. Default: the fit's."
    )
    max_model_len: int | None = option(type=click.IntRange(1), help="Longest request in tokens. Default: the fit's.")
    router: Router | None = option(help="How requests are spread. Default: one-queue; least-loaded.")
    duration_s: float | None = option(
        type=FiniteRange(1, 1e5), help="Length of a simulated trial. Default: 60 s or more."
    )
    warmup_s: float = option(type=FiniteRange(0, 1e4), default=5.0, help="Warm-up of a trial, in s.")
    trials: int = option(type=click.IntRange(20, 100_000), default=200, help="Simulated trials of a layout.")
    seed: int = option(type=click.IntRange(0, 2**32 - 1), default=1, help="Seed of all trials.")
    extrapolate: bool = option(help="Also plan beyond the measured loads, marked SUSPECT.")
    verify: Path | None = option(metavar="FILE", help="Write the scenario that measures the answer.")


@click.command("capacity")
@options(PlanOptions)
@click.option("--score", metavar="SCENARIO", help="Measured scenario of --verify, or its results.")
@click.option("--site", metavar="NAME", help="Site of that scenario. Default: the scenario's, or local.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="json: one document.")
def command(asked: PlanOptions, form: str, score: str | None, site: str | None) -> int:
    """Plan how many servers, or GPUs of which kind, meet objectives under a load.

    Every layout that fits is simulated with the models of a fit, many times with plausible parameters and seeds. The
    first sentence is the answer: the cheapest layout that meets the objectives with the wanted probability, or that
    none is known. --verify writes the scenario that measures it, --score compares.

    \b
    Examples:
      bench capacity --fit known.fit.json --rate 45 --slo 'latency_p95_s <= 0.2'
      bench capacity --model llama --fit llama.fit.json --rate 100 --slo 'ttft_p99_s <= 0.5' --gpus a100-40,h100-80
      bench capacity --score plan_known.yaml

    Exit code 1 if no layout is known.
    """
    if score is not None:
        if mixed := [word for name, word in given_options().items() if hasattr(asked, name)]:
            raise UserError(f"--score: cannot be used with {mixed[0]}. Plan first, then score what was measured.")
        return _score(score, site, form)
    if site is not None:
        raise UserError("--site: is for --score. A plan needs no site; a scenario of --verify names the fit's.")
    if not (asked.fit and asked.rate and asked.slo):
        missing = ", ".join(f"--{name}" for name in ("fit", "rate", "slo") if not getattr(asked, name))
        raise UserError(
            f"bench capacity: {missing} missing. A plan needs --fit FILE, --rate RPS and --slo OBJECTIVE."
        )
    return _plan(asked, asked.fit, asked.rate, form)


def _plan(asked: PlanOptions, fit: Path, rate: float, form: str) -> int:
    """Plan and print; return the exit code."""
    from seamark.config.read import Recipes
    from seamark.planning.study import config_folder
    from seamark.storage.codec import encode
    from seamark_simulate.cli.memory import read_model
    from seamark_simulate.config.fitted_file import read_models
    from seamark_simulate.config.price_file import read_prices
    from seamark_simulate.report.capacity import plan_lines
    from seamark_simulate.trials.capacity import capacity_plan
    from seamark_simulate.trials.capacity_layouts import gpu_gb
    from seamark_simulate.trials.capacity_load import CapacityAsked
    from seamark_simulate.trials.capacity_verify import require_new_scenario

    verify = asked.verify
    name = require_new_scenario(verify) if verify is not None else ""
    slos = _objectives(asked.slo)
    gpus = tuple(dict.fromkeys(word.strip() for word in asked.gpus.split(","))) if asked.gpus is not None else ()
    for kind in gpus:
        gpu_gb(kind)  # raises for one that is not known
    same = {name: value for name, value in vars(asked).items() if name in CapacityAsked.__dataclass_fields__}
    wanted = CapacityAsked(**same | {"rate_rps": rate, "slos": slos, "gpus": gpus, "servers": asked.server})
    folder = read_model(asked.model) if asked.model is not None else None
    prices = read_prices(asked.price) if asked.price is not None else None
    recipes = Recipes(config_folder(Path.cwd(), "services"))
    if not fit.exists():
        raise UserError(f"--fit {fit}: no such file. `bench fit -c SCENARIO -o {fit}` makes one.")
    plan, load, planned = capacity_plan(wanted, read_models(fit), fit, recipes=recipes, folder=folder, prices=prices)
    text = None
    if verify is not None and planned is not None:
        from seamark_simulate.trials.capacity_verify import verifying_scenario

        text = verifying_scenario(name, verify, plan, load, planned, slos, recipes)
    click.echo(json.dumps(encode(plan), indent=1) if form == "json" else "\n".join(plan_lines(plan)))
    if verify is not None:
        from seamark.storage.documents import write_text

        if text is not None:
            write_text(verify, text)
        said = (
            f"Verifying scenario: {verify}" if text is not None else f"{verify} was not written: there is no answer."
        )
        click.echo(said, err=form == "json")
    return 0 if plan.answer is not None else 1


def _objectives(texts: tuple[str, ...]) -> tuple[Any, ...]:
    """Return objectives. Raises UserError with every one that cannot be read."""
    from seamark.config.expression import slo_parts
    from seamark.model.scenario import Slo

    slos: list[Slo] = []
    mistakes = []
    for text in texts:
        try:
            metric, op, limit = slo_parts(text)
        except ValueError as error:
            mistakes.append(f"--slo: {error}.")
            continue
        if any(slo.metric == metric for slo in slos):
            mistakes.append(f"--slo '{text}': {metric} has a limit already. Remove one.")
        slos.append(Slo(metric=metric, op="<=" if op == "<=" else ">=", limit=limit))
    if mistakes:
        raise UserError(*mistakes)
    return tuple(slos)


def _score(scenario: str, site: str | None, form: str) -> int:
    """Print prediction against measurement."""
    from seamark.analysis.comparison.predicted import score_of
    from seamark.housekeeping.compared_results import results_named
    from seamark.report.predicted import score_lines
    from seamark.storage.codec import encode

    results = results_named(Path.cwd(), scenario, site)
    score = score_of(results.plan, results.folder)
    if score is None:
        raise UserError(f"--score {scenario}: it has no 'prediction'. `bench capacity --verify FILE` writes one.")
    click.echo(json.dumps(encode(score), indent=1) if form == "json" else "\n".join(score_lines(score)))
    return 0

"""bench capacity: how many servers a load needs, by models of `bench fit`, and how such a plan came out."""

import json
from pathlib import Path
from typing import Any, get_args

import click

from seamark.cli.options import Number
from seamark.errors import UserError
from seamark.model.queueing import Router

NEEDED = ("fit", "rate", "slo")
OPTIONS = {"slos": "slo", "servers": "server"}
"""Names of arguments whose options are called otherwise."""
FORMATS = ("text", "json")


@click.command("capacity")
@click.option("--fit", type=click.Path(path_type=Path), metavar="FILE", help="Models, as `bench fit` writes them.")
@click.option("--rate", type=Number(1e-6, 1e7), metavar="RPS", help="Planned load in requests/s.")
@click.option("--slo", "slos", multiple=True, metavar="OBJECTIVE", help="Such as 'ttft_p99_s <= 0.5'. Repeatable.")
@click.option(
    "--model", type=click.Path(path_type=Path), metavar="DIR", help="Folder of a language model, for GPU memory."
)
@click.option("--gpus", metavar="KINDS", help="Kinds of GPU: a100-40,h100-80. Default: the servers of the fit.")
@click.option(
    "--server", "servers", multiple=True, metavar="NAME", help="Model of the fit. Default: all. Repeatable."
)
@click.option(
    "--most-gpus",
    type=click.IntRange(1, 4096),
    default=16,
    show_default=True,
    help="Most GPUs, or servers without GPUs.",
)
@click.option("--price", type=click.Path(path_type=Path), metavar="FILE", help="Prices of an hour, by kind of GPU.")
@click.option(
    "--confidence",
    type=Number(0.5, 0.999),
    default=0.95,
    show_default=True,
    help="Probability of meeting the objectives.",
)
@click.option("--prompt-tokens", type=click.IntRange(1, 10_000_000), help="Tokens of a prompt. Default: the fit's.")
@click.option("--reply-tokens", type=click.IntRange(1, 1_000_000), help="Tokens of a reply. Default: the fit's.")
@click.option("--max-model-len", type=click.IntRange(1), help="Longest request in tokens. Default: the fit's.")
@click.option(
    "--router", type=click.Choice(get_args(Router)), help="How requests are spread. Default: one-queue; least-loaded."
)
@click.option("--duration-s", type=Number(1, 1e5), help="Length of a simulated trial. Default: 60 s or more.")
@click.option("--warmup-s", type=Number(0, 1e4), default=5.0, show_default=True, help="Warm-up of a trial, in s.")
@click.option(
    "--trials", type=click.IntRange(20, 100_000), default=200, show_default=True, help="Simulated trials of a layout."
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=1, show_default=True, help="Seed of all trials.")
@click.option("--extrapolate", is_flag=True, help="Also plan beyond the measured loads, marked SUSPECT.")
@click.option(
    "--verify", type=click.Path(path_type=Path), metavar="FILE", help="Write the scenario that measures the answer."
)
@click.option("--score", metavar="SCENARIO", help="Measured scenario of --verify, or its results.")
@click.option("--site", metavar="NAME", help="Site of that scenario. Default: the scenario's, or local.")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="json: one document."
)
def command(form: str, score: str | None, site: str | None, **asked: Any) -> int:
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
        if mixed := [name for name in asked if _is_given(name)]:
            option = f"--{OPTIONS.get(mixed[0], mixed[0]).replace('_', '-')}"
            raise UserError(f"--score: cannot be used with {option}. Plan first, then score what was measured.")
        return _score(score, site, form)
    if site is not None:
        raise UserError("--site: is for --score. A plan needs no site; a scenario of --verify names the fit's.")
    given = (asked["fit"], asked["rate"], asked["slos"])
    if missing := [name for name, value in zip(NEEDED, given, strict=True) if not value]:
        wanted = ", ".join(f"--{name}" for name in missing)
        raise UserError(f"bench capacity: {wanted} missing. A plan needs --fit FILE, --rate RPS and --slo OBJECTIVE.")
    return _plan(form, **asked)


def _is_given(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _plan(
    form: str,
    *,
    fit: Path,
    rate: float,
    slos: tuple[str, ...],
    model: Path | None,
    gpus: str | None,
    price: Path | None,
    verify: Path | None,
    **more: Any,
) -> int:
    """Plan and print; return the exit code."""
    from seamark.config.price_file import read_prices
    from seamark.config.read import Recipes
    from seamark.planning.study import config_folder
    from seamark.report.capacity import plan_lines
    from seamark.storage.codec import encode
    from seamark.trials.simulation.capacity import capacity_plan
    from seamark.trials.simulation.capacity_load import CapacityAsked
    from seamark.trials.simulation.capacity_verify import require_new_scenario

    name = require_new_scenario(verify) if verify is not None else ""
    asked = CapacityAsked(rate_rps=rate, slos=_objectives(slos), gpus=_kinds(gpus), **more)
    folder = _folder(model) if model is not None else None
    prices = read_prices(price) if price is not None else None
    recipes = Recipes(config_folder(Path.cwd(), "services"))
    plan, load, planned = capacity_plan(asked, _fitted(fit), fit, recipes=recipes, folder=folder, prices=prices)
    text = None
    if verify is not None and planned is not None:
        from seamark.trials.simulation.capacity_verify import verifying_scenario

        text = verifying_scenario(name, verify, plan, load, planned, asked.slos, recipes)
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

    found: list[Slo] = []
    mistakes = []
    for text in texts:
        try:
            metric, op, limit = slo_parts(text)
        except ValueError as error:
            mistakes.append(f"--slo: {error}.")
            continue
        if any(each.metric == metric for each in found):
            mistakes.append(f"--slo '{text}': {metric} has a limit already. Remove one.")
        found.append(Slo(metric=metric, op="<=" if op == "<=" else ">=", limit=limit))
    if mistakes:
        raise UserError(*mistakes)
    return tuple(found)


def _kinds(text: str | None) -> tuple[str, ...]:
    """Return kinds of GPU. Raises UserError for unknown ones."""
    from seamark.trials.simulation.capacity_layouts import gpu_gb

    if text is None:
        return ()
    kinds = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for kind in kinds:
        gpu_gb(kind)
    return kinds


def _folder(model: Path) -> Any:
    from seamark.config.model_folder import read_model_folder
    from seamark.simulation.model_architecture import UnsizedError

    try:
        return read_model_folder(model)
    except UnsizedError as error:
        raise UserError(f"{error}. Name the folder of a language model in the form of Hugging Face.") from None


def _fitted(fit: Path) -> Any:
    from seamark.config.fitted_file import read_models

    if not fit.exists():
        raise UserError(f"--fit {fit}: no such file. `bench fit -c SCENARIO -o {fit}` makes one.")
    return read_models(fit)


def _score(scenario: str, site: str | None, form: str) -> int:
    """Print prediction against measurement."""
    from seamark.analysis.comparison.predicted import score_of
    from seamark.housekeeping.compared_results import results_named
    from seamark.report.capacity import score_lines
    from seamark.storage.codec import encode

    results = results_named(Path.cwd(), scenario, site)
    found = score_of(results.plan, results.folder)
    if found is None:
        raise UserError(f"--score {scenario}: it has no 'prediction'. `bench capacity --verify FILE` writes one.")
    click.echo(json.dumps(encode(found), indent=1) if form == "json" else "\n".join(score_lines(found)))
    return 0

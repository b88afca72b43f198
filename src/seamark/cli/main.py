"""The command `bench`: loads the module of a verb on demand, and prints errors."""

import os
import resource
import sys
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TextIO

import click

from seamark import __version__
from seamark.cli.output import print_in_any_locale
from seamark.errors import SiteError, UserError
from seamark.model.dotted import search_in, tell_imports
from seamark.model.plugin import Verb, part, plugins
from seamark.storage.redaction import redacted_text

VERBS = {
    "plan": "Show what a scenario will measure, and how much it takes.",
    "prepare": "Prepare the images and environments of a scenario.",
    "submit": "Measure the missing trials and write the report.",
    "start": "Submit in the background.",
    "status": "Show the progress of a scenario.",
    "collect": "Derive metrics and report from the trials measured so far.",
    "export": "Write job scripts without Snakemake, or metrics for Prometheus.",
    "report": "Write a scenario's report again.",
    "compare": "Compare the levels of a scenario, or two results.",
    "keep": "Set a measured run aside, so that the next lies beside it.",
    "history": "Show the runs of scenarios over time, and what changed.",
    "retry": "Measure failed trials again; earlier attempts are kept.",
    "stop": "Stop a run, its servers and its jobs.",
    "load": "Run a quick load on one address.",
    "servers": "List services; start and stop persistent servers.",
    "data": "Make, list and check data sets.",
    "logs": "Collect logs into one archive.",
    "prune": "List old logs and results, and remove them.",
    "doctor": "Check that this machine can measure.",
    "init": "Create a study folder.",
    "completion": "Print the completion script of a shell.",
}

SYNONYMS = {
    "run": "submit",
    "execute": "submit",
    "measure": "submit",
    "resume": "submit",
    "validate": "plan",
    "diff": "compare",
    "results": "report",
    "show": "status",
    "trend": "history",
    "archive": "keep",
    "kill": "stop",
    "cancel": "stop",
    "clean": "prune",
    "delete": "prune",
    "serve": "servers",
    "services": "servers",
    "new": "init",
    "datasets": "data",
}
"""Verbs of other tools and their names here; by edit distance alone `run` would be nearest to `prune`."""

DERIVE = ("submit", "start", "retry", "collect", "report", "compare", "export", "history", "load")
LEAST_BYTES, LEAST_OF_A_PROCESSOR = 1 << 30, 1 << 24
"""Address space of a verb that derives figures, and more for the threads of each processor. Below it, native code of
libraries ends the process with a signal, after the measurement."""


@cache
def plugin_verbs() -> dict[str, Verb]:
    """Return the verbs of plugins by name."""
    return {name: verb for plugin in plugins() for name, verb in plugin.verbs.items()}


def verb_summaries() -> dict[str, str]:
    """Return what each verb does, in the order of help: those that change or show a study, then those of plugins."""
    return VERBS | {name: verb.summary for name, verb in plugin_verbs().items()}


class Verbs(click.Group):
    """Imports the module of a verb only when that verb is used, so that help and completion stay fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(verb_summaries())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in VERBS:  # does not look for plugins
            path = f"seamark.cli.{cmd_name}:command"
        elif cmd_name in plugin_verbs():
            path = plugin_verbs()[cmd_name].command
        else:
            return None
        command: click.Command = part(path)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(verb_summaries().items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from seamark.errors import did_you_mean

        if args and not args[0].startswith("-") and args[0] not in VERBS and args[0] not in plugin_verbs():
            nearest = did_you_mean(args[0], verb_summaries())
            guess = f" Did you mean '{SYNONYMS[args[0]]}'?" if args[0] in SYNONYMS else nearest
            raise UserError(f"bench {args[0]}: no such command.{guess} `bench --help` lists all.")
        return super().resolve_command(ctx, args)


def _note(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning; one about a user's file without its place in Seamark's source."""
    ours = category.__module__.startswith("seamark.")
    text = f"Note: {message}\n" if ours else warnings.formatwarning(message, category, filename, lineno, line)
    click.echo(text, err=True, nl=False)


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
    epilog="Exit codes: 0 done, 1 some trials failed or a gate was not passed, 2 usage error, 3 the site lacks"
    " something.",
)
@click.version_option(__version__, prog_name="bench")
def cli() -> None:
    """Seamark: resumable, trustworthy benchmarks of AI-factory services.

    \b
    Examples:
      bench plan -c config/scenarios/quickstart.yaml
      bench submit -c config/scenarios/quickstart.yaml
      bench status -c config/scenarios/quickstart.yaml --watch
    """


def _line_of(mistake: click.ClickException) -> str:
    """Return an error of click's in one line: the verb, what is wrong, the nearest guess and where all is listed."""
    from seamark.errors import did_you_mean

    context = getattr(mistake, "ctx", None)
    words = [word for word in sys.argv[1:2] if word in verb_summaries()]
    verb = context.command_path if context else " ".join(["bench", *words])
    what, guess = " ".join(mistake.format_message().split()), ""
    if isinstance(mistake, click.exceptions.NoSuchCommand):
        names = context.command.list_commands(context) if context else ()
        what, guess = f"{mistake.command_name}: no such command.", did_you_mean(mistake.command_name, names)
    elif isinstance(mistake, click.NoSuchOption):
        parameters = context.command.get_params(context) if context else ()
        known = [
            name
            for parameter in parameters
            for name in (*parameter.opts, *parameter.secondary_opts)
            if name.startswith("-")
        ]
        what, guess = f"{mistake.option_name}: no such option.", did_you_mean(mistake.option_name, known)
    elif isinstance(kind := getattr(getattr(mistake, "param", None), "type", None), click.Choice):
        guess = did_you_mean(mistake.message.partition("' is not one of ")[0].strip("'"), kind.choices)
    return f"{verb}: {what}{guess} `{verb} --help` lists what it takes."


def _told(module: str) -> None:
    """Say that a module of this study is imported, once per study and machine."""
    from seamark.model.digest import digest
    from seamark.services.supervisor.node_locks import node_folder

    with suppress(OSError, UserError):  # no folder for marks: it is said each time
        told = node_folder() / f"told-{digest({'study': str(Path.cwd()), 'module': module})}"
        if told.exists():
            return
        told.touch()
    click.echo(f"Note: imports `{module}` of this study. It is code, and runs as you.", err=True)


def _require_address_space(words: list[str]) -> None:
    """Raise SiteError if libraries would end a verb for lack of memory, some of them after it has measured."""
    if not words or {"-h", "--help"} & {*words}:
        return
    verb = None if words[0] in VERBS else plugin_verbs().get(words[0])
    if words[0] not in DERIVE and (verb is None or not verb.derives_figures):
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    least = LEAST_BYTES + LEAST_OF_A_PROCESSOR * (os.cpu_count() or 1)
    if limit != resource.RLIM_INFINITY and limit < least:
        needs = f"needs {least >> 20:,} MiB of addresses, and `ulimit -v` allows {limit >> 20:,} MiB"
        raise SiteError(f"memory: `bench {words[0]}` {needs}. Raise it: `ulimit -v unlimited`.")


def _lacks_memory(failed: BaseException) -> bool:
    """Return whether an error comes from a lack of memory: of an array, a library to be mapped, a thread's stack."""
    signs = ("failed to map segment", "allocate memory", "start new thread", "launch worker thread")
    cause = failed.__cause__ or failed.__context__
    return (
        isinstance(failed, MemoryError)
        or any(sign in str(failed) for sign in signs)
        or (cause is not None and _lacks_memory(cause))
    )


def main() -> None:
    """Run `bench`; each mistake of the user is one line, with exit code 2 and no traceback."""
    print_in_any_locale()
    warnings.showwarning = _note
    try:
        search_in(Path.cwd())  # a study's own drivers, patterns and metrics
        _require_address_space(sys.argv[1:])
        if sys.argv[1:2] in (["plan"], ["submit"]):
            tell_imports(Path.cwd(), _told)
        code = cli.main(prog_name="bench", standalone_mode=False)
    except UserError as mistake:
        click.echo(redacted_text(str(mistake)), err=True)
        sys.exit(mistake.exit_code)
    except PermissionError as refused:
        from seamark.trials.permissions import refusal

        click.echo(refusal(Path(refused.filename)) if refused.filename else str(refused), err=True)
        sys.exit(2)
    except OSError as lacking:
        click.echo(f"{lacking.filename or 'the machine'}: {lacking.strerror or lacking}", err=True)
        sys.exit(3)
    except click.exceptions.NoArgsIsHelpError as asked:
        asked.show()
        sys.exit(2)
    except click.ClickException as mistake:
        click.echo(redacted_text(_line_of(mistake)), err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Stopped. `bench submit` resumes.", err=True)
        sys.exit(130)
    except Exception as failed:
        if not _lacks_memory(failed):
            raise
        what = " ".join(str(failed).split()) or "an allocation failed"
        click.echo(f"memory: `bench {' '.join(sys.argv[1:2])}` has too little: {what}. See `ulimit -v`.", err=True)
        sys.stdout.flush()
        os._exit(3)  # libraries that are half loaded may end a regular exit with a signal
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()

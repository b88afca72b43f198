"""bench tekton: the order in which a Tekton pipeline runs the combinations of a matrix."""

import sys
from pathlib import Path

import click

from seamark.cli.options import output_file, output_option
from seamark.config.yaml_source import Mistakes, read_text
from seamark.errors import Mistake
from seamark_kubernetes.tekton.transform import Order
from seamark_kubernetes.tekton.transform import transform as transformed


@click.group("tekton")
def command() -> None:
    """Set the order in which Tekton runs the combinations of a matrix.

    \b
    Examples:
      bench tekton transform pipelinerun.yaml -n 3 -o batches.yaml
    """


@command.command("transform")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--unroll", metavar="P1[,P2]", help="A task for each combination of these parameters, one by one.")
@click.option("-n", "most", type=int, metavar="N", help="Combinations at once. Default: 1; with --unroll no limit.")
@click.option("--barrier", is_flag=True, help="N combinations wait for all N before them. The default.")
@click.option("--sliding-window", is_flag=True, help="Each combination waits for the one N places before it.")
@click.option("--parallel-groups", is_flag=True, help="With --unroll: tasks side by side, N at once.")
@output_option("output", "File; - for standard output. Default: -.", dir_okay=False, allow_dash=True)
def transform(
    file: Path,
    unroll: str | None,
    most: int | None,
    barrier: bool,
    sliding_window: bool,
    parallel_groups: bool,
    output: Path | None,
) -> None:
    """Expand the matrices of a PipelineRun or Pipeline into tasks that run in an order.

    FILE is a YAML file, or - for standard input. Without --unroll each combination of a matrix is a task, and N run
    at once. With --unroll the other parameters stay the matrix of each task; with -n too each combination is a task
    again, in groups that run one after another with N at once.

    \b
    Examples:
      bench tekton transform pipelinerun.yaml --unroll picker -o picker.yaml
      bench tekton transform pipelinerun.yaml -n 3 --sliding-window -o window.yaml
      bench tekton transform pipelinerun.yaml --unroll picker,question_len -n 2 | kubectl create -f -
    """
    names = () if unroll is None else tuple(name.strip() for name in unroll.split(","))
    mistakes = Mistakes()
    if not all(names) or len({*names}) < len(names):
        said = f"'{unroll}' has an empty or a repeated name. Give parameters of a matrix, as P1,P2."
        mistakes.note(Mistake(code="no_value" if not all(names) else "written_twice", path="--unroll", text=said))
    if most is not None and most < 1:
        mistakes.note(Mistake(code="out_of_limits", path="-n", text=f"{most} is too small: at least 1."))
    if barrier and sliding_window:
        mistakes.note(Mistake(code="conflict", path="--sliding-window", text="excludes --barrier. Give one of them."))
    if (barrier or sliding_window) and names and most is None:
        path = "--barrier" if barrier else "--sliding-window"
        mistakes.note(Mistake(code="missing", path=path, text="has no effect on --unroll alone. Give -n N as well."))
    if parallel_groups and not names:
        mistakes.note(Mistake(code="missing", path="--parallel-groups", text="needs --unroll: groups are its tasks."))
    text = _read(file, mistakes)
    mistakes.raise_any()
    order = Order(
        unroll=names,
        most=most if most is not None or names else 1,
        sliding=sliding_window,
        side_by_side=parallel_groups,
    )
    target = None if output is None or str(output) == "-" else output_file(output, "--output", "pipelinerun.yaml")
    changed, notes = transformed(text, file, order)
    if target is None:
        sys.stdout.buffer.write(changed.encode())
    else:
        target.write_bytes(changed.encode())  # no renaming: it may be a device
    for note in notes:
        click.echo(note, err=True)


def _read(file: Path, mistakes: Mistakes) -> str:
    """Return the text of a file, or of standard input for -; "" after noting why it cannot be read."""
    if str(file) != "-":
        return read_text(file, mistakes) or ""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        mistakes.of_file(file, f"not UTF-8 text ({error.reason}).", "unreadable", 1)
        return ""

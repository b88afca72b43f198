"""bench completion: the script that a shell sources."""

import click
from click.shell_completion import get_completion_class

from seamark.errors import UserError


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Example:
      bench completion bash >> ~/.bashrc
    """
    from seamark.cli.main import cli

    completion = get_completion_class(shell)
    if completion is None:
        raise UserError(f"{shell}: no completion for this shell. Known: bash, zsh, fish.")
    click.echo(completion(cli, {}, "bench", "_BENCH_COMPLETE").source())

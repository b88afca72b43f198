"""Every option of every verb that takes a number refuses what is no finite number, in one line."""

from collections.abc import Iterator

import click
import in_process
import pytest

from seamark.cli.main import cli


def numbers(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    """Yield verb and option of each number."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from numbers(command, *path, name)
        elif command is not None:
            for parameter in command.params:
                if isinstance(parameter, click.Option) and parameter.type.name.startswith(("float", "integer")):
                    yield (*path, name, parameter.opts[-1])


NUMBERS = list(numbers(cli))


def test_verbs_have_numbers() -> None:
    assert len(NUMBERS) > 20


@pytest.mark.parametrize("words", NUMBERS, ids=" ".join)
def test_a_number_that_is_not_finite_is_refused(
    words: tuple[str, ...], tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    for value in ("nan", "inf", "1e999", "-1e999"):
        said = in_process.said_by([*words, value], code=2)
        assert "Traceback" not in said
        assert words[-1] in said, said

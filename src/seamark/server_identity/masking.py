"""Hides passwords and tokens in commands, variables and addresses of an identity. Pure."""

from collections.abc import Mapping, Sequence

from seamark.redaction import REDACTED, redacted, redacted_text


def masked_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables with the values of secret ones hidden."""
    return {name: str(redacted(value, name)) for name, value in variables.items()}


def masked_command(words: Sequence[str]) -> list[str]:
    """Return a command with the values of secret flags hidden: `--token=x`, `--token x` and `TOKEN=x`."""
    shown: list[str] = []
    hide_next = False
    for word in words:
        name, equals, value = word.partition("=")
        flag = name.lstrip("-")
        if hide_next:
            shown.append(REDACTED)
        elif equals and flag.replace("-", "_").isidentifier():
            shown.append(f"{name}={redacted(value, flag)}")
        else:
            shown.append(redacted_text(word))
        hide_next = not hide_next and not equals and word.startswith("-") and redacted("x", flag) == REDACTED
    return shown


def masked_address(address: str) -> str:
    """Return an address without user and password: `***@host:1`."""
    _, at, host = address.rpartition("@")
    return f"{REDACTED}@{host}" if at else address

"""Files of others, unpacked as they are read: the first bytes say how they were packed, whatever the name says."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ": "lzma"}
"""First bytes -> the module of Python that unpacks what follows."""
OTHERS = {b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x9d": "compress", b"7z\xbc\xaf": "7z"}
"""First bytes of packings that are not read."""


@contextmanager
def unpacked(path: Path) -> Iterator[BinaryIO]:
    """Open a file as the bytes that were packed. Raises OSError, also while it is read, and ValueError for a file
    that is damaged or packed in another way."""
    with path.open("rb") as file:
        head = file.peek(8)
        if (other := _named(head, OTHERS)) is not None:
            raise ValueError(f"is packed by {other}, which is not read. Unpack it, or pack it by gzip")
        name = _named(head, PACKED)
        if name is None:
            yield file
            return
        module = import_module(name)
        try:
            with module.open(file) as whole:
                yield whole
        except (EOFError, zlib.error, OSError, getattr(module, "LZMAError", EOFError)) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise ValueError(f"{name} cannot unpack it: the file is not whole") from None


def _named(head: bytes, names: dict[bytes, str]) -> str | None:
    return next((name for first, name in names.items() if head.startswith(first)), None)

"""Lets programs made for glibc 2.38 or later run on an older one, if all they use of it is the C23 family of strtol.

`__isoc23_strtol` differs from `strtol` only in that it takes `0b1` for a number. Each such name loses its prefix, the
version it asks for becomes one that every libc has, and the library's new version is asked for no more. x86-64 only.
Fails on a program that needs anything else that is new. Arguments: the version of the libc here, then the programs.
"""

import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ANY_LIBC = b"GLIBC_2.2.5"
PREFIX, KEPT = b"__isoc23_strto", len(b"__isoc23_")
SYMBOLS, VERSIONS, NEEDED = 11, 0x6FFFFFFF, 0x6FFFFFFE
"""Section types: SHT_DYNSYM, SHT_GNU_versym, SHT_GNU_verneed."""
SYMBOL_BYTES = 24
LITTLE_ENDIAN_64 = b"\x7fELF\x02\x01"
GLOBAL = 1


@dataclass(frozen=True, kw_only=True)
class Section:
    offset: int
    size: int
    link: int


@dataclass(frozen=True, kw_only=True)
class Need:
    """One version that is asked of one library, and where in the file that is written (struct Vernaux)."""

    index: int
    version: bytes
    library: bytes
    offset: int

    def newer_than(self, libc: tuple[int, ...]) -> bool:
        return self.version.startswith(b"GLIBC_2") and numbers(self.version.split(b"_")[1].decode()) > libc


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


class Program:
    """An ELF file as bytes that can be changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = bytearray(path.read_bytes())
        (start,) = struct.unpack_from("<Q", self.data, 40)
        (count,) = struct.unpack_from("<H", self.data, 60)
        self.sections: list[Section] = []
        self.of_type: dict[int, Section] = {}
        for k in range(count):
            _, kind, _, _, offset, size, link, _, _, _ = struct.unpack_from("<IIQQQQIIQQ", self.data, start + 64 * k)
            self.sections.append(Section(offset=offset, size=size, link=link))
            self.of_type.setdefault(kind, self.sections[-1])

    def name(self, offset: int) -> bytes:
        """Return a string of the dynamic symbols' table."""
        start = self.sections[self.of_type[SYMBOLS].link].offset + offset
        return bytes(self.data[start : self.data.index(0, start)])

    def needs(self) -> Iterator[Need]:
        at = self.of_type[NEEDED].offset
        while True:
            _, count, library, first, following = struct.unpack_from("<HHIII", self.data, at)
            entry = at + first
            for _ in range(count):
                _, _, index, version, after = struct.unpack_from("<IHHII", self.data, entry)
                yield Need(index=index, version=self.name(version), library=self.name(library), offset=entry)
                entry += after
            if not following:
                return
            at += following

    def fit(self, libc: tuple[int, ...]) -> int:
        """Change the names and versions; return how many names. Writes nothing."""
        needs = list(self.needs())
        new = {need.index: need for need in needs if need.newer_than(libc)}
        old = next((need.index for need in needs if need.version == ANY_LIBC), GLOBAL)
        symbols, versions = self.of_type[SYMBOLS], self.of_type[VERSIONS]
        changed = 0
        for k in range(symbols.size // SYMBOL_BYTES):
            (index,) = struct.unpack_from("<H", self.data, versions.offset + 2 * k)
            if (need := new.get(index & 0x7FFF)) is None:
                continue
            at = symbols.offset + SYMBOL_BYTES * k
            (name,) = struct.unpack_from("<I", self.data, at)
            if not self.name(name).startswith(PREFIX):
                raise SystemExit(f"{self.path}: needs {self.name(name).decode()} of {need.version.decode()}")
            struct.pack_into("<I", self.data, at, name + KEPT)
            struct.pack_into("<H", self.data, versions.offset + 2 * k, old)
            changed += 1
        for need in new.values():
            known = next(each for each in needs if each.library == need.library and each.index not in new)
            self.data[need.offset : need.offset + 4] = self.data[known.offset : known.offset + 4]  # its hash
            self.data[need.offset + 8 : need.offset + 12] = self.data[
                known.offset + 8 : known.offset + 12
            ]  # its name
        return changed


def main(libc: str, *paths: str) -> None:
    for path in map(Path, paths):
        if path.read_bytes()[:6] != LITTLE_ENDIAN_64:
            continue
        program = Program(path)
        if NEEDED not in program.of_type:
            continue
        changed = program.fit(numbers(libc))
        path.write_bytes(program.data)
        print(f"{path}: {changed} names")


if __name__ == "__main__":
    main(*sys.argv[1:])

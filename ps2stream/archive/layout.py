"""The folders and files of an archive, and which of them a reader takes (docs/decisions/0028).

    archive.json                              the format, of the whole archive
    dispatcher-0/mark.json                    up to where this dispatcher's objects are there
    dispatcher-0/SERIES-FIRST-END.parquet     offsets from FIRST, below END
    dispatcher-0/withdrawn.jsonl              ids that are withdrawn, and up to which point
    dispatcher-0/ended.json                   that nothing is to come, as the dispatcher has ended
    compacted/manifest.json                   what was compacted, and the files that have it
    compacted/GENERATION/*.parquet

A file counts once the mark (or the manifest) names its end, and each of these is replaced as a
whole. So a file that was being written when its writer was killed is not there.
"""

from __future__ import annotations

import dataclasses
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ps2stream.errors import InvalidArgument, invalid

FORMAT = 1
HEAD = "archive.json"
MARK = "mark.json"
WITHDRAWN = "withdrawn.jsonl"
ENDED = "ended.json"
COMPACTED = "compacted"
MANIFEST = "manifest.json"
MOST_GAPS = 1000
_DISPATCHER = re.compile(r"dispatcher-([0-9]{1,5})")
_FILE = re.compile(r"([0-9]{6})-([0-9]{19})-([0-9]{19})\.parquet")
_ATTEMPTS = 100


class ArchiveLimits(NamedTuple):
    """What a service keeps in its archive: `path`; the bytes of the files that a dispatcher keeps
    and their age in hours, of those that are not compacted; seconds until objects are in it."""

    path: Path
    size_bytes: int
    hours: float
    delay_s: float


class ArchivePoint(NamedTuple):
    """A point in a dispatcher's objects. The series rises when its log begins anew, for example
    after a restore, so that offsets come again."""

    series: int
    offset: int


class RawFile(NamedTuple):
    """A file that a dispatcher wrote: objects of offsets from `first`, below `end`."""

    series: int
    first: int
    end: int

    @property
    def name(self) -> str:
        """The name of the file in its dispatcher's folder."""
        return f"{self.series:06}-{self.first:019}-{self.end:019}.parquet"

    @property
    def reaches(self) -> ArchivePoint:
        """The point below which all of its objects lie."""
        return ArchivePoint(self.series, self.end)

    @classmethod
    def parse(cls, name: str) -> RawFile | None:
        """Returns the file of this name; None for any other file."""
        found = _FILE.fullmatch(name)
        return None if found is None else cls(*map(int, found.groups()))


class ArchiveGap(NamedTuple):
    """Objects that are not in the archive although their log had them: of offsets from `first`,
    below `end`. `objects`: their number; None where the log had dropped them before they were
    counted: then nothing tells the end."""

    series: int
    first: int
    end: int
    objects: int | None


@dataclasses.dataclass(frozen=True)
class ArchiveMark:
    """How far one dispatcher's objects are complete: each of its object log below the point
    (series, offset) was archived, save those of `gaps`.

    identity: of the log; last, crc: position and CRC-32 of the last record that was read from it,
    -1 before the first; lsn: the LSN of the last object; time_ms: when the mark was made, Unix ms;
    objects: archived since the archive began; lost: how many the gaps had, also those of which
    the list no longer tells.
    """

    partition: int
    identity: str
    series: int = 0
    offset: int = 0
    last: int = -1
    crc: int = 0
    lsn: int = 0
    time_ms: int = 0
    objects: int = 0
    lost: int = 0
    gaps: tuple[ArchiveGap, ...] = ()

    @property
    def point(self) -> ArchivePoint:
        """The point below which objects are complete."""
        return ArchivePoint(self.series, self.offset)

    def passing(self, position: int, crc: int) -> ArchiveMark:
        """Returns the mark behind a further record of the log."""
        return dataclasses.replace(self, last=position, crc=crc)

    def begin_series(self) -> ArchiveMark:
        """Returns the mark at the beginning of another log."""
        return dataclasses.replace(self, series=self.series + 1, offset=0, last=-1, crc=0)

    def add_gap(self, first: int, objects: int | None) -> ArchiveMark:
        """Returns the mark with a gap from an offset up to here; the same one if it has it."""
        gap = ArchiveGap(self.series, first, self.offset, objects)
        if gap in self.gaps:
            return self
        gaps = (*self.gaps, gap)[-MOST_GAPS:]
        return dataclasses.replace(self, gaps=gaps, lost=self.lost + (objects or 0))

    def encode(self) -> bytes:
        """Returns the mark as its file has it."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return encode_document(fields)

    @classmethod
    def decode(cls, data: bytes, path: Path) -> ArchiveMark:
        """Reads a mark. Raises InvalidArgument."""
        found = read_document(data, path)
        try:
            found["gaps"] = tuple(ArchiveGap(*gap) for gap in found["gaps"])
            return cls(**found)
        except (TypeError, KeyError) as error:
            raise invalid(str(path), f"is damaged: {error}") from None


class CompactedFile(NamedTuple):
    """A file of the manifest: its path below `compacted`; the hour in which its objects were
    archived, in hours since 1970; its rows and bytes; its kind, objects or terms."""

    path: str
    hour: int
    rows: int
    size_bytes: int
    kind: str


@dataclasses.dataclass(frozen=True)
class CompactedManifest:
    """What was compacted: for each dispatcher, by its number, everything below a point. `files`
    have these objects, and those that retention has dropped are nowhere. The grid whose cells
    they are sorted by has 2^bits columns and rows. What lines of a dispatcher below the number
    `withdrawn` say is in none of them. analyses: by which text analysis the words of each file of
    the kind terms were counted, as JSON."""

    generation: int = 0
    through: Mapping[int, ArchivePoint] = dataclasses.field(default_factory=dict)
    files: tuple[CompactedFile, ...] = ()
    bits: tuple[int, int] = (0, 0)
    withdrawn: Mapping[int, int] = dataclasses.field(default_factory=dict)
    analyses: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def encode(self) -> bytes:
        """Returns the manifest as its file has it."""
        out = {
            "generation": self.generation,
            "through": {str(p): list(point) for p, point in sorted(self.through.items())},
            "files": self.files,
            "bits": self.bits,
            "withdrawn": {str(p): count for p, count in sorted(self.withdrawn.items())},
            "analyses": dict(self.analyses),
        }
        return encode_document(out)

    @classmethod
    def decode(cls, data: bytes, path: Path) -> CompactedManifest:
        """Reads a manifest. Raises InvalidArgument."""
        found = read_document(data, path)
        try:
            through = {int(p): ArchivePoint(*point) for p, point in found["through"].items()}
            files = tuple(CompactedFile(*each) for each in found["files"])
            west, south = found["bits"]
            withdrawn = {int(p): int(count) for p, count in found.get("withdrawn", {}).items()}
            analyses = dict(found.get("analyses", {}))
            return cls(found["generation"], through, files, (west, south), withdrawn, analyses)
        except (TypeError, KeyError, ValueError) as error:
            raise invalid(str(path), f"is damaged: {error}") from None


class ArchiveSnapshot(NamedTuple):
    """An archive at one moment. `raw`: files of dispatchers that are not compacted, and the number
    of the dispatcher of each; `superseded`: those that are."""

    path: Path
    marks: Sequence[ArchiveMark]
    manifest: CompactedManifest
    raw: Sequence[tuple[int, Path]]
    superseded: Sequence[Path]

    @property
    def files(self) -> list[Path]:
        """The files of all objects, each object in one of them: by hour what is compacted, then by
        dispatcher and offset."""
        compacted = [f for f in self.manifest.files if f.kind == "objects"]
        folder = self.path / COMPACTED
        return [folder / f.path for f in compacted] + [path for _, path in self.raw]


def is_archive(path: str | Path) -> bool:
    """Returns whether this is the folder of an archive."""
    try:
        return (Path(path) / HEAD).is_file()
    except (OSError, ValueError):
        return False


def dispatcher_folder(path: Path, partition: int) -> Path:
    """Returns the folder of one dispatcher."""
    return path / f"dispatcher-{partition}"


def encode_head() -> bytes:
    """Returns the contents of archive.json."""
    return encode_document({"kind": "ps2stream archive"})


def check_head(path: Path) -> None:
    """Raises InvalidArgument unless the folder has an archive of a format that is known."""
    try:
        data = (path / HEAD).read_bytes()
    except OSError as error:
        raise invalid(str(path), f"is no archive: {HEAD}: {error.strerror}") from None
    read_document(data, path / HEAD)


def encode_document(fields: Mapping[str, Any]) -> bytes:
    """Returns a JSON document of an archive, with its format and a checksum of all its values."""
    every = {"format": FORMAT, **fields}
    return json.dumps({**every, "crc32": _sum_document(every)}, indent=1).encode() + b"\n"


def _sum_document(every: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(every).encode())


def read_document(data: bytes, path: Path) -> dict[str, Any]:
    """Returns the fields of a JSON document of an archive, without its format and checksum, which
    those of earlier versions do not have. Raises InvalidArgument if it is damaged or of another
    format."""
    try:
        found = json.loads(data)
        crc = found.pop("crc32", None)
        is_intact = crc is None or crc == _sum_document(found)
        version = found.pop("format")
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise invalid(str(path), f"is damaged: {error!r}") from None
    if version != FORMAT:
        raise invalid(
            str(path), f"has the format {version!r}; this version reads and writes format {FORMAT}"
        )
    if not is_intact:
        raise invalid(str(path), "is damaged: its checksum is another one")
    fields: dict[str, Any] = found
    return fields


def read_snapshot(path: str | Path) -> ArchiveSnapshot:
    """Reads what is in an archive, also while it is written and compacted. Raises
    InvalidArgument."""
    root = Path(path)
    check_head(root)
    for _ in range(_ATTEMPTS):
        manifest = read_manifest(root)
        marks, raw, superseded = [], list[tuple[int, Path]](), list[Path]()
        try:
            for partition, folder in list_dispatchers(root):
                if (mark := read_mark(folder)) is None:
                    continue
                marks.append(mark)
                through = manifest.through.get(partition, ArchivePoint(0, -1))
                for file in list_raw(folder):
                    if file.reaches <= through:
                        superseded.append(folder / file.name)
                    elif file.reaches <= mark.point:
                        raw.append((partition, folder / file.name))
        except OSError as error:
            raise invalid(str(path), f"cannot be read: {error.strerror}") from None
        # What a compaction took meanwhile may have been removed from where it was looked for.
        if read_manifest(root).generation == manifest.generation:
            return ArchiveSnapshot(root, marks, manifest, raw, superseded)
    raise invalid(str(path), "is compacted again and again; try again")


def read_manifest(root: Path) -> CompactedManifest:
    """Returns the manifest of what is compacted; an empty one where nothing is. Raises
    InvalidArgument."""
    path = root / COMPACTED / MANIFEST
    try:
        return CompactedManifest.decode(path.read_bytes(), path)
    except FileNotFoundError:
        return CompactedManifest()
    except OSError as error:
        raise invalid(str(path), f"cannot be read: {error.strerror}") from None


def read_mark(folder: Path) -> ArchiveMark | None:
    """Returns the mark of a dispatcher's folder; None where there is none yet. Raises
    InvalidArgument, OSError."""
    path = folder / MARK
    try:
        return ArchiveMark.decode(path.read_bytes(), path)
    except FileNotFoundError:
        return None


def list_raw(folder: Path) -> list[RawFile]:
    """Returns the files of a dispatcher's folder, whether they count or not, in their order.
    Raises OSError."""
    found = (RawFile.parse(path.name) for path in folder.iterdir())
    return sorted(file for file in found if file is not None)


def list_dispatchers(root: Path) -> list[tuple[int, Path]]:
    """Returns the number and the folder of each dispatcher that an archive has, in their order.
    Raises OSError."""
    found = ((_DISPATCHER.fullmatch(path.name), path) for path in root.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match is not None)


def describe_missing(path: Path) -> InvalidArgument:
    """Returns the error for a file that went between the listing and the reading."""
    return invalid(str(path), "was removed from the archive while it was read; try again")

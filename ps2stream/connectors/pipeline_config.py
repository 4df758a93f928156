"""The declaration of a pipeline: where its rows come from, and which of them become which posts.

Read from a file of TOML and from options of the command; knows no Spark.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ps2stream.errors import InvalidArgument, Violation, invalid, short
from ps2stream.posts.members import AttributeChoice, find_name_problem

FILES = ("parquet", "orc", "json", "csv", "text")
"""Formats of folders of files, to which more files are added."""
_PASSING = ("skipchangecommits", "ignoredeletes")
"""Options with which Delta passes over commits that otherwise end a stream."""
FORMATS = (*FILES, "delta", "kafka", "socket", "rate")
OF_VALUES = ("kafka", "socket", "text")
"""Formats whose rows have one value each; with a schema, that is an object in JSON."""
POST_FIELDS = ("id", "time", "lon", "lat", "text", "until", "payload")
READERS = ("auto", "arrow", "spark")
"""Who reads the rows: Arrow in the tasks, or Spark's JVM; auto: Arrow, where it can."""
REQUIRED_OPTIONS = {
    "kafka": ("kafka.bootstrap.servers",),
    "socket": ("host", "port"),
}
MOST_PARTITIONS = 256
NAME_BYTES = 64
_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{NAME_BYTES}}}")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST_S = 366 * 86400.0
_TABLES: dict[str, tuple[str, ...]] = {
    "source": ("format", "path", "schema", "options", "reader"),
    "posts": (*POST_FIELDS, "where", "dedupe"),
}
_TOP = ("name", "checkpoint", "trigger", "partitions", "skip_bad", "dead_letters")
_KEYS = (*_TOP, "source", "posts", "attributes", "spark")


@dataclasses.dataclass(frozen=True)
class PostMapping:
    """Which posts the rows of a source become.

    fields: a column or SQL expression for each of POST_FIELDS; one that is not there has a column
    of its usual name (posts.NAMES), if any. attributes: expressions by name; or which of the other
    columns, as `ps2stream publish` takes it; None: all that can. where: rows that fit this SQL
    condition. dedupe_s: seconds within which another row of the same id is dropped; None: never.
    """

    fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
    attributes: Mapping[str, str] | str | None = None
    where: str = ""
    dedupe_s: float | None = None


@dataclasses.dataclass(frozen=True)
class PipelineJob:
    """A pipeline from a source of Spark's to a service.

    schema: the columns of files, or of the JSON of a value, in SQL. trigger: seconds between two
    micro-batches, 0 for one after the other; None: what is there now, then the end. partitions: of
    files, rates, sockets and of the deduplication. spark: settings of Spark. reader: of READERS.
    """

    name: str
    format: str
    checkpoint: str
    path: str = ""
    schema: str = ""
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    mapping: PostMapping = dataclasses.field(default_factory=PostMapping)
    trigger: float | None = 0.0
    partitions: int = 8
    skip_bad: bool = False
    dead_letters: Path | None = None
    spark: Mapping[str, str] = dataclasses.field(default_factory=dict)
    reader: str = "auto"

    def compute_mark(self) -> str:
        """Returns a mark of all that decides which rows are in which place of a micro-batch. The
        options of a Kafka client, such as passwords, are not in it, nor are Delta's that let a
        stream go on where it ended: a micro-batch that it had read before has the same rows."""
        passing = _PASSING if self.format == "delta" else ()
        options = {
            k: v
            for k, v in self.options.items()
            if not k.startswith("kafka.") and k.lower() not in passing
        }
        mapping = dataclasses.asdict(self.mapping)
        parts = (self.format, self.path, self.schema, options, mapping, self.partitions)
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def parse_seconds(field: str, value: Any) -> float:
    """Returns the seconds of a duration such as 90m or 1h. Raises InvalidArgument."""
    found = _DURATION.fullmatch(value.replace(" ", "")) if isinstance(value, str) else None
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < seconds <= _LONGEST_S:
        raise invalid(field, f"expected a duration above 0 and of at most 366d, such as 10s or 1h, "
                      f"got {short(value)}")  # fmt: skip
    return seconds


def read_declaration(path: Path) -> dict[str, Any]:
    """Reads a file of TOML. Raises InvalidArgument naming it."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise invalid("FILE", f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise invalid("FILE", f"{path} is not TOML: {error}") from None


def merge_declarations(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a declaration in which the values of `more` are added to those of `base`, or replace
    them; tables are merged."""
    found = dict(base)
    for name, value in more.items():
        old = found.get(name)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        found[name] = merge_declarations(old, value) if both else value  # type: ignore[arg-type]
    return found


class _DeclarationReader:
    """Reader of a declaration's values, which collects what is wrong with them."""

    def __init__(self, declared: Mapping[str, Any]) -> None:
        self._declared = declared
        self.problems: list[Violation] = []

    def add(self, field: str, problem: str) -> None:
        self.problems.append(Violation(field, problem))

    def read_table(self, name: str, known: tuple[str, ...] | None = None) -> dict[str, Any]:
        """Returns a table, empty if it is not there; unknown keys are problems."""
        found = self._declared if not name else self._declared.get(name, {})
        if not isinstance(found, Mapping):
            self.add(name, f"expected a table, got {short(found)}")
            return {}
        for key in found if known is not None else ():
            if key not in (known or ()):
                place = f"{name}.{key}" if name else key
                self.add(place, f"is unknown; expected one of {', '.join(known or ())}")
        return dict(found)

    def read_texts(self, name: str, values: Mapping[str, Any]) -> dict[str, str]:
        """Returns the values that are texts and not empty; the others are problems."""
        out: dict[str, str] = {}
        for key, value in values.items():
            if isinstance(value, str) and value.strip():
                out[key] = value
            else:
                place = f"{name}.{key}" if name else key
                self.add(place, f"expected a text that is not empty, got {short(value)}")
        return out

    def read_options(self, name: str, values: Any) -> dict[str, str]:
        """Returns a table of options of Spark, as texts; numbers and booleans are understood."""
        if not isinstance(values, Mapping):
            self.add(name, f"expected a table, got {short(values)}")
            return {}
        out: dict[str, str] = {}
        for key, value in values.items():
            if isinstance(value, bool):
                out[key] = str(value).lower()
            elif isinstance(value, str | int | float):
                out[key] = str(value)
            else:
                hint = "; a name with dots is put in quotes" if isinstance(value, Mapping) else ""
                self.add(f"{name}.{key}", f"expected a text or number, got {short(value)}{hint}")
        return out

    def read_duration(self, field: str, value: Any) -> float | None:
        try:
            return parse_seconds(field, value)
        except InvalidArgument as error:
            self.problems += error.violations
            return None


def build_job(declared: Mapping[str, Any]) -> PipelineJob:
    """Checks a declaration. Raises InvalidArgument with all that is wrong: unknown keys, missing
    ones, and values that are out of bounds."""
    reader = _DeclarationReader(declared)
    top = reader.read_table("", _KEYS)
    format, source = _read_source(reader)
    mapping = _read_mapping(reader, format)
    name, checkpoint = top.get("name", "pipeline"), top.get("checkpoint")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        reader.add("name", f"expected 1 to {NAME_BYTES} letters, digits, dots, hyphens and "
                   f"underscores, got {short(name)}")  # fmt: skip
    if not isinstance(checkpoint, str) or not checkpoint:
        reader.add("checkpoint", "expected the folder or URL where the pipeline keeps its position,"
                   f" got {short(checkpoint)}")  # fmt: skip
    partitions = top.get("partitions", 8)
    if type(partitions) is not int or not 1 <= partitions <= MOST_PARTITIONS:
        problem = f"expected a whole number from 1 to {MOST_PARTITIONS}, got {short(partitions)}"
        reader.add("partitions", problem)
    skip_bad, letters = top.get("skip_bad", False), top.get("dead_letters")
    if not isinstance(skip_bad, bool):
        reader.add("skip_bad", f"expected true or false, got {short(skip_bad)}")
    if letters is not None and not (isinstance(letters, str) and letters):
        reader.add("dead_letters", f"expected the name of a file, got {short(letters)}")
    elif letters is not None and skip_bad is True:
        reader.add("dead_letters", "cannot be combined with skip_bad; give one of them")
    trigger: float | None = 0.0
    if (given := top.get("trigger")) == "once":
        trigger = None
    elif given is not None:
        trigger = reader.read_duration("trigger", given)
    spark = reader.read_options("spark", top.get("spark", {}))
    if reader.problems:
        raise InvalidArgument(reader.problems)
    return PipelineJob(
        name=str(name),
        format=format,
        checkpoint=str(checkpoint),
        path=source.get("path", ""),
        schema=source.get("schema", ""),
        options=source["options"],
        mapping=mapping,
        trigger=trigger,
        partitions=partitions,
        skip_bad=skip_bad,
        dead_letters=Path(letters) if letters else None,
        spark=spark,
        reader=source.get("reader", "auto"),
    )


def _read_source(reader: _DeclarationReader) -> tuple[str, dict[str, Any]]:
    table = reader.read_table("source", _TABLES["source"])
    options = reader.read_options("source.options", table.pop("options", {}))
    found: dict[str, Any] = reader.read_texts("source", table)
    format = found.get("format", "")
    if format not in FORMATS:
        reader.add("source.format", f"expected one of {', '.join(FORMATS)}, got {short(format)}")
    if format in (*FILES, "delta") and "path" not in found and "path" not in options:
        reader.add("source.path", f"is missing; {format} is read from a folder or URL")
    if format in ("kafka", "socket", "rate") and "path" in found:
        reader.add("source.path", f"does not go with {format}, which has options")
    if format in ("json", "csv") and "schema" not in found:
        problem = f"is missing; {format} needs the columns, such as `lon DOUBLE, text STRING`"
        reader.add("source.schema", problem)
    if format in ("delta", "rate") and "schema" in found:
        reader.add("source.schema", f"does not go with {format}, which has its own columns")
    if (given := found.get("reader", "auto")) not in READERS:
        reader.add("source.reader", f"expected one of {', '.join(READERS)}, got {short(given)}")
    for option in REQUIRED_OPTIONS.get(format, ()):
        if option not in options:
            reader.add(f"source.options.{option}", f"is missing, and {format} needs it")
    topics = {"subscribe", "subscribePattern", "assign"} & options.keys()
    if format == "kafka" and len(topics) != 1:
        problem = "expected one of subscribe, subscribePattern and assign, for the topics"
        reader.add("source.options", f"{problem}; got {', '.join(sorted(topics)) or 'none'}")
    return format, found | {"options": options}


def _read_mapping(reader: _DeclarationReader, format: str) -> PostMapping:
    table = reader.read_table("posts", _TABLES["posts"])
    dedupe = table.pop("dedupe", None)
    seconds = None if dedupe is None else reader.read_duration("posts.dedupe", dedupe)
    fields = reader.read_texts("posts", table)
    where = fields.pop("where", "")
    attributes: Any = reader.read_table("").get("attributes")
    if isinstance(attributes, Mapping):
        attributes = reader.read_texts("attributes", attributes)
        for name in attributes:
            if name in POST_FIELDS:
                reader.add(f"attributes.{name}", f"is a field of posts; map it as posts.{name}")
            elif problem := find_name_problem(name):
                reader.add(f"attributes.{name}", f"cannot be the name of an attribute: {problem}")
    elif isinstance(attributes, str):
        try:
            AttributeChoice(attributes)
        except InvalidArgument as error:
            reader.problems += error.violations
    elif attributes is not None:
        problem = f"expected a table of expressions, or names, got {short(attributes)}"
        reader.add("attributes", problem)
    if dedupe is not None and "id" not in fields and format in ("socket", "rate"):
        reader.add("posts.dedupe", "needs posts.id, by which rows are recognised")
    return PostMapping(fields, attributes, where, seconds)

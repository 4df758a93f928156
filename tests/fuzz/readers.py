"""What reads bytes of strangers or of a disk. A target takes any bytes and fails with the
errors that it promises, or not at all; `SEEDS` are sound inputs to begin with."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from multidict import MultiDict

from ps2stream.client.inputs import object_batch
from ps2stream.client.requests import insert_request
from ps2stream.errors import DataDirectoryError, InvalidArgument, NotFound, PlanError
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.expression import ExpressionError, canonical, compile_column, parse
from ps2stream.protocol import tokens
from ps2stream.protocol.frame import FrameError, decode, strings_to_column
from ps2stream.protocol.messages.updates import LookupReply, UpdateDecision
from ps2stream.protocol.rows import QueryRows, no_queries
from ps2stream.routing.plan import built_in_plan
from ps2stream.routing.plan_file import load_plan
from ps2stream.security import AccessScope
from ps2stream.space import geojson
from ps2stream.space.grid import Grid
from ps2stream.store.segments import SegmentLog
from ps2stream.store.tokens import NAME, read, write
from ps2stream.web.api.bodies import parse_json
from ps2stream.web.api.cursors import CursorWriter, read_cursor, read_page, write_page
from ps2stream.web.api.objects import read_posts
from ps2stream.web.api.parameters import read_region
from ps2stream.web.api.queries import read_query
from tests.fuzz import feed_readers
from tests.fuzz.damage import TEXTS

_SHM = Path("/dev/shm")
EXPRESSIONS = (
    'flood -"rising water" NOT (storm* OR –x)', '“a b” «c» 「東京」 "d',
    "NOT NOT -(a -b)", "a NOT a",
    "fl* ab*", 'צה"ל', "\u200f-a", "--", '-"', "*", "a*b", '""', "東京*", "NOT " * 300 + "a",
)  # fmt: skip
ANALYZER = Analyzer(Analysis(salt=1))
FREQUENCIES = Frequencies.of({}, ANALYZER)


class Unnoticed(AssertionError):
    """Damage was read as if it were sound. Checksums tell accidents; a guided fuzzer forges
    them, so only random damage is held to this."""


class Target(NamedTuple):
    """`run` takes any bytes."""

    run: Callable[[bytes], None]
    seeds: list[bytes]


def expression(data: bytes) -> None:
    """The query language: the kernel takes what the parser takes, and the canonical form
    says the same again."""
    try:
        source = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        source = data.decode("utf-8", "replace")
    found = compile_column(*strings_to_column([source]), ANALYZER, FREQUENCIES)
    try:
        tree = parse(source, ANALYZER)
    except ExpressionError:
        assert found.errors or not source.strip()
        return
    assert not found.errors, found.errors
    text = canonical(tree)
    assert canonical(parse(text, ANALYZER)) == text


def region(data: bytes) -> None:
    """GeoJSON."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    try:
        geojson.from_json(value)
    except (InvalidArgument, OverflowError):
        return


def frame(data: bytes) -> None:
    """Messages of the machines, and rows within them."""
    for read_one in (decode, QueryRows.decode):
        try:
            read_one(data)
        except FrameError:
            continue


def plan(data: bytes) -> None:
    """A plan file that somebody wrote by hand, so that no checksum keeps the rest away."""
    file = _folder("plan") / "plan.json"
    file.write_bytes(data)
    try:
        load_plan(file, ANALYZER.analysis)
    except PlanError:
        return


def token_file(data: bytes) -> None:
    """Other tokens than those that were kept are never read."""
    folder = _folder("tokens")
    (folder / NAME).write_bytes(data)
    try:
        found = read(folder)
    except DataDirectoryError:
        return
    if tokens.encode(found) != tokens.encode(TOKENS):
        raise Unnoticed


def bearer(data: bytes) -> None:
    """What a client sends as its token."""
    found = tokens.TokenIndex(TOKENS).bearer(data.decode("latin-1"))
    assert (found is not None) == (data.decode("latin-1") == SECRET)


def segment(data: bytes) -> None:
    """A segment log whose file is not what was synced: refused, or all is there."""
    folder = _folder("segments")
    shutil.rmtree(folder)
    shutil.copytree(LOG, folder)
    (folder / SEGMENT).write_bytes(data)
    _same_records(folder)


def mark(data: bytes) -> None:
    """Its mark."""
    folder = _folder("mark")
    shutil.rmtree(folder)
    shutil.copytree(LOG, folder)
    (folder / "mark").write_bytes(data)
    _same_records(folder)


def _same_records(folder: Path) -> None:
    try:
        with SegmentLog.open(folder, segment_bytes=4096) as log:
            found = [record for _, record in log.scan()]
    except DataDirectoryError:
        return
    if found != RECORDS:
        raise Unnoticed


def posts(data: bytes) -> None:
    """The body of POST /v1/objects: what is taken is taken by the client, too."""
    for in_lines in (False, True):
        try:
            found = read_posts(data, in_lines)
        except InvalidArgument:
            continue
        assert len(object_batch(found.rows).objects) == len(found.rows)


def query(data: bytes) -> None:
    """The body of POST /v1/queries."""
    try:
        body = parse_json(data, "body")
        if isinstance(body, dict):
            found = read_query(body)
            retro, replace = found.pop("retro"), found.pop("replace")
            insert_request(**found, replace=replace, retro=retro)
    except InvalidArgument:
        return


def place(data: bytes) -> None:
    """The place in the address of a stream."""
    for name in ("near", "bbox", "polygon"):
        try:
            read_region(MultiDict({name: data.decode("utf-8", "replace")}))
        except InvalidArgument:
            continue


def cursor(data: bytes) -> None:
    """Cursors of streams and of pages: only those that were written are read."""
    text = data.decode("utf-8", "replace")
    try:
        read_cursor(KEY, text)
        if text.rstrip("=") != CURSOR:
            raise Unnoticed
    except NotFound:
        pass
    try:
        if read_page(KEY, "session", text) and text != PAGE:
            raise Unnoticed
    except NotFound:
        return


def _folder(name: str) -> Path:
    folder = FOLDER / name
    folder.mkdir(exist_ok=True)
    return folder


_HELD = tempfile.TemporaryDirectory(
    prefix="ps2stream-fuzz-", dir=None if tempfile.tempdir or not _SHM.is_dir() else _SHM
)
FOLDER = Path(_HELD.name)
_MADE = tokens.make(bytes(range(40)), "acme", frozenset({AccessScope.ADMIN}), 1, 2)
TOKENS, SECRET = [_MADE.token], _MADE.text
write(_folder("tokens"), TOKENS)
RECORDS = [bytes([i]) * (i * 7 % 90) for i in range(40)]
LOG = _folder("log")
with SegmentLog.open(LOG, segment_bytes=4096) as _log:
    for _record in RECORDS:
        _log.append(_record)
    _log.sync()
SEGMENT = next(LOG.glob("*.segment")).name
_PLAN = built_in_plan(ANALYZER.analysis, Grid(4, 4), 3, frequencies={"storm": 3, "flood": 2})
_ROWS = np.frombuffer(no_queries().encode(), np.uint8)
KEY = bytes(32)
CURSOR = CursorWriter(KEY, "session", False, b"").write(7)
PAGE = write_page(KEY, "session", "12")
_POST = {"lon": 1, "lat": "2.5", "text": "a", "time": "2026-01-01", "tags": [1], "until": 5}
_POINT = {"type": "Point", "coordinates": [1, 2]}
_FEATURE = {"type": "Feature", "id": 7, "geometry": _POINT, "properties": _POST}
_RING = [[170, 1e9], [190, 1], [-180.0, 2], [170, 1e9]]
_QUERY = {"id": "a", "expression": "x", "until": "2030-01-01", "retro": True, "session": "s"}

TARGETS = {
    "expression": Target(expression, [t.encode() for t in (*TEXTS, *EXPRESSIONS)]),
    "region": Target(region, [t.encode() for t in TEXTS if t[:1] == "{"]),
    "frame": Target(
        frame,
        [
            no_queries().encode(),
            LookupReply(1, 0, 5, _ROWS, *strings_to_column(["a", "b"])).encode(),
            UpdateDecision(3, np.zeros(4, np.uint8), np.arange(4)).encode(),
        ],
    ),
    "plan": Target(plan, [json.dumps({"format": 1, "plan": _PLAN.to_dict()}).encode()]),
    "tokens": Target(token_file, [(FOLDER / "tokens" / NAME).read_bytes()]),
    "bearer": Target(bearer, [SECRET.encode()]),
    "segment": Target(segment, [(LOG / SEGMENT).read_bytes()]),
    "posts": Target(
        posts,
        [
            json.dumps(value).encode()
            for value in (
                [_POST, _POST | {"payload": {"a": [None]}, "attributes": {"n": 1e300}}],
                {"type": "FeatureCollection", "features": [_FEATURE]},
                _FEATURE,
            )
        ]
        + [b'{"lon": 1, "lat": 2, "text": "\\ud800"}\n\n{"lng": 1, "latitude": 2, "text": ""}'],
    ),
    "query": Target(
        query,
        [
            json.dumps(_QUERY | {"region": region}).encode()
            for region in (
                None,
                {"type": "Circle", "lon": 1, "lat": 2, "radius_km": 3},
                {"type": "Polygon", "coordinates": [_RING]},
                {"type": "Feature", "geometry": {"type": "MultiPolygon", "coordinates": [[_RING]]}},
            )
        ],
    ),
    "place": Target(
        place,
        [
            b"-0.1,51.5,30",
            b"170,-10,-170,1e2",
            b"1,2;3,4;5,1",
            json.dumps({"type": "Polygon", "coordinates": [_RING]}).encode(),
        ],
    ),
    "cursor": Target(cursor, [CURSOR.encode(), PAGE.encode(), b"-"]),
    "cap": Target(feed_readers.cap, feed_readers.CAP_SEEDS),
    "geojson-feed": Target(feed_readers.geojson_feed, feed_readers.GEOJSON_SEEDS),
    "wis2": Target(feed_readers.wis2, feed_readers.WIS2_SEEDS),
    "gzip": Target(feed_readers.gzip_body, [gzip.compress(b"x" * n) for n in (9, 1000, 9999)]),
    "file": Target(feed_readers.grown_file, feed_readers.FILE_SEEDS),
    "mark": Target(mark, [(LOG / "mark").read_bytes()]),
}

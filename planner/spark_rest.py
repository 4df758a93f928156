"""The rest of a large sample (planner/rest.py), by Spark.

What the executors hold of the units stays with them: only those that are kept, sums by cell, and
which words of signatures are units of the rest reach the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from ps2stream.language.analyzer import Analysis
from ps2stream.language.expression import watch_literals
from ps2stream.planner import counting
from ps2stream.planner import executors as on
from ps2stream.planner.hits import Vocabulary
from ps2stream.planner.rest import PAIRS, REST, RestTable, choose_parts, find_least_class
from ps2stream.planner.sample import COUNTS
from ps2stream.space.grid import Grid

_HASH = pa.schema([("hash", pa.int64())])
_CLASSES = pa.schema([("class", pa.int64()), ("units", pa.int64())])
_HELD = pa.schema([("cell", pa.int64()), ("word", pa.int64())])


class RestSampling:
    """Chooses the units that are kept. persist: keeps rows until the job ends; collect: brings
    rows of a schema to the driver, counted under a name."""

    def __init__(
        self,
        spark: SparkSession,
        analysis: Analysis,
        persist: Callable[[DataFrame], DataFrame],
        collect: Callable[[str, DataFrame, Any], Any],
    ) -> None:
        self._spark, self._analysis = spark, analysis
        self._persist, self._collect = persist, collect

    def separate(self, postings: DataFrame, posts: DataFrame, grid: Grid, limit: int) -> DataFrame:
        """Returns the POSTINGS of at most `limit` units, and of coarser levels. postings: sums by
        cell and term."""
        held = postings.where(F.col("cell") >= 0)
        keyed = self._persist(map_rows(held, partial(on.hash_postings, self._analysis), on.KEYED))
        words = self._collect("words", keyed.select("hash").distinct(), _HASH)["hash"].to_numpy()
        terms = keyed.select("term").distinct()
        literals = map_rows(terms, partial(on.list_literals, self._analysis), on.TERM)
        names = self._collect("literals", literals, on.TERM)["term"].to_pylist()
        watched = watch_literals(on.analyzer_of(self._analysis), sorted(names)).view()
        self._words = np.sort(words.view(np.uint64))
        self.vocabulary = self._spark.sparkContext.broadcast(Vocabulary(self._words, watched))
        counted = partial(on.count_pairs, self._analysis, self.vocabulary, grid)
        pairs = sum_rows(map_rows(posts, counted, PAIRS), ["cell", "hash"], ("objects",))
        units = keyed.join(pairs, ["cell", "hash"], "left").fillna(0, ["objects"])
        classed = self._persist(map_rows(units, on.classify_units, on.CLASSED))
        classes = classed.groupBy("class").agg(F.count("*").alias("units"))
        found = self._collect("classes", classes, _CLASSES)
        least = find_least_class(found["class"].to_numpy(), found["units"].to_numpy(), limit)
        self._rest = classed.where(F.col("class") < least)
        self._parts = choose_parts(self._rest.select("cell").distinct().count(), limit)
        kept = classed.where(F.col("class") >= least)
        names = counting.POSTINGS.names
        coarse = postings.where(F.col("cell") < 0)
        return kept.select(*names).union(coarse.select(*names))

    def take(self, signatures: DataFrame) -> RestTable:
        """Collects the rest. signatures: rows of a cell and units, as UnitHits has them."""
        rows = self._rest.select(
            "cell",
            F.col("hash").bitwiseAND(F.lit(self._parts - 1)).alias("part"),
            F.lit(1).cast("long").alias("units"),
            "objects",
            *COUNTS,
            (F.col("objects") * F.col("live")).alias("candidates"),
        )
        sums = self._collect("rest", sum_rows(rows, ["cell", "part"], REST.names[2:]), REST)
        others = signatures.select("cell", F.explode("units").alias("unit")).where("unit < 0")
        numbered = others.select("cell", (-1 - F.col("unit")).cast("long").alias("word"))
        hashed = partial(on.hash_words, self.vocabulary)
        wanted = map_rows(numbered.distinct(), hashed, on.WORDS)
        held = wanted.join(self._rest.select("cell", "hash"), ["cell", "hash"], "left_semi")
        found = self._collect("words of signatures", held, _HELD)
        cell, word = found["cell"].to_numpy(), found["word"].to_numpy()
        return RestTable(sums, self._words, cell, word, self._parts)


def map_rows(rows: DataFrame, function: Callable[..., Iterator[Any]], schema: Any) -> DataFrame:
    """Returns what a function of Arrow batches makes of each partition, of this Arrow schema."""
    return rows.mapInArrow(function, from_arrow_schema(schema))


def sum_rows(rows: DataFrame, keys: list[str], values: Sequence[str]) -> DataFrame:
    """Returns the sums of `values` by `keys`."""
    return rows.groupBy(*keys).agg(*(F.sum(name).alias(name) for name in values))

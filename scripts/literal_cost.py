"""Measures what phrases and prefixes cost the analysis of texts: `python scripts/literal_cost.py`.

Texts of the posts in the file POSTS (or of $PS2STREAM_DATA) are analysed without literals, and
searched for so many phrases of two words and prefixes of three to six letters, in turn, in batches
of 1,024 as a dispatcher does it; each line is the median of five rounds of processor time.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.expression import watch_literals
from ps2stream.language.literals import NO_LITERALS, LiteralView
from ps2stream.protocol.frame import strings_to_column

TEXTS = 100_000
ROUNDS = 5
BATCH = 1024
FEW, MANY = 100, 100_000


def main() -> None:
    data = Path(os.environ.get("PS2STREAM_DATA", "../shared/data"))
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else data / "tweets_us_2021_2022.parquet"
    texts = pq.read_table(file, columns=["text"]).column("text").to_pylist()[:TEXTS]
    analyzer, rng = Analyzer(Analysis(salt=1)), random.Random(1)
    columns = [strings_to_column(texts[i : i + BATCH]) for i in range(0, len(texts), BATCH)]
    sample = [words for text in texts[:20_000] if len(words := analyzer.sequence(text)) > 1]
    views: dict[str, LiteralView] = {"no literals": NO_LITERALS}
    for n in (FEW, MANY):
        phrases, prefixes = set[str](), set[str]()
        while len(phrases) < n // 2:
            words = rng.choice(sample)
            at = rng.randrange(len(words) - 1)
            phrases.add(f'"{words[at]} {words[at + 1]}"')
            if len(word := rng.choice(words)) > 1:
                prefixes.add(word[: rng.randint(3, 6)] + "*")
        views[f"{n // 2} phrases"] = watch_literals(analyzer, sorted(phrases)).view()
        views[f"{len(prefixes)} prefixes"] = watch_literals(analyzer, sorted(prefixes)).view()
    taken: dict[str, list[float]] = {name: [] for name in views}
    for _ in range(ROUNDS + 1):  # the first compiles
        for name, view in views.items():
            begun = time.process_time()
            for column in columns:
                analyzer.analyse(*column, literals=view)
            taken[name].append(time.process_time() - begun)
    base = statistics.median(taken["no literals"][1:])
    for name, seconds in taken.items():
        median = statistics.median(seconds[1:])
        cost = f"{median / len(texts) * 1e6:.2f} us a text, {median / base:.2f} times"
        sys.stdout.write(f"{name:16}  {cost}\n")


if __name__ == "__main__":
    main()

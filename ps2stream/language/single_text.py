"""Analysis of one text a call, without what a column of texts needs besides the kernel."""

from __future__ import annotations

import numpy as np

from ps2stream.language.analyzer import ALL_ROWS, SEARCHES_NOTHING, Analyzer
from ps2stream.language.analyzer_kernels import analyse_rows
from ps2stream.language.literals import NO_LITERALS
from ps2stream.language.simple_characters import simple_characters
from ps2stream.protocol.frame import I64, U8, U64, sealed

_ROOM = 1 << 12
"""Terms that there is room for; a longer text is analysed as a column of one."""


class SingleTextAnalyzer:
    """Analyses a text as `Analyzer.analyse` does, in the same memory each time. Not for several
    threads."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._settings = simple_characters(analyzer.foldings), sealed(analyzer.keys)
        self._off, self._text_off = np.zeros(2, np.int64), np.zeros(2, np.int64)
        self._sealed_off = sealed(self._text_off)
        self._term, self._slow = np.empty(_ROOM, np.uint64), np.zeros(1, np.uint8)

    def analyse(self, text: U8) -> tuple[I64, U64]:
        """Returns the terms of a text, UTF-8, as a ragged column of one row; they are valid until
        the next call."""
        size = len(text)
        if not self._analyzer.simple or not 0 < size < _ROOM:
            return self._analyzer.analyse(np.array((0, size)), text)
        self._text_off[1] = size
        out = self._off, self._term, self._slow
        given = *self._settings, NO_LITERALS.of_texts, out, SEARCHES_NOTHING, ALL_ROWS
        if analyse_rows(self._sealed_off, text, *given):
            return self._analyzer.analyse(self._text_off, text)
        return self._off, self._term[: self._off[1]]

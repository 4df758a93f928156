"""Text analysis, the same for objects and queries: text -> tokens -> salted hashes.

`tokenizer.py` defines the tokens; this module adds what is chosen when a data directory is
created (salt, stemmer, stop words), the hashes, and the frequencies of terms.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain
from types import MappingProxyType

import numpy as np
import regex

from ps2stream.errors import FailedPrecondition
from ps2stream.language import analyzer_kernels as kernels
from ps2stream.language import literal_kernels, search_kernels, tokenizer
from ps2stream.language.analysis import Analysis
from ps2stream.language.area_kernels import ANYWHERE
from ps2stream.language.batch_tokenizer import (
    check_wanted,
    is_always_wanted,
    split_column,
    split_text,
)
from ps2stream.language.hash_kernels import KEYS, TOP, hash_rows
from ps2stream.language.literal_kernels import HEADS
from ps2stream.language.literal_texts import TextWords
from ps2stream.language.literals import NO_LITERALS, LiteralView
from ps2stream.language.predicates import NO_ATTRIBUTES, Attributes, is_predicate
from ps2stream.language.prefix_kernels import count_prefix
from ps2stream.language.simple_characters import ASCII_FOLD, simple_characters
from ps2stream.protocol.frame import (
    I64,
    U8,
    U16,
    U64,
    Array,
    column_to_strings,
    sealed,
    strings_to_column,
    take_ragged,
)

__all__ = ["ASCII_FOLD", "TOP", "Analysis", "Analyzer", "Frequencies"]

_MEMO = 1 << 18  # entries of an analyser's memo; dropped as a whole when full
_SPACELESS = regex.compile(tokenizer.SPACELESS, regex.VERSION1)
_NO_TERMS = np.zeros(0, np.uint64)
_NONE = np.zeros(0, np.int64)
ALL_ROWS = _NONE
SEARCHES_NOTHING = (_NONE, _NO_TERMS, _NONE, _NONE, _NONE, _NO_TERMS)
_SHORT = 48  # characters: a shorter text is split in Python before a kernel would be called


@cache
def _stop_words(language: str, foldings: frozenset[str]) -> frozenset[str]:
    """Returns the stop words that are one word; of several none is stopped for it."""
    import stopwordsiso

    words = (tokenizer.split(w, foldings).sequence for w in stopwordsiso.stopwords(language))
    return frozenset(w[0] for w in words if len(w) == 1)


class Analyzer:
    """Analyses texts by the settings. Safe for several threads; the hash keys derive from the
    salt.

    Raises FailedPrecondition when the settings were fixed with other rules of words or other
    character data.
    """

    def __init__(self, analysis: Analysis) -> None:
        if analysis.version != tokenizer.VERSION:
            raise FailedPrecondition(
                f"analysis.version: made with words of version {analysis.version}, but this is "
                f"version {tokenizer.VERSION}, which finds other words in the same text; "
                "write the queries to a file with `list --json` of the ps2stream that made it, and "
                "insert them with `insert --file` into a new data directory"
            )
        if analysis.regex_unicode != (installed := tokenizer.unicode_version()):
            raise FailedPrecondition(
                f"analysis.regex_unicode: fixed as {analysis.regex_unicode!r}, but "
                f"{installed!r} is installed, which may find other words in the same text; "
                "install those versions again, or make a new data directory"
            )
        self.analysis = analysis
        digest = hashlib.shake_256(b"ps2stream terms %d" % analysis.salt).digest(8 * KEYS)
        self.keys: U64 = np.frombuffer(digest, "<u8").astype(np.uint64)
        self.simple = analysis.stemmer is None and analysis.stop_words is None
        self.foldings = frozenset(analysis.fold)
        self._stops: frozenset[str] = frozenset()
        if analysis.stop_words:
            self._stops = _stop_words(analysis.stop_words, self.foldings)
        self._stem: Callable[[str], str] | None = None
        if analysis.stemmer:
            import Stemmer

            self._stem = Stemmer.Stemmer(analysis.stemmer).stemWord
        self._terms: dict[str, str | None] = {}
        self._hashes: dict[int, int] = {}

    def tokens(self, text: str) -> list[str]:
        """Returns the distinct words and side words of a text, in order of appearance
        (semantics.md 3).

        Each means itself as a keyword.
        """
        return list(dict.fromkeys(self._stem_tokens(self._split(text).tokens)))

    def sequence(self, text: str) -> list[str]:
        """Returns the words of a text in order, with repeats, without side words."""
        return self._stem_tokens(self._split(text).sequence)

    def keyword(self, text: str) -> list[str]:
        """Returns the words that a keyword means: its sequence, or the one side word of a word
        with `++` or `#` behind it (`c++`)."""
        found = self._split(text)
        marked = tokenizer.marked_word(found)
        return [marked] if marked is not None else self._stem_tokens(found.sequence)

    def _split(self, text: str) -> tokenizer.SplitText:
        split = tokenizer.split if len(text) <= _SHORT else split_text
        return split(text, self.foldings)

    def _stem_tokens(self, tokens: list[str]) -> list[str]:
        if self.simple:
            return tokens
        terms = (self._stem_token(token) for token in tokens)
        return [t for t in terms if t is not None]

    def plain_words(self, text: str) -> list[str]:
        """Returns the words of a text in order, with repeats, before stemming and stop words."""
        return self._split(text).sequence

    def text_words(self, text: str, attributes: Attributes = NO_ATTRIBUTES) -> TextWords:
        """Returns what an object with this text offers to the literals of an expression."""
        found = self._split(text)
        side = [t for t, is_side in zip(found.tokens, found.is_side, strict=True) if is_side]
        return TextWords(
            tuple(self._stem_tokens(found.sequence)),
            frozenset(self._stem_tokens(side)),
            frozenset(found.tokens),
            attributes,
        )

    def is_spaceless(self, word: str) -> bool:
        """Returns whether a word is of a script that is written without spaces."""
        return _SPACELESS.match(word) is not None

    def _stem_token(self, token: str) -> str | None:
        """Returns the stem of a token, or None for a stop word."""
        memo = self._terms
        if token in memo:
            return memo[token]
        term: str | None = token if token not in self._stops else None
        if self._stem is not None and term is not None and token[-1] not in "+#":
            # Snowball is not idempotent; the stem of a stem is, after a few rounds.
            for _ in range(8):
                stem = tokenizer.cut_token(self._stem(term))
                if stem == term:
                    break
                term = stem
            else:  # a chain of suffixes; its end would be another term than its middle
                term = token
            if term in self._stops:
                term = None
            elif tokenizer.split(term, self.foldings).sequence != [term]:
                term = token
        if len(memo) >= _MEMO:
            self._terms = memo = {}
        memo[token] = term
        return term

    def hash_terms(self, tokens: Sequence[str]) -> U64:
        """Returns the salted hash of the UTF-8 of each token, uint64[n]; never TOP, 0 or 2^64 -
        1."""
        off, data = strings_to_column(tokens)
        return hash_rows(sealed(off), sealed(data), _IDENTITY, sealed(self.keys))

    def phrase_hash(self, words: Sequence[str]) -> int:
        """Returns the term of a phrase of analysed words, two or more."""
        return int(literal_kernels.phrase_term(self.hash_terms(words)))

    def prefix_hash(self, prefix: str) -> int:
        """Returns the term of a prefix, which is folded and at most TOKEN_BYTES long."""
        return int(literal_kernels.prefix_terms(self.hash_terms([prefix]))[0])

    def prepare(self) -> None:
        """Builds what the first text needs, which would otherwise wait some tenths of a second."""
        self.analyse(*strings_to_column(("a", "\u00e4\u0e01")))  # the fast way and the slow one

    def analyse(
        self,
        off: I64,
        text: U8,
        is_wanted: Callable[[], bool] = is_always_wanted,
        literals: LiteralView = NO_LITERALS,
        area: U16 | None = None,
    ) -> tuple[I64, U64]:
        """Analyses a ragged column of UTF-8 texts into a ragged column of term hashes.

        Rows are sorted and unique and hold TOP, and those of `literals` that hold for the text and,
        with `area` (uint16[n], see `find_areas`), that some query has there.
        Malformed UTF-8 separates tokens. Raises Cancelled once `is_wanted` says that the caller
        has left.
        """
        check_wanted(is_wanted)
        rows = len(off) - 1
        slow = np.zeros(rows, np.uint8)
        out_off = np.zeros(rows + 1, np.int64)
        watched = literals.of_texts
        if area is None:
            area = np.full(rows if len(watched[0]) else 0, ANYWHERE, np.uint16)
        if self.simple:
            size = int(off[-1] - off[0])
            out = np.empty(size + rows, np.uint64)
            sought = SEARCHES_NOTHING
            if len(watched[0]):
                has_prefixes = bool(literals.heads[HEADS])
                sought = (
                    np.zeros(rows, np.int64),
                    np.empty(size + 1 if has_prefixes else 0, np.uint64),
                    np.empty(size + 1 if has_prefixes else 0, np.int64),
                    np.zeros(1 if has_prefixes else 0, np.int64),
                    np.zeros(rows + 1, np.int64),
                    np.empty(search_kernels.LONG_ROOM * size if has_prefixes else 0, np.uint64),
                )
            left = kernels.analyse_rows(
                sealed(off),
                sealed(text),
                simple_characters(self.foldings),
                sealed(self.keys),
                watched,
                (out_off, out, slow),
                sought,
                ALL_ROWS,
            )
            if len(watched[0]):
                out_off, out = search_kernels.search_rows(
                    out_off, out, slow, sealed(self.keys), sought, watched, area, True
                )
            elif not left:
                out = out[: out_off[-1]].copy()
            if not left:
                return out_off, out
        else:
            out = np.empty(0, np.uint64)
            slow[:] = 1
        slow_rows = np.flatnonzero(slow)
        slowly = self._analyse_slowly(off, text, slow_rows, is_wanted, watched, area)
        terms: tuple[I64, U64] = kernels.merge_rows(out_off, out, slow, *slowly)
        return terms

    def _analyse_slowly(
        self,
        off: I64,
        text: U8,
        rows: Array,
        is_wanted: Callable[[], bool],
        watched: tuple[U64, U8, U8, U64, U64],
        area: U16,
    ) -> tuple[I64, U64, I64, U64]:
        """Returns the term hashes of these rows, as a ragged column, unsorted and without TOP, and
        the watched literals in them, as another."""
        keys = sealed(self.keys)
        sizes, parts = [np.zeros(1, np.int64)], [np.zeros(0, np.uint64)]
        found_sizes, found = [np.zeros(1, np.int64)], [np.zeros(0, np.uint64)]
        first = 0
        for part in split_column(off, text, rows, is_wanted, self.foldings):
            row_off, token_off, tokens = part.row_off, part.token_off, part.tokens
            term = hash_rows(sealed(token_off), sealed(tokens), _IDENTITY, keys)
            if not self.simple:
                term = self._term_hashes(term, token_off, tokens)
            if len(watched[0]):
                words = sealed(token_off), sealed(tokens)
                sides = sealed(part.is_side)
                here = sealed(area[rows[first : first + len(row_off) - 1]])
                found_off, terms = search_kernels.find_watched(
                    sealed(row_off), sealed(term), sides, words, keys, watched, here
                )
                found_sizes.append(np.diff(found_off))
                found.append(terms)
            if not self.simple:
                row_off = np.append(0, np.cumsum(term != 0))[row_off]
                term = term[term != 0]
            first += len(row_off) - 1
            sizes.append(np.diff(row_off))
            parts.append(term)
        off, found_off = (np.cumsum(np.concatenate(each)) for each in (sizes, found_sizes))
        return off, np.concatenate(parts), found_off, np.concatenate(found)

    def _term_hashes(self, found: U64, token_off: I64, tokens: U8) -> U64:
        """Returns the hash of the term of each token, 0 for a stop word; `found` is the hash of
        the token."""
        memo = self._hashes
        each, first, which = np.unique(found, return_index=True, return_inverse=True)
        known = [memo.get(h) for h in each.tolist()]
        new = [i for i, h in enumerate(known) if h is None]
        if new:
            texts = column_to_strings(*take_ragged(token_off, tokens, first[new]))
            terms = [self._stem_token(t) for t in texts]
            hashes = self.hash_terms([t or "" for t in terms]).tolist()
            fresh = [h if t is not None else 0 for t, h in zip(terms, hashes, strict=True)]
            for i, h in zip(new, fresh, strict=True):
                known[i] = h
            if len(memo) + len(new) > _MEMO:
                self._hashes = memo = {}
            memo.update(zip(each[new].tolist(), fresh, strict=True))
        return np.array(known, np.uint64)[which]


class Frequencies:
    """The numbers of times that terms occur in a sample: an immutable value; unseen words count
    0. Predicates, `source = "usgs"` and `source EXISTS`, are counted beside words."""

    def __init__(
        self, counts: Mapping[str, int], term: U64, predicates: Mapping[str, int] | None = None
    ) -> None:
        """Stores the counts of words and of predicates; `term` uint64[n] holds the hashes of the
        keys of `counts`, in their order."""
        self.counts: Mapping[str, int] = MappingProxyType(dict(counts))
        self.predicates: Mapping[str, int] = MappingProxyType(dict(predicates or {}))
        size = 1 << max(3, (2 * len(term)).bit_length())
        self.table_term: U64 = np.zeros(size, np.uint64)
        self.table_count: I64 = np.zeros(size, np.int64)
        count = np.fromiter(self.counts.values(), np.int64, len(term))
        kernels.fill_table(self.table_term, self.table_count, term, count)
        self.table_term.flags.writeable = False
        self.table_count.flags.writeable = False

    @classmethod
    def of(cls, counts: Mapping[str, int], analyzer: Analyzer) -> Frequencies:
        """Makes the frequencies of analysed tokens and predicates, and their counts, hashed with
        the analyser's salt."""
        predicates = {term: count for term, count in counts.items() if is_predicate(term)}
        words = counts
        if predicates:
            words = {term: count for term, count in counts.items() if term not in predicates}
        return cls(words, analyzer.hash_terms(list(words)), predicates)

    @cached_property
    def most(self) -> int:
        """The largest count: the sample has at least so many objects."""
        return max(chain(self.counts.values(), self.predicates.values()), default=0)

    def get(self, token: str) -> int:
        """Returns the count of a token."""
        return self.counts.get(token, 0)

    def count_prefix(self, prefix: str) -> int:
        """Returns the sum of the counts of the tokens that begin with a prefix."""
        off, data = strings_to_column([prefix])
        return int(count_prefix(*self.prefix_counts, sealed(data), off[0], off[1]))

    @cached_property
    def prefix_counts(self) -> tuple[I64, U8, I64]:
        """The tokens in order as a ragged column, and the sums of the counts before each of them
        and of all, int64[n + 1], by which kernels count prefixes."""
        tokens = sorted(self.counts)
        before = np.zeros(len(tokens) + 1, np.int64)
        np.cumsum([self.counts[t] for t in tokens], out=before[1:])
        off, data = strings_to_column(tokens)
        return sealed(off), sealed(data), sealed(before)

    def lookup(self, term: U64) -> I64:
        """Returns the counts of term hashes, int64[n]."""
        found: I64 = kernels.probe_all(self.table_term, self.table_count, sealed(term))
        return found


_IDENTITY: U8 = sealed(np.arange(256, dtype=np.uint8))

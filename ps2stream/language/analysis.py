"""The settings of text analysis, which are fixed when a data directory is created."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from ps2stream.errors import InvalidArgument, Violation
from ps2stream.foldings import FOLDINGS
from ps2stream.language import tokenizer


@dataclass(frozen=True, slots=True)
class Analysis:
    """The settings of text analysis, recorded with a data directory and a plan.

    salt 64-bit unsigned; stemmer a Snowball language of PyStemmer (`english`); stop_words an ISO
    639-1 code of stopwordsiso (`en`); regex_unicode the versions of the character data
    (`tokenizer.unicode_version`); fold what is folded besides, sorted (`foldings.FOLDINGS`);
    version that of the rules of words (`tokenizer.VERSION`). Raises InvalidArgument.
    """

    salt: int
    stemmer: str | None = None
    stop_words: str | None = None
    regex_unicode: str = field(default_factory=tokenizer.unicode_version)
    fold: tuple[str, ...] = ()
    version: int = tokenizer.VERSION

    def __post_init__(self) -> None:
        bad: list[Violation] = []
        if not (type(self.salt) is int and 0 <= self.salt < 1 << 64):
            bad.append(Violation("analysis.salt", "expected an integer from 0 to 2^64 - 1"))
        for name, known in (("stemmer", _list_stemmers), ("stop_words", _list_stop_languages)):
            value = getattr(self, name)
            if value is not None and value not in known():
                choice = ", ".join(sorted(known()))
                bad.append(
                    Violation(f"analysis.{name}", f"expected one of {choice}, got {value!r}")
                )
        if not (isinstance(self.regex_unicode, str) and self.regex_unicode):
            bad.append(Violation("analysis.regex_unicode", "expected a version"))
        fold = self.fold if type(self.fold) is tuple else None
        if fold is None or fold != tuple(f for f in FOLDINGS if f in fold):
            choice = ", ".join(FOLDINGS)
            bad.append(
                Violation("analysis.fold", f"expected some of {choice}, in order, got {self.fold}")
            )
        if not (type(self.version) is int and self.version >= 1):
            bad.append(Violation("analysis.version", "expected an integer from 1"))
        if bad:
            raise InvalidArgument(bad)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON; the salt is among them, so keep it where the data is
        kept."""
        return asdict(self) | {"fold": list(self.fold)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Analysis:
        """Inverts `to_dict`; raises InvalidArgument on unknown or missing keys. What does not name
        its version was written before there was another than the first."""
        known = {"salt", "stemmer", "stop_words", "regex_unicode", "fold", "version"}
        bad = [Violation(f"analysis.{k}", "unknown setting") for k in sorted(set(values) - known)]
        bad += [
            Violation(f"analysis.{k}", "missing")
            for k in ("salt", "regex_unicode")
            if k not in values
        ]
        if bad:
            raise InvalidArgument(bad)
        folded = values.get("fold", ())
        fold = tuple(folded) if isinstance(folded, list) else folded
        return cls(**{"version": 1} | dict(values) | {"fold": fold})

    def fingerprint(self) -> str:
        """Returns the hex SHA-256 of the canonical JSON, the salt replaced by its own hash."""
        salt = hashlib.sha256(b"ps2stream salt %d" % self.salt).hexdigest()
        text = json.dumps(self.to_dict() | {"salt": salt}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def salt_mark(self) -> str:
        """Returns 8 hex digits that differ between salts without revealing them: 2^32 salts
        share each."""
        return hashlib.sha256(b"ps2stream salt mark %d" % self.salt).hexdigest()[:8]


@cache
def _list_stemmers() -> frozenset[str]:
    import Stemmer

    return frozenset(Stemmer.algorithms())


@cache
def _list_stop_languages() -> frozenset[str]:
    import stopwordsiso

    return frozenset(stopwordsiso.langs())

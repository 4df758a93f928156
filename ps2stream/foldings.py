"""The names of what an analysis may fold besides letter case, and how settings give them."""

from __future__ import annotations

from typing import Final

ACCENTS, ARABIC_MARKS, DIGITS = "accents", "arabic-marks", "digits"
FOLDINGS: Final = (ACCENTS, ARABIC_MARKS, DIGITS)
"""What can be folded by choice, sorted: see `language.tokenizer.optional_forms`."""


def read_foldings(names: str) -> tuple[str, ...]:
    """Returns the foldings named in a list with commas, sorted; raises ValueError."""
    chosen = {name.strip() for name in names.split(",")} - {""}
    if chosen - {*FOLDINGS}:
        raise ValueError(f"expected some of {', '.join(FOLDINGS)}, separated by commas")
    return tuple(sorted(chosen))

"""Limits that an error names (contract.md 5, semantics.md 4). Sizes are bytes of UTF-8."""

from __future__ import annotations

from typing import Final

ID_BYTES: Final = 128  # query, object, request and producer ids: 1..128
SESSION_BYTES: Final = 128
REQUEST_BYTES: Final = 64 * 1024  # one request but those with a query, a batch or a plan
QUERY_BYTES: Final = 1024 * 1024  # one query: room for POLYGON_VERTICES at full precision
BATCH_BYTES: Final = 4 * 1024 * 1024  # one batch of queries or objects
BATCH_ROWS: Final = 8_192  # objects, queries or ids of one batch
PLAN_BYTES: Final = 4 * 1024 * 1024  # a plan in JSON that is to be applied
VIOLATIONS: Final = 64  # violations that one error lists; the check stops there
TEXT_BYTES: Final = 64 * 1024  # the text of one object
FOLDED_TEXT_BYTES: Final = 128 * 1024  # the same text after folding: U+FDFA grows elevenfold

DISPATCHERS: Final = 64  # of a service, and addresses that a client knows

ATTRIBUTES: Final = 64  # of one object
ATTRIBUTE_COLUMNS: Final = 1024  # of a table; a union counts once for each of its types
ATTRIBUTE_NAME_BYTES: Final = 64
ATTRIBUTE_TEXT_BYTES: Final = 1024  # a text value
COMPARED_TEXT_BYTES: Final = 256  # a text that a query compares by < <= > >= !=
PAYLOAD_BYTES: Final = 64 * 1024

EXPRESSION_BYTES: Final = 8 * 1024
EXPRESSION_TERMS: Final = 64  # distinct terms: keywords, phrases and prefixes
PHRASE_WORDS: Final = 64  # of one phrase, or of a keyword that is one
EXPRESSION_DEPTH: Final = 8  # nested parentheses
EXPRESSION_CONJUNCTS: Final = 64  # beyond them the clause rule chooses postings (algorithms.md 1.2)
TOKEN_BYTES: Final = 128  # longer tokens are cut, not refused

WAITING_UPDATES: Final = 262_144  # inserts not yet answered in a dispatcher; as many deletes again
WAITING_BYTES: Final = 64 * 1024 * 1024  # bytes of these inserts; the deletes have as many again
WAITING_QUESTIONS: Final = 4096  # look-ups and sessions that the sequencer has not answered

PRODUCER_WINDOW: Final = 256  # publications of a producer of which a repeat gets the first answer
PRODUCERS: Final = 4096  # producers that one dispatcher remembers
TENANT_PRODUCERS: Final = 1024  # the same of one tenant

VALIDITY_MS: Final = 3653 * 24 * 3600 * 1000  # from now to an end: ten years

LAT_MAX: Final = 90.0
LON_MAX: Final = 180.0
RADIUS_KM: Final = 20_015.2  # of a circle: half the circumference of the earth
POLYGON_VERTICES: Final = 10_000  # over all rings and parts

"""The JSON of a plan file: a format version, a checksum, and the plan.

Reading it needs no library, so that a client can send a plan that only the service understands.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ps2stream.errors import PlanError

FORMAT = 4
"""Format 1 has no moved leaves, format 2 no replicated units, format 3 no sharded ones. A plan is
written in the oldest format that has what it needs, so that older versions can read it."""


def read_document(path: str | Path) -> dict[str, Any]:
    """Returns the plan of a file as JSON has it. Raises PlanError if the file is unreadable,
    damaged, or of a newer format."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"plan {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise PlanError(f"plan {path}: not JSON: {error}") from None
    if not isinstance(document, dict) or "format" not in document:
        raise PlanError(f"plan {path}: not a plan: it has no field 'format'")
    if document["format"] not in range(1, FORMAT + 1):
        raise PlanError(
            f"plan {path}: format {document['format']!r}; this version reads 1 to {FORMAT}"
        )
    if unknown := sorted(set(document) - {"format", "checksum", "plan"}):
        raise PlanError(f"plan {path}: unknown field {unknown[0]!r}")
    body = document.get("plan")
    if not isinstance(body, dict):
        raise PlanError(f"plan {path}: the field 'plan' is missing")
    if "checksum" in document and document["checksum"] != compute_checksum(body):
        raise PlanError(f"plan {path}: damaged: the checksum does not match the content")
    return body


def compute_checksum(body: Mapping[str, Any]) -> str:
    """Returns the checksum of a plan in JSON."""
    raw = json.dumps(body, sort_keys=True, separators=(",", ":")).encode("ascii")
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def compute_route(body: Mapping[str, Any]) -> int:
    """Returns RoutingPlan.route of a plan in JSON."""
    ignored = ("version", "base_version", "frequencies", "made")
    decisive = {name: value for name, value in body.items() if name not in ignored}
    raw = json.dumps(decisive, sort_keys=True).encode()
    return int.from_bytes(hashlib.blake2b(raw, digest_size=7).digest(), "big")

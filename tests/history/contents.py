"""Objects come back as they were published."""

from __future__ import annotations

from tests.history.matching import Objects
from tests.history.reading import History
from tests.history.verdict import Verdict


def judge_contents(history: History, objects: Objects, verdict: Verdict) -> None:
    for receipt in history.receipts:
        for name, _, *came in receipt.objects:
            if name not in objects.by_id:
                continue  # its matches are false
            operation, _, obj = objects.by_id[name]
            published = [obj.lon, obj.lat, obj.text, dict(obj.attributes)]
            if any(a not in (None, b) for a, b in zip(came, published, strict=True)):
                why = f"{receipt.line}: {name} came as {came} instead of {published}"
                verdict.report("altered", why, operation)

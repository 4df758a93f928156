"""The configuration of a Prometheus server."""

from __future__ import annotations

import json
from collections.abc import Sequence

RULES = "ps2stream.rules.yml"
INTERVAL_S = 15
"""Time between two scrapes."""
JOB = "ps2stream"

# Ray puts `ray_` before our names, and `_total` after the parts of a histogram. Labels of Ray's
# own that are of no use here are dropped.
_RELABEL = """\
    metric_relabel_configs:
      - source_labels: [__name__]
        regex: 'ray_(ps2stream_.+_seconds_(?:bucket|sum|count))_total'
        target_label: __name__
        replacement: '$1'
      - source_labels: [__name__]
        regex: 'ray_(ps2stream_.+)'
        target_label: __name__
        replacement: '$1'
      - regex: 'otel_scope_.*|Component|JobId|SessionName|Version'
        action: labeldrop
"""


def configuration(targets: Sequence[str], discovery: Sequence[str] = ()) -> str:
    """Returns the configuration, YAML.

    targets: HOST:PORT; discovery: files that Ray writes the addresses of its nodes to.
    """
    out = f"""\
# Written by `ps2stream dashboards`.
global:
  scrape_interval: {INTERVAL_S}s
  evaluation_interval: {INTERVAL_S}s

rule_files:
  - {RULES}

scrape_configs:
  - job_name: {JOB}
"""
    if targets:
        out += f"    static_configs:\n      - targets: {json.dumps(list(targets))}\n"
    if discovery:
        out += f"    file_sd_configs:\n      - files: {json.dumps(list(discovery))}\n"
    return out + _RELABEL

"""The processor time that `bench ingest` reads."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

from ps2stream.benchmarks.ingest import read_tree_cpu


def test_time_of_a_process_includes_that_of_its_children() -> None:
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    spent = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    least = sum(each.ru_utime + each.ru_stime for each in spent)
    assert spent[1].ru_utime > 0.02
    assert read_tree_cpu(os.getpid()) >= least - 0.05  # which has whole ticks alone
    assert read_tree_cpu(2**30) == 0

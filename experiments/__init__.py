"""Experiments: plans judged on data that they were not made from (algorithms.md 1.10, 2.7)."""

import os

from ps2stream.cluster.kernel_cache import use_kernels

use_kernels(os.environ)  # before any module imports Numba

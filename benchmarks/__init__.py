"""Workloads and measurements of the service (algorithms.md 1.10)."""

import os

from ps2stream.cluster.kernel_cache import use_kernels

use_kernels(os.environ)  # before any module imports Numba

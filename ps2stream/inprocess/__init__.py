"""Matching of tables and files in this process, by the service's own code but without a service."""

import os

from ps2stream.cluster.kernel_cache import use_kernels

use_kernels(os.environ)  # before any module imports Numba

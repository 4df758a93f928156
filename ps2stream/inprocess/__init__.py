"""Matching of tables and files in this process, by the service's own code but without a service."""

import os

from ps2stream.cluster.kernel_cache import choose_folder

choose_folder(os.environ)  # before any module imports Numba

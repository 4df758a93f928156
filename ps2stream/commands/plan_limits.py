"""The option of commands that plan: how much of a sample is held in detail."""

from __future__ import annotations

import click

MAX_UNITS = 2_000_000
"""As in planner/rest.py, repeated here so that --help need not import its libraries."""

max_units_option = click.option(
    "--max-units",
    type=click.IntRange(1),
    default=MAX_UNITS,
    show_default=True,
    help="Units (a cell and a term that queries are posted under) that the planner holds one by "
    "one; of more, the light ones are summed by cell, and the plan says what that may change.",
)

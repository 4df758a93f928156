"""The clock of the machines, and the ticks after which they send again what was not answered."""

from __future__ import annotations

TICKS_PER_S = 10
TICK_S = 1 / TICKS_PER_S
REPEAT_TICKS = 20
"""Ticks after which a request or report that nobody has answered is sent again."""
TRANSFER_TICKS = 10
"""Ticks after which a worker repeats the requests and reports of a migration."""
RESEND_TICKS = 30
"""Ticks at the front of its workers' queues after which a batch is sent again, then after twice as
many, and so on."""
OVERTAKEN_TICKS = 10
"""Ticks after which a message is sent again if a later one was answered."""
NOTICE_TICKS = 5
"""Ticks between two notices of a dispatcher to all workers and mergers, unless nothing changed."""

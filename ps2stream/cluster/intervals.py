"""How often the threads of a service look and try again, and how long they wait at its end."""

from __future__ import annotations

LOOK_S = 0.25
"""Time between two looks: at Ray's processes, at its hosts, and at the number of workers."""
PROBE_S = 0.5
"""Time between two connections to Ray's daemons."""
RETURN_LOOK_S = 1.0
"""Time between two looks whether actors should go to a host that has joined."""
MEMORY_S = 2.0
"""Time between two checks whether to return memory to the system."""
REPLACE_S = 0.5
"""Time until an actor that could not be replaced is replaced again."""
RESTART_S = 5.0
"""Time until a Ray that could not be started is started again."""
JOIN_S = 2.0
"""How long a thread may take to notice that it is no longer wanted."""
ACTORS_STOP_S = 5.0
"""How long all actors together may take to stop in order; then their processes are killed."""
REPLAN_STOP_S = 10.0
"""How long the end of a replanning run that was killed may take."""
NODE_STOP_S = 20.0
"""How long a node of Ray may take to stop."""
BIND_S = 120.0
"""How long an actor may take to start, until its inbox is bound."""
READY_S = 300.0
"""How long a dispatcher may take to replay the ledger."""
LEAVE_S = 10.0
"""How long a worker that is no longer needed may take to stop."""

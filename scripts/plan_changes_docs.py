"""Writes the machine of a plan change into its decision record, from the table of transitions:
PYTHONPATH=. python scripts/plan_changes_docs.py"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ps2stream.routing.plan_changes import TRANSITIONS, PlanTransition
from ps2stream.routing.plan_states import ChangeEvent, ChangeState, PlanSignal
from ps2stream.sequencer.migration import DUE

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "decisions" / "0009-a-plan-changes-by-records-of-the-ledger.md"
BEGIN = "<!-- the table of transitions, written by scripts/plan_changes_docs.py -->\n"
END = "<!-- the end of what scripts/plan_changes_docs.py has written -->\n"


def page() -> str:
    """Returns the decision record with the machine as the table has it now."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{_render_machine()}\n{END}{after}"


def _render_machine() -> str:
    parts = (
        _render_diagram(),
        _render_table(("state", "meaning"), ((s.name, s.value) for s in ChangeState)),
        _render_table(("signal", "meaning"), ((s.name, s.value) for s in PlanSignal)),
        _render_table(("states", "event", "next state", "effect"), _list_transitions()),
    )
    return "\n".join(parts)


def _render_diagram() -> str:
    """Draws the machine as a tree, each state with its branches where the shortest way leads.
    Where a state waits for a signal, the records that may also come before it are left out."""
    ways: dict[ChangeState, list[tuple[ChangeEvent, ChangeState]]] = {}
    for (state, event), row in TRANSITIONS.items():
        if not _skips_signal(state, event):
            ways.setdefault(state, []).append((event, row.target))
    parents: dict[ChangeState, tuple[ChangeState, ChangeEvent] | None] = {ChangeState.NONE: None}
    queue = [ChangeState.NONE]
    for state in queue:
        for event, target in ways[state]:
            if target not in parents:
                parents[target] = state, event
                queue.append(target)

    def draw(state: ChangeState, indent: str) -> Iterator[str]:
        for event, target in ways[state]:
            last = (event, target) == ways[state][-1]
            mark = "*" if DUE.get(state) is event else ""
            yield f"{indent}{'└' if last else '├'}─ {event.name}{mark} ─► {target.name}"
            if parents[target] == (state, event):
                yield from draw(target, indent + ("   " if last else "│  "))

    lines = [ChangeState.NONE.name, *draw(ChangeState.NONE, "")]
    return "\n".join(("```", *lines, "```", ""))


def _skips_signal(state: ChangeState, event: ChangeEvent) -> bool:
    """Returns whether this record may also follow after the signal that the state waits for."""
    signals = (signal for signal in PlanSignal if (state, signal) in TRANSITIONS)
    return any((TRANSITIONS[state, signal].target, event) in TRANSITIONS for signal in signals)


def _list_transitions() -> Iterator[tuple[str, ...]]:
    """Yields the rows of the table; what an event does alike in several states is one row."""
    states: dict[tuple[ChangeEvent, PlanTransition], list[str]] = {}
    for (state, event), row in TRANSITIONS.items():
        mark = "*" if DUE.get(state) is event else ""
        states.setdefault((event, row), []).append(state.name + mark)
    for (event, row), names in states.items():
        name = event.name if isinstance(event, PlanSignal) else f"`{event.name}`"
        effect = " ".join((row.action.__doc__ or "").split())
        yield ", ".join(names), name, row.target.name, effect


def _render_table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

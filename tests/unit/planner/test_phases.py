"""What a plan says of the phases of Algorithm 1."""

from __future__ import annotations

import json

from ps2stream.planner.phases import DecidedNodes, describe_phases, list_phases


def test_phases_that_could_do_nothing_did_not_act() -> None:
    found = describe_phases(0.97, 0.5, DecidedNodes(1, 0, (8,), told_apart=True), 0, 0)
    assert not any(found["acted"].values())
    assert list_phases(found) == [
        "similarity  did not act: root 0.97, above delta = 0.5; Ns 1, Nt 0",
        "numbers     did not act: one node",
        "balance     did not act; 0 parts by text",
    ]


def test_phases_that_acted_say_what_they_did() -> None:
    found = describe_phases(0.128, 0.5, DecidedNodes(1, 2, (4, 3, 1), told_apart=True), 12, 9)
    assert json.loads(json.dumps(found)) == found
    assert all(found["acted"].values())
    assert list_phases(found) == [
        "similarity  acted: root 0.128, at most delta = 0.5; Ns 1, Nt 2",
        "numbers     acted: parts 4, 3, 1",
        "balance     acted: 12 leaves divided; 9 parts by text",
    ]
    enough = describe_phases(0.128, 0.5, DecidedNodes(0, 9, (), told_apart=True), 0, 0)
    assert not enough["acted"]["numbers"]
    assert list_phases(enough)[1] == "numbers     did not act: enough nodes"


def test_a_root_in_nt_matters_only_where_nt_is_divided_otherwise() -> None:
    for told_apart in (False, True):
        nodes = DecidedNodes(0, 1, (8,), told_apart)
        found = describe_phases(0.1, 0.5, nodes, 0, 8)
        assert found["acted"]["similarity"] == told_apart

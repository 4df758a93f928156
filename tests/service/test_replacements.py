"""Queries that are replaced: every object meets exactly one of the old and the new one."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.client import requests
from ps2stream.client.answers import RefusedRow
from ps2stream.client.async_client import AsyncClient
from ps2stream.client.client import Client
from ps2stream.errors import AlreadyExists, FailedPrecondition, InvalidArgument
from ps2stream.space.regions import Circle
from ps2stream.v1 import pubsub_pb2, query_pb2

HERE = Circle(8.5, 47.4, 30)


def ask(client: Client, method: str, request: Any, kind: Any) -> Any:
    """One attempt with exactly this request."""
    return client._call_rpc(method, request, kind)


def test_a_query_is_replaced_and_keeps_its_id(client: Client) -> None:
    first = client.insert("swap", "flood", HERE, session="swap", replace=True)  # there is none yet
    assert client.insert("swap", "Flood", HERE, session="swap", replace=True) == first
    post = {"lon": 8.5, "lat": 47.4, "text": "flood and fire"}
    client.publish([post | {"id": "before"}])
    second = client.insert("swap", "fire OR storm", HERE, session="swap", replace=True)
    client.publish([post | {"id": "after"}])
    assert second > first
    assert client.get("swap").expression == "fire OR storm"
    assert [q.id for q in client.list("swap")] == ["swap"]
    assert second.expression == "fire OR storm"  # as the service understood it
    with client.subscribe("swap") as matches:
        found = [next(matches) for _ in range(2)]
    assert {(m.query_id, m.object_id) for m in found} == {("swap", "before"), ("swap", "after")}
    with pytest.raises(AlreadyExists, match="'swap' exists in another session, and only"):
        client.insert("swap", "ice", HERE, session="other", replace=True)
    with pytest.raises(AlreadyExists, match="exists with another expression"):
        client.insert("swap", "ice", HERE, session="swap")
    client.delete("swap")
    assert client.insert("swap", "ice", HERE, session="other", replace=True) > second
    client.delete("swap")


def test_the_last_of_several_rows_with_one_id_stays(client: Client) -> None:
    """Within a batch, and of batches behind each other."""
    client.insert("elsewhere", "word", session="x")
    rows = [(f"many{i % 7}", f"word{i}") for i in range(2_500)]
    rows[3] = ("elsewhere", "other")
    refused: list[RefusedRow] = []
    lsns = client.insert_many(rows, session="many", refused=refused, replace=True)
    problem = "the query exists in another session, and only a query of the same session can be"
    assert [(r.row, str(r.error)) for r in refused] == [(3, f"queries[3]: {problem} replaced")]
    assert lsns[3] == 0
    done = [lsn for lsn in lsns if lsn]
    assert done == sorted({*done})  # each has an LSN of its own
    last = {id: expression for i, (id, expression) in enumerate(rows) if i != 3}
    assert {q.id: q.expression for q in client.list("many")} == last
    client.delete_many([*last, "elsewhere"])


@pytest.mark.parametrize("many", [False, True])
def test_a_repeat_gets_the_first_answer_and_replaces_nothing(client: Client, many: bool) -> None:
    id = f"again {many}"

    def attempt(request_id: str, *expressions: str) -> list[int]:
        queries = [query_pb2.Query(id=id, expression=e, session="a") for e in expressions]
        named: dict[str, Any] = {"request_id": request_id, "replace": True}
        if not many:
            return [
                ask(
                    client,
                    "InsertQuery",
                    pubsub_pb2.InsertQueryRequest(query=query, **named),
                    pubsub_pb2.InsertQueryResponse,
                ).lsn
                for query in queries
            ]
        batch = query_pb2.QueryBatch(queries=queries)
        request = pubsub_pb2.InsertQueriesRequest(batch=batch, **named)
        kind = pubsub_pb2.InsertQueriesResponse
        [answer] = client._send_bulk("InsertQueries", [request], kind)
        return list(answer.lsns)

    expressions = ["one", "two", "one"] if many else ["one"]
    first = attempt("p", *expressions)
    assert first == sorted({*first})
    same = attempt("q", expressions[-1])
    assert same == first[-1:]
    [last] = attempt("r", "three")
    assert attempt("p", *expressions) == first
    assert attempt("q", expressions[-1]) == same
    assert client.get(id).expression == "three"
    assert client.delete(id) == last + 1
    assert attempt("r", "three") == [last]
    assert [q.id for q in client.list("a")] == []


@pytest.mark.takes_turns
def test_every_object_meets_exactly_one_of_two(client: Client) -> None:
    """Both match all that is published while one replaces the other."""
    client.insert("one", "flood", HERE, session="one")
    over = threading.Event()

    def replace() -> None:
        number = 0
        while not over.is_set():
            number += 1
            words = "flood" if number % 2 else f"flood OR word{number}"
            client.insert("one", words, HERE, session="one", replace=True)

    thread = threading.Thread(target=replace)
    thread.start()
    names = [f"o{i}" for i in range(600)]
    try:
        for start in range(0, len(names), 3):
            post = {"lon": 8.5, "lat": 47.4, "text": "a flood"}
            client.publish([post | {"id": name} for name in names[start : start + 3]])
    finally:
        over.set()
        thread.join()
    client.publish([{"lon": 8.5, "lat": 47.4, "text": "flood", "id": "end"}])
    found: list[str] = []
    with client.subscribe("one") as matches:
        for match in matches:
            assert match.query_id == "one"
            found.append(match.object_id)
            if len(found) == len(names) + 1:
                break
    assert sorted(found) == sorted([*names, "end"])
    client.delete("one")


def test_only_the_query_with_the_wanted_lsn_is_replaced(client: Client) -> None:
    def replace(expression: str, if_lsn: int, session: str = "wanted") -> int:
        return int(
            client.insert("wanted", expression, session=session, replace=True, if_lsn=if_lsn)
        )

    first = int(client.insert("wanted", "flood", session="wanted"))
    read = client.get("wanted")
    assert read.lsn == first
    second = replace("fire", first)
    assert second > first
    # What was read is not live any longer; an equal query changes nothing.
    with pytest.raises(FailedPrecondition, match="'wanted' has another LSN than if_lsn"):
        replace("storm", first)
    assert replace("fire", first) == second
    with pytest.raises(AlreadyExists, match="exists in another session"):
        replace("storm", second, "other")
    client.delete("wanted")
    with pytest.raises(FailedPrecondition, match="nothing was replaced"):
        replace("fire", second)
    assert list(client.list("wanted")) == []


def test_a_repeat_of_a_conditional_replacement_gets_the_first_answer(client: Client) -> None:
    first = int(client.insert("again", "flood", session="again"))
    request = requests.insert_request("again", "fire", None, "again", True, if_lsn=first)
    kind = pubsub_pb2.InsertQueryResponse
    done = ask(client, "InsertQuery", request, kind).lsn
    assert ask(client, "InsertQuery", request, kind).lsn == done
    client.delete("again")
    assert ask(client, "InsertQuery", request, kind).lsn == done
    assert list(client.list("again")) == []


@pytest.mark.parametrize(
    ("replace", "if_lsn", "problem"),
    [
        (False, 7, "if_lsn: is set without replace"),
        (True, 2**63 - 1, r"if_lsn: expected an LSN below 2\^63 - 1"),
        (True, -1, "if_lsn: "),
        (True, "7", "if_lsn: "),
    ],
)
def test_a_bad_condition_is_refused(
    client: Client, replace: bool, if_lsn: Any, problem: str
) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        client.insert("x", "word", replace=replace, if_lsn=if_lsn)


@pytest.mark.parametrize("value", ["yes", None, 1.5])
def test_replace_is_true_or_false(client: Client, value: Any) -> None:
    with pytest.raises(InvalidArgument, match="replace: cannot be"):
        client.insert("x", "word", replace=value)
    with pytest.raises(InvalidArgument, match="replace: cannot be"):
        client.insert_many([("x", "word")], replace=value)


def test_the_asynchronous_client_replaces_too(client: Client) -> None:
    async def go() -> list[int]:
        async with AsyncClient(client.target) as other:
            first = await other.insert("async", "word", session="async")
            second = await other.insert("async", "other", session="async", replace=True)
            rows = [("async", "third")]
            return [first, second, *await other.insert_many(rows, session="async", replace=True)]

    lsns = asyncio.run(go())
    assert lsns == sorted({*lsns})
    assert client.get("async").expression == "third"
    client.delete("async")


def test_the_command_replaces_one_query_and_those_of_a_file(client: Client, tmp_path: Path) -> None:
    def run(*args: str) -> Any:
        words = ["insert", *args, "--server", client.target, "--json"]
        found = CliRunner().invoke(main, words)
        return found.exit_code, json.loads(found.output) if found.exit_code == 0 else found.output

    assert run("typed", "flood")[0] == 0
    code, said = run("typed", "fire")
    assert code != 0
    assert "exists with another expression" in said
    code, body = run("typed", "fire", "--replace")
    assert (code, body["expression"]) == (0, "fire")
    file = tmp_path / "queries.jsonl"
    lines = [{"id": "typed", "expression": word} for word in ("storm", "ice", "rain")]
    file.write_text("\n".join(map(json.dumps, lines)))
    assert run("--file", str(file), "--replace") == (0, {"inserted": 3, "refused": []})
    assert client.get("typed").expression == "rain"
    client.delete("typed")


def test_the_requests_of_a_replacement_have_names() -> None:
    """So that a repeat is known as one."""
    [request] = requests.insert_batches([("a", "b")], "s", True)
    one = requests.insert_request("a", "b", None, "s", True)
    assert request.replace
    assert one.replace
    assert len({request.request_id, one.request_id, ""}) == 3
    assert not next(iter(requests.insert_batches([("a", "b")], "s"))).replace

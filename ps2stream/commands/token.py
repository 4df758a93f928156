"""`ps2stream token`: create, list and revoke tokens of a running service or of a data
directory."""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import click

from ps2stream.commands.output import CommandOutput, json_option, pass_output, server_option
from ps2stream.errors import NotFound, invalid
from ps2stream.security import TENANT, AccessScope

if TYPE_CHECKING:
    from ps2stream.client.answers import TokenInfo
    from ps2stream.protocol.tokens import Token
    from ps2stream.store.places import TokenKeeper

F = TypeVar("F", bound=Callable[..., Any])
_SPAN = re.compile(r"([1-9]\d{0,5})([mhd])")
_UNIT_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}


class TokenAdministration(Protocol):
    """The administration of tokens: a client of the service, or `_StoredTokens`."""

    def create_token(
        self, tenant: str, scopes: tuple[str, ...], expires_ms: int
    ) -> tuple[TokenInfo, str]: ...
    def tokens(self) -> list[TokenInfo]: ...
    def revoke_token(self, id: str) -> None: ...


@click.group()
def token() -> None:
    """Create, list and revoke the tokens that clients present to a service.

    The commands ask the service at --server, with a token of scope admin. With --data-dir or
    --database-url they change the stored tokens of a service that is not running; the very first
    token is created in this way. `keep` adds a token that was made elsewhere.
    """


def _place_options(command: F) -> F:
    for option in (
        click.option(
            "--database-schema", metavar="NAME", default="ps2stream", show_default=True,
            help="Schema of the database.",
        ),
        click.option(
            "--database-url", metavar="URL",
            help="PostgreSQL database of a service that is not running, instead of --server; the "
            "password is better left to PGPASSWORD or ~/.pgpass.",
        ),
        click.option(
            "--data-dir", type=click.Path(path_type=Path, file_okay=False), metavar="PATH",
            help="Data directory of a service that is not running, instead of --server.",
        ),
    ):  # fmt: skip
        command = option(command)
    return server_option(command)


def _parse_expiry(ctx: click.Context, param: click.Parameter, value: str | None) -> int:
    """Parses a time into Unix milliseconds; 0 without a value. An option's callback."""
    if value is None:
        return 0
    now = time.time_ns() // 1_000_000
    if (span := _SPAN.fullmatch(value)) is not None:
        return now + int(span[1]) * _UNIT_MS[span[2]]
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"expected 90d, 12h, 30m or a date, got {value!r}") from None
    found = round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)
    if found <= now:
        raise click.BadParameter(f"{value} is in the past")
    return found


def _check_tenant(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if value and not TENANT.fullmatch(value):
        raise click.BadParameter(
            f"expected 1 to 64 letters, digits, '.', '_' and '-', got {value!r}"
        )
    return value


def _parse_scopes(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in value.split(",")))
    if unknown := set(found) - set(AccessScope):
        raise click.BadParameter(f"expected {', '.join(AccessScope)}, got {min(unknown)!r}")
    return found


@token.command()
@click.option("--tenant", default="", callback=_check_tenant, metavar="NAME",
              help="Tenant whose queries and sessions the token gives access to.  "
              "[default: the unnamed tenant]")  # fmt: skip
@click.option("--scope", "scopes", default="publish,subscribe", callback=_parse_scopes,
              show_default=True, metavar="LIST",
              help="Comma-separated scopes of publish, subscribe, withdraw and admin.")  # fmt: skip
@click.option("--expires", callback=_parse_expiry, metavar="TIME",
              help="Time of expiry: 90d, 12h or 30m from now, or a date (UTC).  "
              "[default: never]")  # fmt: skip
@_place_options
@json_option
@pass_output
def create(
    output: CommandOutput, /, tenant: str, scopes: tuple[str, ...], expires: int, **where: Any
) -> None:  # fmt: skip
    """Create a token and print it. It is shown only this once; only a hash of it is kept."""
    with _open_holder(output, **where) as holder:
        made, secret = holder.create_token(tenant, scopes, expires)
    output.emit({**_token_to_json(made), "token": secret}, secret)


@token.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--tenant", default="", callback=_check_tenant, metavar="NAME",
              help="Tenant whose queries and sessions the token gives access to.  "
              "[default: the unnamed tenant]")  # fmt: skip
@click.option("--scope", "scopes", required=True, callback=_parse_scopes, metavar="LIST",
              help="Comma-separated scopes of publish, subscribe, withdraw and admin.")  # fmt: skip
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE",
              envvar="PS2STREAM_CONFIG", show_envvar=True,
              help="TOML file of the service's settings.")  # fmt: skip
@json_option
@pass_output
def keep(
    output: CommandOutput, /, file: Path, tenant: str, scopes: tuple[str, ...], config: Path | None
) -> None:
    """Add a token that was made elsewhere; the service accepts it from its next start on.

    FILE contains the token: `ps2s_`, 16 hexadecimal digits, `_` and 64 more, all drawn at
    random. The command never prints it. A token with the same first digits is replaced; repeating
    the command is harmless. The settings of `serve`, in --config or the environment
    (PS2STREAM_DATABASE_URL), define where the token is stored.
    """
    from ps2stream.cluster.running_service import place_of
    from ps2stream.config import load
    from ps2stream.protocol import tokens

    try:
        text = file.read_text("utf-8").strip()
        given = tokens.made_elsewhere(
            text, tenant, frozenset(map(AccessScope, scopes)), time.time_ns() // 1_000_000
        )
    except OSError as error:
        raise invalid("FILE", f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise invalid("FILE", f"{file}: {error}") from None
    with place_of(load(config=config)).open_tokens() as store:
        held = [each for each in store.tokens() if each.id != given.id]
        store.keep_tokens([*held, given])
    output.emit(_token_to_json(_token_info(given)), f"kept {given.id}")


@token.command("list")
@_place_options
@json_option
@pass_output
def list_tokens(output: CommandOutput, /, **where: Any) -> None:
    """List all tokens, oldest first: id, tenant, scopes, expiry."""
    with _open_holder(output, **where) as holder:
        found = holder.tokens()
    for each in found:
        until = _format_date(each.expires_ms) if each.expires_ms else "never"
        output.emit(
            _token_to_json(each),
            f"{each.id}  {each.tenant or '-'}  {','.join(each.scopes)}  expires {until}",
        )


@token.command()
@click.argument("id")
@_place_options
@json_option
@pass_output
def revoke(output: CommandOutput, /, id: str, **where: Any) -> None:
    """Revoke the token ID. Streams that it opened end within seconds."""
    with _open_holder(output, **where) as holder:
        holder.revoke_token(id)
    output.emit({"revoked": id}, f"revoked {id}")


class _StoredTokens:
    """The tokens of a service that is not running."""

    def __init__(self, store: TokenKeeper) -> None:
        self._store = store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.__exit__()

    def create_token(
        self, tenant: str, scopes: tuple[str, ...], expires_ms: int
    ) -> tuple[TokenInfo, str]:
        from ps2stream.protocol import tokens

        random = os.urandom(tokens.ID_BYTES + tokens.SECRET_BYTES)
        now = time.time_ns() // 1_000_000
        made = tokens.make(random, tenant, frozenset(map(AccessScope, scopes)), now, expires_ms)
        self._store.keep_tokens([*self._store.tokens(), made.token])
        return _token_info(made.token), made.text

    def tokens(self) -> list[TokenInfo]:
        return [_token_info(each) for each in self._store.tokens()]

    def revoke_token(self, id: str) -> None:
        from ps2stream.protocol import tokens

        status, left = tokens.changed(self._store.tokens(), (), id)
        if status:
            raise NotFound(f"there is no token {id!r}")
        self._store.keep_tokens(left)


def _open_holder(
    output: CommandOutput,
    server: str,
    data_dir: Path | None,
    database_url: str | None,
    database_schema: str,
) -> AbstractContextManager[TokenAdministration]:
    if data_dir is None and database_url is None:
        return output.connect(server)
    from ps2stream.store.places import place

    return _StoredTokens(place(data_dir or Path(), database_url, database_schema).open_tokens())


def _token_info(each: Token) -> TokenInfo:
    from ps2stream.client.answers import TokenInfo

    scopes = tuple(scope.value for scope in AccessScope if scope in each.scopes)
    return TokenInfo(each.id, each.tenant, scopes, each.created_ms, each.expires_ms)


def _token_to_json(each: TokenInfo) -> dict[str, Any]:
    times = {
        name: _format_date(ms) if ms else None
        for name, ms in (("created", each.created_ms), ("expires", each.expires_ms))
    }
    found = dataclasses.asdict(each)
    return {name: found[name] for name in ("id", "tenant", "scopes")} | times


def _format_date(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")

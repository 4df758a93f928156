"""Settings: defaults < TOML file < environment (PS2STREAM_*) < flags.

Only this module reads settings from the environment; all others receive values.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from ps2stream.errors import InvalidArgument, Violation, invalid
from ps2stream.foldings import FOLDINGS, read_foldings
from ps2stream.kafka import KAFKA_URL, KafkaAddress
from ps2stream.security import (
    INTAKE_BYTES,
    TENANT_NAME,
    CertificateIdentity,
    PortSecurity,
    QuotaTable,
    TenantQuota,
    is_loopback,
)

PREFIX = "PS2STREAM_"
DATABASE_URL = "DATABASE_URL"
_FOLDING = "|".join(FOLDINGS)
_NOT_SETTINGS = {
    PREFIX + name for name in ("DATA", "CONFIG", "SERVER", "TOKEN", "TOKEN_FILE", "TLS_CA")
}


def default_workers(cores: int | None = None) -> int:
    """Returns max(1, cores - 2): one core is for the dispatcher, one for merger and clients."""
    return max(1, (cores if cores is not None else os.cpu_count() or 1) - 2)


class Settings(BaseModel):
    """All settings of a service, checked and frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(default="127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(
        default=7077,
        ge=0,
        le=65535,
        description="port of the first dispatcher; the others take the next ones; 0 picks free "
        "ports",
    )
    data_dir: Path = Field(
        default=Path("ps2stream-data"), description="directory of the ledger and the logs"
    )
    database_url: SecretStr | None = Field(
        default=None,
        description="PostgreSQL database (postgresql://...) of the ledger and the logs, "
        "instead of data_dir; without either, DATABASE_URL of the environment",
    )
    database_schema: str = Field(
        default="ps2stream",
        pattern=r"^[a-z_][a-z0-9_]{0,62}$",
        description="schema of the database; each service needs its own",
    )
    database_replicated: bool = Field(
        default=False,
        description="whether database_url has each commit on a second host, although "
        "synchronous_standby_names is empty, as with replicated storage of a provider",
    )
    log_url: str | None = Field(
        default=None,
        description="Kafka cluster (kafka://HOST:PORT,.../PREFIX) of the object logs and match "
        "logs, instead of where the ledger is; ?development=true accepts one broker",
        json_schema_extra={"pattern": KAFKA_URL},
    )
    log_config: Path | None = Field(
        default=None,
        description="file of properties of librdkafka (NAME=VALUE) that say how the brokers of "
        "log_url are reached, such as security.protocol",
    )
    log_transactions_replicated: bool = Field(
        default=False,
        description="whether __transaction_state of log_url, which a hosted Kafka may hide, is "
        "taken for replicated as the logs must be, and not checked",
    )
    dispatchers: int = Field(
        default=1, ge=1, le=64, description="number of dispatchers, each with a gRPC port"
    )
    workers: int = Field(
        default_factory=default_workers,
        ge=1,
        le=1024,
        description="number of workers, by default max(1, cores - 2)",
    )
    mergers: int = Field(default=1, ge=1, le=64, description="number of mergers")
    plan: Path | None = Field(
        default=None,
        description="routing plan file, by default the plan last in force or a built-in one",
    )
    stemmer: str | None = Field(
        default=None,
        description="Snowball language of the stemmer, fixed when the data directory is created",
    )
    stop_words: str | None = Field(
        default=None,
        description="language whose stop words are ignored, such as en; fixed like the stemmer",
    )
    fold: str | None = Field(
        default=None,
        description="what is folded besides letter case: accents, arabic-marks and digits, "
        "separated by commas; fixed like the stemmer",
        json_schema_extra={"pattern": rf"^\s*({_FOLDING})?(\s*,\s*({_FOLDING})?)*\s*$"},
    )
    session_quota: int = Field(
        default=16 << 20,
        ge=1 << 16,
        description="bytes of backlog that a session may hold before a gap",
    )
    valid_objects_bytes: int = Field(
        default=64 << 20,
        ge=0,
        description="bytes of objects with an end that a dispatcher keeps for queries with retro",
    )
    retention_bytes: int = Field(
        default=4 << 30,
        ge=1 << 20,
        description="bytes of deliveries that a merger keeps for all its sessions before a gap",
    )
    retention_hours: float = Field(
        default=24.0,
        gt=0,
        le=24 * 366,
        allow_inf_nan=False,
        description="hours that an unacknowledged delivery is kept before a gap",
    )
    archive: Path | None = Field(
        default=None,
        description="directory of the archive, where each dispatcher writes the durable objects to "
        "Parquet files; by default there is none",
    )
    archive_bytes: int = Field(
        default=16 << 30,
        ge=1 << 20,
        description="bytes of files in the archive that a dispatcher keeps until they are "
        "compacted; the oldest are removed",
    )
    archive_hours: float = Field(
        default=24.0 * 30,
        gt=0,
        le=24 * 366 * 100,
        allow_inf_nan=False,
        description="hours that a dispatcher keeps a file of the archive",
    )
    archive_s: float = Field(
        default=60.0,
        ge=0.0,
        le=3600.0,
        allow_inf_nan=False,
        description="seconds after which durable objects are written to the archive; sooner if "
        "they fill a file",
    )
    max_in_flight: int = Field(
        default=64,
        ge=1,
        le=65536,
        description="batches in flight in a dispatcher, and as many waiting, before it refuses "
        "more",
    )
    intake_bytes: int = Field(
        default=INTAKE_BYTES,
        ge=16 << 20,
        description="bytes of publications not yet routed and synced that a dispatcher holds, "
        "shared fairly between connections, before it refuses more",
    )
    sample_objects: int = Field(
        default=50_000,
        ge=0,
        le=1_000_000,
        description="recent objects that a dispatcher keeps for planning and for splitting hot "
        "cells; 0: none",
    )
    lease_s: float = Field(
        default=6.0,
        ge=1.0,
        le=300.0,
        allow_inf_nan=False,
        description="seconds without an answer after which an actor is replaced",
    )
    standbys: int = Field(
        default=0,
        ge=0,
        le=64,
        description="processes per host that wait to take over from actors that die, of some 200 "
        "MB each",
    )
    spread_s: float = Field(
        default=30.0,
        ge=0.0,
        le=86400.0,
        allow_inf_nan=False,
        description="seconds after which actors of crowded hosts go to a host that has joined or "
        "returned, one after another; 0: never",
    )
    snapshot_s: float = Field(
        default=60.0,
        ge=0.0,
        le=86400.0,
        allow_inf_nan=False,
        description="minimum seconds between two snapshots of a worker; 0: no snapshots",
    )
    index: Literal["gi2-flat", "gi2-radix"] = Field(
        default="gi2-radix",
        description="index of a worker; gi2-radix: the faster and smaller one, a tree of cells "
        "for each keyword; gi2-flat: the paper's layout, keywords for each cell",
    )
    load_period_s: float = Field(
        default=10.0,
        ge=0.5,
        le=3600.0,
        allow_inf_nan=False,
        description="seconds over which the workers' loads are counted",
    )
    adjust: Literal["off", "local"] = Field(
        default="off",
        description="automatic adjustment of loads; local: with several workers, parts migrate "
        "when the balance exceeds sigma",
    )
    shed: Literal["off", "consensus", "subscription"] = Field(
        default="off",
        description="whether objects of the levels ACCEPTED and NONE go to fewer workers while "
        "more come than can be matched: those with most of their terms (consensus), or with most "
        "queries under them (subscription); every session is told",
    )
    hot: Literal["off", "replicate"] = Field(
        default="off",
        description="what becomes of places and words that a good part of the stream meets; "
        "replicate: with several workers, they are spread over them within seconds",
    )
    sigma: float = Field(
        default=1.3,
        gt=1.0,
        le=1000.0,
        allow_inf_nan=False,
        description="balance (largest load of a worker over smallest) above which loads are "
        "adjusted",
    )
    sunset_share: float = Field(
        default=0.05,
        ge=0.0,
        le=1.0,
        allow_inf_nan=False,
        description="share of queries that still belong to the old one of two coexisting plans, at "
        "which they migrate to the new one",
    )
    sunset_hours: float = Field(
        default=168.0,
        gt=0.0,
        le=24 * 366,
        allow_inf_nan=False,
        description="hours that two plans may coexist before the remaining queries migrate to the "
        "new one",
    )
    replan_s: float = Field(
        default=0.0,
        ge=0.0,
        le=366 * 86400.0,
        allow_inf_nan=False,
        description="seconds between two checks whether another plan would do better; 0: no checks",
    )
    replan_engine: Literal["spark", "numpy"] = Field(
        default="spark",
        description="engine that plans in these checks; numpy runs in one process, without Java",
    )
    replan_migrate: bool = Field(
        default=False,
        description="whether these checks migrate to a better plan step by step, for the fewest "
        "bytes; else it coexists with the present one",
    )
    costs: Path | None = Field(
        default=None,
        description="file of c1 to c4, as `ps2stream calibrate` writes it; by default those "
        "built in",
    )
    runtime: Literal["ray", "local"] = Field(
        default="ray",
        description="runtime of the actors: Ray, or everything in one process (local)",
    )
    ray_address: str | None = Field(
        default=None,
        pattern=r"^(auto|.+:\d{1,5})$",
        description="HOST:PORT of a running Ray cluster over whose hosts the actors are spread, or "
        "auto for the one that this host belongs to; by default a Ray of this host alone",
    )
    node_ip: str | None = Field(
        default=None,
        min_length=1,
        description="address of this host within the Ray cluster; by default Ray finds it",
    )
    niceness: int = Field(
        default=0,
        ge=0,
        le=19,
        description="niceness of the actors' processes, added to that of the process that starts "
        "Ray; "
        "19 gives way to every other program",
    )
    nodes_s: float = Field(
        default=60.0,
        ge=0.0,
        le=86400.0,
        allow_inf_nan=False,
        description="seconds to wait for hosts with room for all actors",
    )
    link_ports: str | None = Field(
        default=None,
        pattern=r"^\d{1,5}-\d{1,5}$",
        description="range LOW-HIGH of ports where actors listen to other hosts; by default any "
        "free port",
    )
    dispatcher_ports: Literal["consecutive", "same"] = Field(
        default="consecutive",
        description="ports of the dispatchers; consecutive: port + i for dispatcher i; same: "
        "port for each, "
        "with one dispatcher per host",
    )

    trace_every: int = Field(
        default=0,
        ge=0,
        le=1 << 30,
        description="number of object batches of which one is traced (OpenTelemetry); 0: no traces",
    )
    trace_endpoint: str = Field(
        default="http://127.0.0.1:4318",
        description="collector of the traces, OTLP over HTTP",
    )
    log_format: Literal["text", "json"] = Field(
        default="text",
        description="format of the log: lines for people (text), or one JSON object per line "
        "(json)",
    )
    metrics_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="port that serves metrics to Prometheus; 0: no separate port",
    )
    dashboard_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="port of Ray's dashboard on the loopback address; 0 does not start it",
    )
    metrics_s: float = Field(
        default=5.0,
        ge=0.0,
        le=3600.0,
        allow_inf_nan=False,
        description="seconds between two reports of an actor's metrics to Ray; 0: no reports",
    )

    tls_cert: Path | None = Field(
        default=None, description="certificate chain in PEM; with it the ports accept TLS only"
    )
    tls_key: Path | None = Field(default=None, description="private key of the certificate in PEM")
    tls_client_ca: Path | None = Field(
        default=None,
        description="CA certificate in PEM; with it clients must present a certificate of this CA",
    )
    auth: bool | None = Field(
        default=None,
        description="whether every call needs a token or a client certificate; by default "
        "only off loopback",
    )
    identities: Mapping[str, CertificateIdentity] = Field(
        default={}, description="tenant and scopes of each client certificate, by SPIFFE id or CN"
    )

    quotas: Mapping[Annotated[str, StringConstraints(pattern=TENANT_NAME)], TenantQuota] = Field(
        default={},
        description="limits of each tenant; the table `default` is for tenants without one",
    )

    @field_validator("database_url")
    @classmethod
    def _check_database_url(cls, value: SecretStr | None) -> SecretStr | None:
        found = value and urlsplit(value.get_secret_value()).scheme
        if found not in (None, "postgresql", "postgres"):
            raise ValueError("is not of the form postgresql://user@host:port/database")
        return value

    @field_validator("log_url")
    @classmethod
    def _check_log_url(cls, value: str | None) -> str | None:
        if value is not None:
            KafkaAddress.parse(value)
        return value

    @field_validator("trace_endpoint")
    @classmethod
    def _check_trace_endpoint(cls, value: str) -> str:
        found = urlsplit(value)
        if found.scheme not in ("http", "https") or not found.hostname:
            raise ValueError("is not of the form http://HOST:PORT")
        if found.scheme == "http" and not _is_local_host(found.hostname):
            raise ValueError("is not on this machine, so it must use https")
        return value.rstrip("/")

    @property
    def link_range(self) -> range:
        """The ports of `link_ports`; empty where it is not set."""
        if self.link_ports is None:
            return range(0)
        low, high = map(int, self.link_ports.split("-"))
        return range(low, high + 1) if low > 0 and high < 1 << 16 else range(0)

    @property
    def security(self) -> PortSecurity:
        """The guard of the ports: the settings of TLS, identities and quotas."""
        return PortSecurity(
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            tls_client_ca=self.tls_client_ca,
            auth=not is_loopback(self.host) if self.auth is None else self.auth,
            identities=self.identities,
            quotas=QuotaTable(by_tenant=self.quotas),
            intake_bytes=self.intake_bytes,
            dispatchers=self.dispatchers,
        )

    @field_validator("fold")
    @classmethod
    def _check_fold(cls, value: str | None) -> str | None:
        if value is not None:
            read_foldings(value)
        return value

    @model_validator(mode="after")
    def _check_archive(self) -> Self:
        if self.archive is not None and self.archive.absolute() == self.data_dir.absolute():
            raise ValueError("archive: must be another directory than data_dir")
        if self.archive is not None and self.archive.exists() and not self.archive.is_dir():
            raise ValueError(f"archive: {self.archive} is no directory")
        return self

    @model_validator(mode="after")
    def _check_guards(self) -> Self:
        if self.trace_every and self.runtime != "ray":
            raise ValueError("trace_every: only the runtime ray records traces")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert: must be set together with tls_key")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("tls_client_ca: needs tls_cert and tls_key")
        if self.identities and self.tls_client_ca is None:
            raise ValueError(
                "identities: needs tls_client_ca, because without it clients present no "
                "certificates"
            )
        try:
            loopback = is_loopback(self.host)
        except ValueError:
            raise ValueError(f"host: {self.host!r} is not an IP address or localhost") from None
        if loopback:
            return self
        if self.tls_cert is None:
            raise ValueError(
                f"host: {self.host} is not a loopback address, which needs TLS; "
                "set tls_cert and tls_key"
            )
        if self.auth is False:
            raise ValueError(
                f"auth: cannot be off, because host {self.host} is not a loopback address"
            )
        return self

    @model_validator(mode="after")
    def _check_logs(self) -> Self:
        if self.database_replicated and self.database_url is None:
            raise ValueError("database_replicated: needs database_url")
        if self.log_url is None:
            if self.log_config is not None:
                raise ValueError("log_config: needs log_url")
            if self.log_transactions_replicated:
                raise ValueError("log_transactions_replicated: needs log_url")
            return self
        far = [h for h in KafkaAddress.parse(self.log_url).hosts if not _is_local_host(h)]
        if far and self.log_config is None:
            raise ValueError(
                f"log_config: must be set, because the broker {far[0]} is on another machine; the "
                "file says how it is reached: security.protocol=SASL_SSL and what that needs, or "
                "PLAINTEXT within a network that you trust"
            )
        return self

    @model_validator(mode="after")
    def _check_ports(self) -> Self:
        if self.dispatcher_ports == "same":
            if not self.port:
                raise ValueError('dispatcher_ports: "same" needs a fixed port, not 0')
            if self.ray_address is None and self.dispatchers > 1:
                raise ValueError('dispatcher_ports: "same" allows one dispatcher per host')
        elif self.port and self.port + self.dispatchers - 1 > 65535:
            raise ValueError(
                f"port: {self.port} is too high for {self.dispatchers} dispatchers, because the "
                "last of them would need a port above 65535"
            )
        if self.link_ports is not None and not self.link_range:
            raise ValueError(
                f"link_ports: must be LOW-HIGH within 1 to 65535, got {self.link_ports}"
            )
        return self

    @model_validator(mode="after")
    def _check_hosts(self) -> Self:
        if self.ray_address is None:
            return self
        if self.runtime != "ray":
            raise ValueError("ray_address: needs the runtime ray")
        if self.database_url is None:
            raise ValueError(
                "ray_address: needs database_url (PostgreSQL), because a data directory serves "
                "one host only"
            )
        if self.replan_s:
            raise ValueError(
                "replan_s: works on one host only; with ray_address run `ps2stream replan` from "
                "a timer"
            )
        return self


def _is_local_host(host: str) -> bool:
    try:
        return is_loopback(host)
    except ValueError:
        return False


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Returns the settings in force. A flag that is None was not set.

    config: a TOML file of top-level keys. environ: os.environ when None; PS2STREAM_PORT=7100
    sets `port`. DATABASE_URL counts where neither `data_dir` nor `database_url` is set. Raises
    InvalidArgument, which names each unknown or bad key and its source.
    """
    environ = os.environ if environ is None else environ
    if config is None and environ.get("PS2STREAM_CONFIG"):
        config = Path(environ["PS2STREAM_CONFIG"])
    values: dict[str, Any] = {}
    source: dict[str, str] = {}
    layers: list[tuple[str, Mapping[str, Any]]] = []
    if config is not None:
        layers.append((str(config), _read_toml(config)))
    layers.append(("environment", _read_environment(environ)))
    layers.append(("flag", {k: v for k, v in (flags or {}).items() if v is not None}))
    for name, layer in layers:
        values.update(layer)
        source.update(dict.fromkeys(layer, name))
    if not values.keys() & {"data_dir", "database_url"} and environ.get(DATABASE_URL):
        values["database_url"] = environ[DATABASE_URL]
        source["database_url"] = DATABASE_URL
    try:
        return Settings(**values)
    except ValidationError as error:
        raise InvalidArgument([_make_violation(e, source) for e in error.errors()]) from None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise invalid("config", f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise invalid("config", f"{path} is not TOML: {error}") from None


def _read_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        key.removeprefix(PREFIX).lower(): value
        for key, value in environ.items()
        if key.startswith(PREFIX) and key not in _NOT_SETTINGS
    }


_PROBLEMS = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be below {lt}",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "literal_error": "must be {expected}",
}
"""Descriptions by pydantic's type of error, in place of its own."""


def _make_violation(error: Any, source: Mapping[str, str]) -> Violation:
    key = ".".join(str(part) for part in error["loc"])
    if not error["loc"]:  # several settings together
        field, _, problem = error["msg"].removeprefix("Value error, ").partition(": ")
        return Violation(field, problem)
    where = source.get(str(error["loc"][0]), "defaults")
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        if len(error["loc"]) > 1:
            return Violation(key, f"unknown key (from {where})")
        near = difflib.get_close_matches(key, Settings.model_fields, 1)
        hint = f"did you mean {near[0]}?" if near else "docs/configuration.md lists all settings"
        return Violation(key, f"unknown setting (from {where}); {hint}")
    if key in ("database_url", "log_url", "trace_endpoint"):  # they may hold a password
        return Violation(key, f"{error['msg'].removeprefix('Value error, ')} (from {where})")
    ours = _PROBLEMS.get(error["type"])
    if ours is None:
        problem = error["msg"].removeprefix("Value error, ")
    else:
        problem = ours.format(**error.get("ctx", {}))
    return Violation(key, f"{problem}, got {error['input']!r} (from {where})")

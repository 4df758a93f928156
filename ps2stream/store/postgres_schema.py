"""The tables in PostgreSQL. Each row carries a CRC-32, like those of the embedded ledger."""

from __future__ import annotations

FORMAT = 1

FENCED = "PS001"
"""The SQLSTATE of a write by a former owner."""

# Blobs and records are not compressed: they are small, or hashes and coordinates.
DDL = f"""
CREATE TABLE meta (key text PRIMARY KEY, value text NOT NULL, crc32 bigint NOT NULL);
CREATE TABLE owners (name text PRIMARY KEY, epoch bigint NOT NULL, first bigint NOT NULL);
CREATE TABLE sessions (number bigint PRIMARY KEY, name bytea NOT NULL, crc32 bigint NOT NULL);
CREATE TABLE requests (lsn_to bigint PRIMARY KEY, crc32 bigint NOT NULL, blob bytea NOT NULL);
CREATE TABLE answers (
    dispatcher bigint, epoch bigint, seq bigint, settled bigint NOT NULL, crc32 bigint NOT NULL,
    blob bytea NOT NULL, PRIMARY KEY (dispatcher, epoch, seq)
);
CREATE TABLE epochs (
    role text, number bigint, epoch bigint NOT NULL, crc32 bigint NOT NULL,
    PRIMARY KEY (role, number)
);
CREATE TABLE log (
    lsn_from bigint PRIMARY KEY, lsn_to bigint NOT NULL, crc32 bigint NOT NULL,
    blob bytea NOT NULL
);
CREATE TABLE documents (name text PRIMARY KEY, crc32 bigint NOT NULL, blob bytea NOT NULL);
CREATE TABLE records (
    log text, position bigint, crc32 bigint NOT NULL, record bytea NOT NULL,
    PRIMARY KEY (log, position)
);
ALTER TABLE log ALTER blob SET STORAGE EXTERNAL;
ALTER TABLE records ALTER record SET STORAGE EXTERNAL;
CREATE FUNCTION owned(text, bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM owners WHERE name = $1 AND epoch = $2 FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another process has taken it over' USING ERRCODE = '{FENCED}';
    END IF;
END $$;
INSERT INTO meta VALUES ('format', '{FORMAT}', $CRC);
"""

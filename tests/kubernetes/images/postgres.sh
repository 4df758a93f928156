set -eu
if [ ! -e "$PGDATA/PG_VERSION" ]; then
    printf '%s' "$POSTGRES_PASSWORD" >/tmp/password
    initdb --username="$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 \
        --auth-local=trust --encoding=UTF8
    rm /tmp/password
    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
    postgres --single -D "$PGDATA" postgres <<SQL
CREATE DATABASE "$POSTGRES_USER";
SQL
fi
exec postgres -D "$PGDATA" -c listen_addresses='*' -c unix_socket_directories=/var/run/postgresql

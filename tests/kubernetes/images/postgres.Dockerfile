# Debian's PostgreSQL, started as the official image is: by its variables, as user 999.
ARG BASE
FROM ${BASE}
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends postgresql-15 \
 && ln -s /usr/lib/postgresql/15/bin/* /usr/local/bin/ \
 && groupadd --gid 999 server && useradd --uid 999 --gid 999 --home-dir /tmp server
COPY postgres.sh /usr/local/bin/
ENTRYPOINT ["sh", "/usr/local/bin/postgres.sh"]

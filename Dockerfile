# The images of docs/cluster.md.
#   docker build --target ps2stream --tag registry.example.org/ps2stream:0.1.0 .
#   docker build --target ps2stream-spark --tag registry.example.org/ps2stream-spark:0.1.0 .
# ps2stream has service, connectors and command line, ps2stream-spark Spark and Java besides.
# For a build that can be repeated, name the base by digest: --build-arg PYTHON=...@sha256:...
ARG PYTHON=docker.io/library/python:3.11.14-slim-bookworm

FROM ${PYTHON} AS packages
WORKDIR /src
# Each package as requirements.txt pins it, what builds the wheel too.
ENV PIP_CONSTRAINT=/src/requirements.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY pyproject.toml requirements.txt scripts/extra_requirements.py ./
# Nobody here writes a server of Flight, calls Ray from Java, runs RLlib, or tests the packages.
RUN python extra_requirements.py server postgres otel kafka mqtt webhook feeds >wanted.txt \
 && python -m venv --without-pip /opt/venv \
 && python -m pip --python /opt/venv/bin/python install --quiet --no-compile \
        --requirement wanted.txt \
 && held=/opt/venv/lib/python3.11/site-packages \
 && rm -rf "$held"/pyarrow/include "$held"/pyarrow/*flight* "$held"/ray/jars "$held"/ray/rllib \
 && find "$held"/numba "$held"/numpy "$held"/pyarrow "$held"/shapely "$held"/zmq \
        -type d -name tests -prune -exec rm -rf {} + \
 && python -m compileall -q -x '/ray/(dag|data|llm|serve|train|tune)/' "$held"

FROM packages AS spark-packages
RUN python extra_requirements.py planner >wanted.txt \
 && python -m pip --python /opt/venv/bin/python install --quiet --requirement wanted.txt

FROM packages AS build
COPY . .
RUN python -m pip --python /opt/venv/bin/python install --quiet --no-deps --target /opt/ps2stream . \
 && install -m 755 ps2stream/__main__.py /opt/ps2stream/main.py

FROM ${PYTHON} AS base
# tini takes up the processes that others leave behind.
# hadolint ignore=DL3008
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends tini \
 && rm -rf /var/lib/apt/lists/* \
 && python -m pip uninstall --quiet --yes --break-system-packages pip setuptools wheel \
 && groupadd --gid 10001 ps2stream \
 && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home \
        --shell /usr/sbin/nologin ps2stream \
 && install -d -o 10001 -g 10001 /var/cache/ps2stream /var/lib/ps2stream
# The file system may be read-only but for /tmp, /dev/shm and the kernels' folder. Numba's code is
# for the CPU that it was compiled on, so none is here: `python -m ps2stream.cluster.warm`.
ENV PATH=/opt/ps2stream/bin:/opt/venv/bin:$PATH PYTHONPATH=/opt/ps2stream HOME=/tmp \
    NUMBA_CACHE_DIR=/var/cache/ps2stream PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="PS2Stream" \
      org.opencontainers.image.description="Distributed publish/subscribe over streams of geo-tagged text" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
WORKDIR /tmp
EXPOSE 7077
ENTRYPOINT ["tini", "--"]
CMD ["ps2stream", "--help"]

FROM base AS ps2stream-spark
# hadolint ignore=DL3008
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/*
ENV PYSPARK_PYTHON=/opt/venv/bin/python
# What seldom changes is a layer of its own. A login shell, which KubeRay may use, knows
# /usr/local/bin alone.
COPY --from=spark-packages /opt/venv /opt/venv
COPY --from=build /opt/ps2stream /opt/ps2stream
RUN ln -s /opt/venv/bin/ray /opt/venv/bin/spark-submit /opt/ps2stream/bin/ps2stream /usr/local/bin/
USER 10001:10001

FROM base AS ps2stream
COPY --from=packages /opt/venv /opt/venv
COPY --from=build /opt/ps2stream /opt/ps2stream
RUN ln -s /opt/venv/bin/ray /opt/ps2stream/bin/ps2stream /usr/local/bin/
USER 10001:10001

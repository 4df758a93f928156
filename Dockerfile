# The image of docs/cluster.md: service, planner, connectors and command line.
#   docker build --tag registry.example.org/ps2stream:0.1.0 .
# For a build that can be repeated, name the base by digest: --build-arg PYTHON=...@sha256:...
ARG PYTHON=docker.io/library/python:3.11.14-slim-bookworm

FROM ${PYTHON} AS packages
WORKDIR /src
# Each package as requirements.txt pins it, what builds the wheel too.
ENV PIP_CONSTRAINT=/src/requirements.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY pyproject.toml requirements.txt ./
RUN python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
        extras = project['optional-dependencies']; \
        used = [extras[name] for name in ('postgres', 'otel', 'kafka', 'mqtt')]; \
        print(*project['dependencies'], *sum(used, []), sep='\n')" \
        >wanted.txt \
 && python -m venv --without-pip /opt/venv \
 && python -m pip --python /opt/venv/bin/python install --quiet --requirement wanted.txt

FROM packages AS build
COPY . .
RUN python -m pip --python /opt/venv/bin/python install --quiet --no-deps --target /opt/ps2stream . \
 && install -m 755 ps2stream/__main__.py /opt/ps2stream/main.py

FROM ${PYTHON}
# Java is for Spark; tini takes up the processes that others leave behind.
# hadolint ignore=DL3008
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless tini \
 && rm -rf /var/lib/apt/lists/* \
 && python -m pip uninstall --quiet --yes --break-system-packages pip setuptools wheel \
 && groupadd --gid 10001 ps2stream \
 && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home \
        --shell /usr/sbin/nologin ps2stream \
 && install -d -o 10001 -g 10001 /var/cache/ps2stream
# What seldom changes is a layer of its own.
COPY --from=packages /opt/venv /opt/venv
COPY --from=build /opt/ps2stream /opt/ps2stream
# A login shell, which KubeRay may use, knows /usr/local/bin alone.
RUN ln -s /opt/venv/bin/ray /opt/venv/bin/spark-submit /opt/ps2stream/bin/ps2stream /usr/local/bin/

# The file system may be read-only but for /tmp, /dev/shm and the kernels' folder. Numba's code is
# for the CPU that it was compiled on, so none is here: `python -m ps2stream.cluster.warm`.
ENV PATH=/opt/ps2stream/bin:/opt/venv/bin:$PATH PYTHONPATH=/opt/ps2stream HOME=/tmp \
    NUMBA_CACHE_DIR=/var/cache/ps2stream PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    PYSPARK_PYTHON=/opt/venv/bin/python
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="PS2Stream" \
      org.opencontainers.image.description="Distributed publish/subscribe over streams of geo-tagged text" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
WORKDIR /tmp
USER 10001:10001
EXPOSE 7077
ENTRYPOINT ["tini", "--"]
CMD ["ps2stream", "--help"]

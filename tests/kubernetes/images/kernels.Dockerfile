# The image with the kernels, compiled for the CPU of this machine (docs/cluster.md, Starting).
ARG BASE
FROM ${BASE}
USER 0
RUN python -m ps2stream.cluster.warm \
 && cp -r /var/cache/ps2stream /opt/kernels \
 && rm -rf /var/cache/ps2stream/* /tmp/*
USER 10001:10001

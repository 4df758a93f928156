# Debian's Python in the place of the official image, which is in a registry.
FROM scratch
ADD base.tar /
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
RUN printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >/etc/pip.conf \
 && ln -s /usr/bin/python3.11 /usr/local/bin/python \
 && ln -s /usr/bin/python3.11 /usr/local/bin/python3

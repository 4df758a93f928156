# One program that needs nothing else.
FROM scratch
ARG PROGRAM
COPY ${PROGRAM} /manager
USER 65532:65532
ENTRYPOINT ["/manager"]

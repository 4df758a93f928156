"""The HTTP interface of the service, beside the map: a client of the public gRPC API."""

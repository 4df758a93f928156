"""The gRPC edge: validation, columns, status codes. Logic lies behind the `Gateway`."""

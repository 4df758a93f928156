"""Metrics, traces, and the files for Prometheus, Grafana and Ray's dashboard that show them."""

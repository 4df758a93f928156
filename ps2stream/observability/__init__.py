"""Metrics, traces, and what shows them: Prometheus, Grafana, Ray's dashboard."""

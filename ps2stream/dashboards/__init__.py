"""Files for Prometheus and Grafana, made from what ps2stream/metrics.py exports."""

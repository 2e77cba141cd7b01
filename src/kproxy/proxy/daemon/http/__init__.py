"""The daemon's listening ports: health, service health, metrics, profiling."""

"""kproxy: a reference Kubernetes service proxy, and a conformance harness for any service proxy."""

__version__ = "0.1.0.dev0"

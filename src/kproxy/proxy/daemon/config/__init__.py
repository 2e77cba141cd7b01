"""Flags and KubeProxyConfiguration: read, merged, validated, written."""

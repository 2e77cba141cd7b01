"""Proxies under test: how they are started, what they claim, where they are known to deviate; the bundled ones as TOML."""

"""Subjects: how proxies under test are started, which features they claim, their known deviations; bundled ones as TOML."""

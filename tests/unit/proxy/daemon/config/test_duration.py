import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.proxy.daemon.config.duration import Duration

# Examples of https://pkg.go.dev/time#ParseDuration and of kube-proxy's documentation.
DOCUMENTED_BY_GO = [
    ("0", 0),
    ("0s", 0),
    ("30s", 30.0),
    ("1h0m0s", 3600.0),
    ("1h15m30.918s", 4530.918),
    ("1.5h", 5400.0),
    ("-1.5h", -5400.0),
    ("+5s", 5.0),
    (".5s", 0.5),
    ("300ms", 0.3),
    ("100us", 0.0001),
    ("100µs", 0.0001),
    ("7ns", 7e-9),
]


@pytest.mark.parametrize(("text", "seconds"), DOCUMENTED_BY_GO)
def test_durations_are_read_as_go_reads_them(text: str, seconds: float) -> None:
    assert Duration.parse(text).seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "30", "s", "1 s", "1d", "1h-5m", "--1s", ".s", "1s ", "\uff11s", "3e1s"]
)
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        Duration.parse(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (30, "30s"),
        (90, "1m30s"),
        (86_400, "24h0m0s"),
        (0.25, "250ms"),
        (1.5, "1.5s"),
        (-90, "-1m30s"),
    ],
)
def test_durations_are_written_as_go_writes_them(seconds: float, text: str) -> None:
    assert str(Duration.of(seconds)) == text


@given(st.integers(-(2**62), 2**62))
def test_what_is_written_is_read_as_the_same(nanoseconds: int) -> None:
    assert Duration.parse(str(Duration(nanoseconds))) == Duration(nanoseconds)

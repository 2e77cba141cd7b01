"""Addresses as text."""

from ipaddress import ip_network

from hypothesis import given
from hypothesis import strategies as st

from kproxy.model.network import Address, format_address, parse_address


@given(st.ip_addresses())
def test_text_of_an_address_is_its_str_and_reads_back(address: Address) -> None:
    assert format_address(address) == str(address)
    parsed = parse_address(format_address(address))
    assert parsed == (getattr(address, "ipv4_mapped", None) or address)


@given(st.ip_addresses(), st.integers(min_value=0, max_value=128))
def test_text_of_a_network_is_its_str(address: Address, length: int) -> None:
    network = ip_network(f"{address}/{min(length, address.max_prefixlen)}", strict=False)
    assert format_address(network) == str(network)

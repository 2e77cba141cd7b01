"""Chain names against the standard library's base32, which is written otherwise."""

import base64
import hashlib

from hypothesis import given
from hypothesis import strategies as st

from kproxy.proxy.backends.iptables import names


@given(st.text(max_size=80))
def test_a_suffix_is_the_first_16_characters_of_base32_of_sha256(text: str) -> None:
    whole = base64.b32encode(hashlib.sha256(text.encode(errors="replace")).digest()).decode()
    assert names.name_hash(text.encode(errors="replace").decode()) == whole[:16]

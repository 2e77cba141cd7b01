"""Text of blocks for ``iptables-restore`` (man 8 iptables-restore: ``*table``, lines, ``COMMIT``)."""

import pytest

from kproxy.proxy.backends.xtables.blocks import Block
from kproxy.proxy.backends.xtables.rules import TableName


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_the_text_of_a_block_is_its_lines_however_many_pieces_it_has(count: int) -> None:
    lines = [f"-A KUBE-X -p tcp -m tcp --dport {number} -j ACCEPT" for number in range(count)]
    block = Block(TableName.NAT, lines)
    assert str(block).splitlines() == ["*nat", *lines, "COMMIT"]
    assert str(block).endswith("COMMIT\n")
    assert (len(list(block.chunks())) > 2) is (count == 5000)

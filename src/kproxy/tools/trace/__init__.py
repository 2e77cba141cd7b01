"""``kproxy trace``: the rules of a node that handle a packet, of any program.

Readers turn the output of tools (``iptables-save``, ``nft -j list ruleset``, ``ipvsadm -Sn``, ``ipset save``) into values
(`rules`), `walk` sends a connection's first packet through them, `show` prints its path.  Pure, but for `live`, which
reads a node and changes nothing there, and `command`.  It knows no proxy and none of our own backends (ADR 13).
"""

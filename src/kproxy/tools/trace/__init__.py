"""``kproxy trace``: which rule of a node handles a packet, whoever wrote the rules.

Readers turn what tools print (``iptables-save``, ``nft -j list ruleset``, ``ipvsadm -Sn``, ``ipset save``) into values
(`rules`), `walk` sends a connection's first packet through them, `show` tells its way.  Pure, but for `live`, which
reads a node and changes nothing there, and `command`.  It knows no proxy and none of our own backends (ADR 13).
"""

"""The relay: serves addresses of this node by sockets of its own, where a mode's rules cannot.

Plan to `RelayPort` values (``table``, pure) to sockets (``relay``, with ``streams`` and ``datagrams``); ``choice`` (pure) decides which
endpoint comes next.  Knows no rules of any kernel subsystem and no backend.
"""

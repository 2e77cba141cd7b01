"""Socket options and constants of Linux that Python 3.11's `socket` does not name.

Pure numbers, from the kernel's ``include/uapi``.
"""

IP_PKTINFO, IP_MTU_DISCOVER, IP_RECVERR = 8, 10, 11
IPV6_FREEBIND = 78
IPV6_MTU_DISCOVER, IPV6_RECVERR = 23, 25
PMTUDISC_DONT = 0
"""Fragment rather than set "don't fragment"."""

TCP_REPAIR, TCP_REPAIR_QUEUE, TCP_QUEUE_SEQ = 19, 20, 21
TCP_REPAIR_ON, TCP_REPAIR_OFF_NO_WP = 1, -1
TCP_RECV_QUEUE, TCP_SEND_QUEUE = 1, 2

SO_ATTACH_FILTER, SO_RCVBUFFORCE, SO_TIMESTAMPNS = 26, 33, 35
SO_RCVMARK = 75
"""Since Linux 5.19."""
SOL_PACKET, PACKET_STATISTICS = 263, 6
ETH_P_ALL = 3

SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6 = 2, 3

SIOCGIFHWADDR = 0x8927
SIOCETHTOOL, ETHTOOL_GLINK = 0x8946, 0x0A

RTF_LOCAL = 0x80000000
"""A flag in ``/proc/net/ipv6_route``."""

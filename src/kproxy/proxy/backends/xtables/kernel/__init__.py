"""The tools of iptables and ip6tables, of either variant; the only effects of this package."""

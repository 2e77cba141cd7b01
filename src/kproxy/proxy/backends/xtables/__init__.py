"""xtables: what iptables mode and ipvs mode have in common, the rules of iptables as values and the driver of its tools."""

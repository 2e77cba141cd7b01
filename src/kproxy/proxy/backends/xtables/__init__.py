"""xtables: common to iptables mode and ipvs mode, iptables rules as values and the driver of the iptables tools."""

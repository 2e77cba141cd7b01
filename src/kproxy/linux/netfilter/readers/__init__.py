"""Output of tools about a node, read into `kproxy.linux.netfilter.rules` and `kproxy.linux.netfilter.node_state`.  Pure: text comes in."""

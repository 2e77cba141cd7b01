"""What tools print about a node, read into `kproxy.trace.rules` and `kproxy.trace.node`.  Pure: text comes in."""

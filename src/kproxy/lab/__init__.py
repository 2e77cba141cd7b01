"""Lab: two nodes, their pods and outside clients in network namespaces; probes; an API server.

`topology` and `wiring` are pure; `lab.open_lab` builds it all and removes it again.
"""

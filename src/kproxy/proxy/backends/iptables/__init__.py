"""iptables mode: chains and rules for each service port, written by ``iptables-restore`` as kube-proxy lays them out."""

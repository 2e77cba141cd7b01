"""Cluster testbed: the catalogue in pods of a real cluster, whose service proxy is not started by the harness.

    cluster_topology --> address_map <--> object_map, limits   the cluster's inventory; its addresses for the lab's, and back
    wire, messages --> agent                                   in each pod: the lab's probes, servers and captures, by HTTP
    connection --> fleet --> testbed                           kubeconfig, the agents behind the API server's proxy, the checks
    sonobuoy                                                   all of it as a plugin of Sonobuoy

Cases, oracle and verdicts know the lab's addresses alone (`kproxy.lab.topology`); only the address map knows both.
"""

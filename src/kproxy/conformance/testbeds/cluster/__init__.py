"""The cluster testbed: the catalogue in pods of a real cluster, whose service proxy somebody else runs.

    facts --> lens <--> outward, lacks      what the cluster has; its addresses for the lab's, and back
    wire, messages --> agent                in each pod: the lab's probes, servers and captures, asked by HTTP
    connection --> fleet --> testbed        kubeconfig, the agents behind the API server's proxy, the questions

Cases, oracle and verdicts know the lab's addresses alone (`kproxy.lab.topology`); only the lens knows both.
"""

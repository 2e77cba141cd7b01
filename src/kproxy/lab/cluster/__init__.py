"""A cluster of real kubelets on one machine: each node is a set of namespaces, and no image is pulled.

Theory of operation.

    programs --> control_plane: etcd, kube-apiserver, controllers, scheduler, in the switch's namespace
             +-> node: containerd and kubelet, one set of namespaces a node
    layout --> wiring: one switch, nodes and two clients outside (`kproxy.lab.network` builds it)
    images --> archives that each node's containerd imports
    cluster: opens all of that in order and closes it; session, client: a cluster that other commands find

A node is a network, a mount, a PID, a UTS and an IPC namespace. Its first process starts containerd and kubelet; when it
dies, whatever the reason, the kernel kills all others of its PID namespace, pods included, and with the last one go the
node's mounts and links. The network namespaces have no names, as all of the lab (`kproxy.lab.namespaces`).

What a kubelet would change on the machine it finds replaced: ``/run``, ``/var/lib``, ``/var/log`` are the node's own, and
over each sysctl that a kubelet writes and that no namespace separates (`kproxy.lab.cluster.node.KERNEL_TUNABLES`) a plain
file is mounted. Two things are the machine's: the folder of the cluster's files, and one group a node in each hierarchy of
control groups. Both are removed at the end; after a SIGKILL of the session they are left, and the next session removes them
(`kproxy.lab.cluster.session`).

The control plane and the nodes do not share files: kubelets have credentials of their own, limited by the Node authorizer and
the NodeRestriction admission plugin, as in a cluster that kubeadm makes.

Control groups of version 1 and 2 are both used as they are found; tried were version 1 and mixed machines only.
"""

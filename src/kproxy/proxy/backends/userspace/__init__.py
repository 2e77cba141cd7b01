"""userspace mode: rules that send packets to the relay's sockets, which choose the endpoint.  See docs/backends/userspace.md."""

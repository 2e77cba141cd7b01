"""Kernels to run the lab on, as a choice: this one, with or without root, User-Mode Linux, a virtual machine.

The whole conformance process runs inside the chosen kernel. `abilities` probes a kernel's abilities by using each;
`host`, `rootless`, `uml` and `vm` are the four ways to have a kernel; `choice` picks; `build` makes one.
"""

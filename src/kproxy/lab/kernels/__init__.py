"""Kernels to run the lab on, as a choice: this one, with or without root, User-Mode Linux, a virtual machine.

The whole conformance process runs inside the chosen kernel.  `abilities` says what a kernel can do,
by doing it; `host`, `rootless`, `uml` and `vm` each know one way to have a kernel; `choice` picks; `build` makes one.
"""

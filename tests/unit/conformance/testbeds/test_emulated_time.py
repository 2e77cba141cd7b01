"""How long changes take is judged on a machine's own kernel, and only shown on an emulated one."""

from __future__ import annotations

from typing import cast

import pytest

from kproxy.conformance.case import CheckLatency
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.testbeds import netns
from kproxy.conformance.testbeds.proxies import Proxies
from kproxy.lab.apiserver import ApiServer
from kproxy.lab.kernels.abilities import KernelName
from kproxy.lab.lab import Lab


@pytest.mark.parametrize(
    ("kernel", "judged"),
    [(KernelName.HOST, True), (KernelName.ROOTLESS, True), (KernelName.UML, False), (KernelName.VM, False)],
)
def test_times_are_judged_where_the_kernel_is_the_machines_own(
    kernel: KernelName, *, judged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netns, "kernel_here", lambda: kernel)
    (timed,) = [case for case in CATALOGUE if any(isinstance(step, CheckLatency) for step in case.steps)]
    bed = netns.NetnsTestbed.__new__(netns.NetnsTestbed)
    bed.lab, bed._objections = cast("Lab", None), {}
    bed.server, bed.proxies = ApiServer.__new__(ApiServer), Proxies.__new__(Proxies)
    bed.proxies.mode = "iptables"
    assert bed.not_runnable_reason(timed) == (None if judged else netns.EMULATED_TIME)

"""Dataplane of iptables mode: the applier with this machine's options, and without counters where they are refused."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kproxy.linux.host import HostError
from kproxy.proxy.backends.iptables.kernel.applier import (
    IptablesKernel,
    machine_options,
    refresh_options,
    without_broken_counters,
)
from kproxy.proxy.backends.xtables.kernel.tools import find_tools

if TYPE_CHECKING:
    from kproxy.model.network import Family
    from kproxy.proxy.backends import Applied
    from kproxy.proxy.plan import Plan

log = logging.getLogger(__name__)


class IptablesDataplane:
    """iptables mode of one family."""

    def __init__(self, family: Family, masquerade_bit: int) -> None:
        """Find the tools; raises `HostError` UNSUPPORTED if there are none."""
        self._tools = find_tools(family)
        self._kernel = IptablesKernel(self._tools)
        self._options = machine_options(self._tools, masquerade_bit)

    def apply(self, plan: Plan) -> Applied:
        """Apply a plan; rules that are refused for their counter are written without it (``met.nfacct-optional``)."""
        try:
            return self._kernel.apply(plan, self._options)
        except HostError:
            known, self._options = self._options, without_broken_counters(self._tools, self._options)
            if self._options == known:
                raise
        log.warning("%s: rules count no packets: the kernel or its tools cannot", plan.family.value)
        return self._kernel.apply(plan, self._options)

    def find_drift(self, *, thorough: bool) -> tuple[str, ...]:
        """Changes by others since the last `apply`."""
        return self._kernel.find_drift(thorough=thorough)

    def notifiers(self) -> tuple[int, ...]:
        """Descriptors of the kernel's notifications."""
        return self._kernel.notifiers()

    def refresh_options(self) -> bool:
        """Read the options that depend on this machine again; True if they changed."""
        known, self._options = self._options, refresh_options(self._options)
        return self._options != known

    def forget(self) -> None:
        """Give up the state applied last."""
        self._kernel.forget()

"""The table of all faults, and the proxies they are injected for."""

from __future__ import annotations

from kproxy.proxy.daemon.cluster.watch import IDLE_TIMEOUT_SECONDS
from tests.faults import wire
from tests.faults.drift import DRIFT
from tests.faults.fault import Fault, Health, Row
from tests.faults.happen import (
    BACK,
    api_server_killed,
    cable_pulled,
    clock_jumps,
    disk_full,
    down_at_start,
    killed,
    lock_held,
    on_the_wire,
    refused,
    slices_withheld,
    version_forgotten,
    write_fails_always,
    write_fails_once,
)
from tests.faults.stage import IPTABLES_LEGACY, IPTABLES_NFT, IPVS, NFTABLES

ALL = (IPTABLES_NFT, IPTABLES_LEGACY, NFTABLES, IPVS)

FAULTS = (
    Fault(
        name="api-server-killed",
        about="The API server's port closes and all connections are reset; after 2 s it is back.",
        happen=api_server_killed,
        within=BACK,
        also=(IPTABLES_NFT, IPVS),
    ),
    Fault(
        name="watch-cut",
        about="For 2 s each watch is reset in the middle of the first object it sends.",
        happen=on_the_wire(wire.cut),
        within=BACK,
        also=(IPTABLES_NFT,),
    ),
    Fault(
        name="half-closed",
        about="For 2 s the server closes its direction in the middle of the first object; ours stays open, unread.",
        happen=on_the_wire(wire.half_close),
        within=BACK,
        also=(IPTABLES_NFT,),
    ),
    Fault(
        name="slow",
        about="For 2 s the server sends 2 kB/s.",
        happen=on_the_wire(wire.slow),
        within=BACK,
        also=(IPTABLES_NFT,),
    ),
    Fault(
        name="garbage",
        about="For 2 s what the server sends is no JSON.",
        happen=on_the_wire(wire.spoil),
        within=BACK,
        also=(IPTABLES_NFT,),
    ),
    Fault(
        name="errors-500",
        about="For 2 s all requests are answered by 500, and open watches end.",
        happen=refused(500),
        within=BACK,
        also=(IPTABLES_NFT,),
    ),
    Fault(
        name="too-many-requests",
        about="For 5 s all requests are answered by 429 with Retry-After: 2, and open watches end.",
        happen=refused(429, retry_after=2, seconds=5),
        within=BACK,
        also=(IPTABLES_NFT,),
    ),
    Fault(
        name="api-server-down-at-start",
        about="The daemons are killed and start again while the API server is down, for 4 s.",
        happen=down_at_start,
        within=BACK,
        health=Health.GONE,
        also=(IPTABLES_NFT,),
    ),
    Fault(
        name="slices-withheld-at-start",
        about="The daemons are killed and start again; Services are listed, EndpointSlices are not, for 4 s.",
        happen=slices_withheld,
        within=BACK,
        health=Health.GONE,
        also=(IPTABLES_NFT,),
    ),
    Fault(
        name="version-forgotten",
        about="Watches end, and when the server is back it answers 410 Gone for every version it has sent.",
        happen=version_forgotten,
        within=BACK,
        also=(IPTABLES_NFT,),
    ),
    Fault(
        name="silent-connection",
        about="All connections stay open but no byte comes, for 10 s; new ones are served after that.",
        happen=on_the_wire(wire.hold_back, 10),
        within=IDLE_TIMEOUT_SECONDS + BACK,
        long=True,
        also=(IPTABLES_NFT,),
    ),
    Fault(
        name="cable-pulled",
        about="Packets from the API server vanish for 40 s, so that TCP gives the connections up.",
        happen=cable_pulled,
        within=BACK + 10,
        long=True,
        also=(IPTABLES_NFT,),
    ),
    Fault(
        name="killed-5-times",
        about="SIGKILL at random moments, 5 times, while endpoints change 20 times a second.",
        happen=killed(5),
        within=BACK,
        health=Health.GONE,
    ),
    Fault(
        name="killed-50-times",
        about="SIGKILL at random moments, 50 times, while endpoints change 20 times a second.",
        happen=killed(50, seed=50),
        within=BACK,
        health=Health.GONE,
        proxies=ALL,
        long=True,
    ),
    Fault(
        name="disk-full",
        about="The disk of log and temporary files is full, over 20 changes.",
        happen=disk_full,
        within=BACK,
        disk=True,
        proxies=(IPTABLES_NFT,),
        also=(NFTABLES,),
    ),
    Fault(
        name="clock-jumps",
        about="The machine's clock jumps by +2 h, -5 h, +400 days, -400 days and +3 h, with a change after each.",
        happen=clock_jumps,
        within=BACK,
        own_clock=True,
        long=True,
        proxies=(NFTABLES, IPTABLES_LEGACY, IPVS),
    ),
    Fault(
        name="write-fails-once",
        about="`iptables-restore`, `ipset` or the transaction fails once.",
        happen=write_fails_once,
        within=BACK,
        proxies=ALL,
    ),
    Fault(
        name="write-fails-always",
        about="The same, for 6 s; syncPeriod is 1 s.",
        happen=write_fails_always,
        within=BACK,
        health=Health.LATE,
        sync_period=1.0,
        also=(IPTABLES_NFT, IPTABLES_LEGACY, IPVS),
    ),
    Fault(
        name="lock-3s",
        about="Another program holds the xtables lock for 3 s.",
        happen=lock_held(3),
        within=BACK,
        proxies=(IPTABLES_LEGACY,),
    ),
    Fault(
        name="lock-30s",
        about="Another program holds the xtables lock for 30 s; syncPeriod is 5 s.",
        happen=lock_held(30),
        within=BACK,
        health=Health.LATE,
        sync_period=5.0,
        long=True,
        proxies=(IPTABLES_LEGACY,),
    ),
)

ROWS = tuple(Row(fault, proxy) for fault in (*FAULTS, *DRIFT) for proxy in (*fault.proxies, *fault.also))

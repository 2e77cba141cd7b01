"""Rules of other programs: random ones in the languages of nft and iptables, and those of Docker and ufw.

Callers discard rule sets that the tools refuse.
"""

from __future__ import annotations

from random import Random

# ---------------------------------------------------------------------- nftables

_SETS = """
set nets { type ipv4_addr; flags interval; elements = { 10.20.0.0/24, 10.9.1.0-10.9.1.9 } }
set socks { type ipv4_addr . inet_proto . inet_service; elements = { 10.20.0.1 . tcp . 80, 10.20.0.2 . udp . 53 } }
set dyn { type ipv4_addr; flags dynamic, timeout; timeout 1m; }
map ports { type inet_service : verdict; flags interval; elements = { 80 : jump one, 81-90 : drop } }
map doors { type ipv4_addr : verdict; elements = { 10.20.0.1 : jump two, 10.9.1.1 : accept, * : drop } }
map to { type ipv4_addr : ipv4_addr; elements = { 10.20.0.1 : 10.20.0.6 } }
map sockets { type ipv4_addr . inet_service : ipv4_addr . inet_service; elements = { 10.20.0.1 . 80 : 10.20.0.6 . 86 } }
"""
_BASES = (
    ("filter", "prerouting", -300),
    ("filter", "prerouting", -150),
    ("nat", "prerouting", -100),
    ("nat", "prerouting", -90),
    ("filter", "forward", 0),
    ("filter", "input", 0),
    ("filter", "output", -300),
    ("nat", "output", -100),
    ("filter", "output", 0),
    ("nat", "postrouting", 100),
)
_NFT_MATCHES = """
ip saddr 10.9.1.2
ip saddr != 10.9.1.0/24
ip daddr { 10.20.0.1, 10.9.1.1 }
ip daddr != { 10.20.0.1, 10.9.1.1 }
tcp dport 80
tcp dport != 80
th dport 80-100
meta l4proto != tcp
meta mark & 3 != 1
meta mark 1
ct state new
ct state != new
ct state invalid
ct state { new, untracked }
ct status dnat
ct status != dnat
ct mark & 3 == 1
ct original ip daddr 10.20.0.1
iifname != "to-client"
iifname "to-*"
oifname "to-server"
oifname != "to-server"
fib daddr type local
fib daddr . iif type != { local, broadcast }
fib saddr . iif oif missing
tcp flags & (fin | syn | rst | ack) == syn
tcp flags & (fin | syn | rst | ack) != syn
icmp type echo-request
ip ttl != 64
ip6 saddr ::/0
meta nfproto ipv6
ip daddr != @nets
ip daddr . meta l4proto . th dport @socks
limit rate over 1000/second
meta skuid 0
numgen random mod 4 offset 2 < 4
meta length > 20
@th,16,16 80
""".strip().splitlines()
_NFT_STATEMENTS = """
accept
drop
reject
reject with tcp reset
reject with icmpv6 admin-prohibited
return
jump one
goto one
jump two
goto two
meta mark set 1
meta mark set meta mark ^ 3
meta mark set ct mark & 1
meta mark set numgen random mod 3
ct mark set meta mark
log prefix "x"
update @dyn { ip saddr timeout 5s }
add @dyn { ip saddr limit rate over 1000/second } drop
tcp dport vmap @ports
ip daddr vmap @doors
ct state vmap { invalid : drop, established : accept, new : jump two }
iifname vmap { "to-client" : jump one, "lo" : accept }
notrack
""".strip().splitlines()
_NFT_DESTINATION = """
dnat ip to 10.20.0.9
meta l4proto tcp dnat ip to 10.20.0.9:90
dnat ip to ip daddr map @to
meta l4proto tcp dnat ip to ip daddr . tcp dport map @sockets
meta l4proto tcp dnat ip to 10.20.0.5 : tcp dport map { 80 : 8080 }
dnat ip prefix to ip daddr map { 10.20.0.0/24 : 10.20.5.0/24 }
dnat ip to numgen random mod 2 map { 0 : 10.20.0.10, 1 : 10.20.0.11 }
dnat ip6 to fd00::1
meta l4proto tcp dnat ip to 127.0.0.1:80
dnat ip to 10.66.0.1
meta l4proto tcp redirect to :8080
redirect
""".strip().splitlines()
_NFT_SOURCE = ["masquerade", "snat ip to 10.30.0.1", "snat ip to ip saddr map { 10.9.1.2 : 10.30.0.1 }"]


def nft(seed: int) -> str:
    """One table with some base chains."""
    random = Random(seed)  # noqa: S311
    chains = [
        _chain("two", "", random, ("one", "two", "doors", "ports")),
        _chain("one", "", random, ("one", "doors", "ports")),
    ]
    for number, (kind, hook, priority) in enumerate(random.sample(_BASES, random.choice([1, 2, 3]))):
        policy = random.choice(["accept", "accept", "drop"]) if kind == "filter" else "accept"
        head = f"type {kind} hook {hook} priority {priority}; policy {policy};"
        more = () if kind == "filter" else _NFT_SOURCE if hook == "postrouting" else _NFT_DESTINATION
        chains.append(_chain(f"base{number}", head, random, (), tuple(more)))
    return "flush ruleset\ntable inet foreign {" + _SETS + "".join(chains) + "}\n"


def _chain(name: str, head: str, random: Random, without: tuple[str, ...], more: tuple[str, ...] = ()) -> str:
    """A chain with random rules; ``without``: chains, and maps that refer to them, which would make a loop."""
    statements = [one for one in _NFT_STATEMENTS if not set(one.replace("@", "").split()) & set(without)]
    chosen = [*statements, *more * 4]
    rules = [
        " ".join([*random.sample(_NFT_MATCHES, random.choice([0, 1, 1, 2])), random.choice(chosen)])
        for _ in range(random.choice([1, 2, 3]))
    ]
    return f"chain {name} {{\n{head}\n" + "\n".join(rules) + "\n}\n"


# ---------------------------------------------------------------------- iptables

IPSETS = """
create nets hash:net
add nets 10.20.0.0/24
add nets 10.9.1.2
create except hash:net
add except 10.20.0.0/16
add except 10.20.0.2/32 nomatch
create socks hash:ip,port
add socks 10.20.0.1,tcp:80
create wide hash:ip netmask 24
add wide 10.9.1.0
create at hash:net,iface
add at 10.20.0.0/16,to-client
"""
_HOOKS = {
    "raw": ("PREROUTING", "OUTPUT"),
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
}
_MATCHES = """
-s 10.9.1.2
! -d 10.20.0.1
! -p tcp
-p tcp -m tcp --dport 80
-p tcp -m tcp ! --dport 80
-p tcp -m multiport --dports 22,80,90:95
-p tcp -m multiport --ports 80
-p tcp -m tcp --syn
-p tcp -m tcp --tcp-flags SYN,RST SYN,ACK
-p icmp
-m mark --mark 1/1
-m mark ! --mark 1/3
-m connmark --mark 1
-m conntrack --ctstate NEW
-m conntrack ! --ctstate NEW
-m conntrack --ctstate INVALID
-m conntrack --ctstate RELATED,ESTABLISHED
-m conntrack --ctstate DNAT
-m conntrack --ctproto 6
-m conntrack --ctorigdst 10.20.0.1
-m addrtype --dst-type LOCAL
-m addrtype ! --src-type LOCAL
-m addrtype --dst-type LOCAL --limit-iface-in
-m iprange ! --dst-range 10.20.0.2-10.20.0.5
-m set --match-set nets dst
-m set --match-set except dst
-m set --match-set socks dst,dst
-m set --match-set wide src
-m set --match-set at dst,src
-m statistic --mode random --probability 0.5
-m comment --comment "- dashed"
-m comment --comment "-j"
-m limit --limit 1000/s
-m length --length 1:2000
-m recent --name A ! --rcheck
-f
""".strip().splitlines()
_TARGETS = """
-j ACCEPT
-j DROP
-j RETURN
-j ONE
-g ONE
-j TWO
-j LOG --log-prefix "-j x"
-j CONNMARK --save-mark
-j CONNMARK --restore-mark
-j CONNMARK --set-mark 1
-j CONNMARK --restore-mark --nfmask 0x1 --ctmask 0x3
-j SET --add-set nets src
""".strip().splitlines()
_OF_TABLE = {
    "raw": ["-j NOTRACK", "-j CT --notrack"],
    "mangle": [
        "-j MARK --set-mark 1",
        "-j MARK --xor-mark 1",
        "-j MARK --set-xmark 0x4/0x6",
        "-j DSCP --set-dscp 3",
    ],
    "filter": ["-j REJECT", "-p tcp -j REJECT --reject-with tcp-reset"],
}
_DESTINATION = [
    "-j DNAT --to-destination 10.20.0.9",
    "-p tcp -j DNAT --to-destination :81",
    "-p tcp -j REDIRECT --to-ports 8080",
    "-j NETMAP --to 10.20.5.0/24",
    "-p tcp -j DNAT --to-destination 127.0.0.1:80",
]
_OF_HOOK = {
    "PREROUTING": _DESTINATION,
    "OUTPUT": _DESTINATION,
    "INPUT": ["-j SNAT --to-source 10.30.0.1"],
    "POSTROUTING": ["-j MASQUERADE", "-j SNAT --to-source 10.30.0.1", "-j NETMAP --to 10.30.0.0/24"],
}


def iptables(seed: int) -> str:
    """All four tables, some of them with rules."""
    random = Random(seed)  # noqa: S311
    chosen = random.sample(sorted(_HOOKS), random.choice([1, 2, 3]))
    return "".join(_table(name, random if name in chosen else None) for name in _HOOKS)


def _table(name: str, random: Random | None) -> str:
    hooks = _HOOKS[name]
    if random is None:
        return f"*{name}\n" + "".join(f":{hook} ACCEPT [0:0]\n" for hook in hooks) + "COMMIT\n"
    policies = {hook: "DROP" if name == "filter" and not random.randrange(8) else "ACCEPT" for hook in hooks}
    lines = [f"*{name}", *(f":{hook} {policy} [0:0]" for hook, policy in policies.items())]
    lines += [":ONE - [0:0]", ":TWO - [0:0]"]
    for chain in ("TWO", "ONE", *random.sample(hooks, min(2, len(hooks)))):
        targets = [one for one in _TARGETS if chain in hooks or not one.endswith(("ONE", chain))]
        targets += _OF_TABLE.get(name, []) * 2
        targets += _OF_HOOK.get(chain, []) * 3 if name == "nat" else []
        lines += [f"-A {chain} {_rule(random, targets)}" for _ in range(random.choice([1, 2, 3]))]
    return "\n".join([*lines, "COMMIT", ""])


def _rule(random: Random, targets: list[str]) -> str:
    matches = random.sample(_MATCHES, random.choice([0, 1, 1, 2]))
    return " ".join([*matches, random.choice(targets)])


AS_DOCKER_AND_UFW_WRITE = """
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 10.20.0.0/16 ! -o to-server -j MASQUERADE
-A DOCKER -i to-server -j RETURN
-A DOCKER ! -i to-server -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.20.0.2:8080
-A DOCKER ! -i to-server -p udp -m udp --dport 90 -j DNAT --to-destination 10.20.0.3:53
COMMIT
*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
:ufw-before-input - [0:0]
:ufw-not-local - [0:0]
:ufw-user-input - [0:0]
-A INPUT -j ufw-before-input
-A INPUT -j ufw-user-input
-A INPUT -j REJECT --reject-with icmp-port-unreachable
-A FORWARD -j DOCKER-USER
-A FORWARD -o to-server -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o to-server -j DOCKER
-A FORWARD -i to-server ! -o to-server -j ACCEPT
-A DOCKER -d 10.20.0.2/32 ! -i to-server -o to-server -p tcp -m tcp --dport 8080 -j ACCEPT
-A DOCKER-USER -s 10.9.1.2/32 -p udp -m udp --dport 53 -m comment --comment "no names" -j DROP
-A DOCKER-USER -j RETURN
-A ufw-before-input -i lo -j ACCEPT
-A ufw-before-input -m conntrack --ctstate INVALID -j LOG --log-prefix "[UFW AUDIT INVALID] "
-A ufw-before-input -m conntrack --ctstate INVALID -j DROP
-A ufw-before-input -p icmp -m icmp --icmp-type 8 -j ACCEPT
-A ufw-before-input -j ufw-not-local
-A ufw-not-local -m addrtype --dst-type LOCAL -j RETURN
-A ufw-not-local -m limit --limit 3/min --limit-burst 10 -j LOG
-A ufw-not-local -j DROP
-A ufw-user-input -p udp -m multiport --dports 90,91 -j ACCEPT
COMMIT
"""

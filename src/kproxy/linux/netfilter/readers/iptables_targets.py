"""The target of one iptables rule.  Pure.

A target that is not here may do anything: `Unmodelled`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kproxy.linux.netfilter.patterns import Span
from kproxy.linux.netfilter.readers import ipset
from kproxy.linux.netfilter.readers.iptables_options import ParsedRule, RuleContext, option_text
from kproxy.linux.netfilter.readers.numbers import parse_number, parse_ports, parse_socket
from kproxy.linux.netfilter.rules import (
    ALL_BITS,
    CopyMark,
    Dnat,
    End,
    Goto,
    Jump,
    LoseMark,
    MapMark,
    Masquerade,
    NoTrack,
    Redirect,
    Reject,
    Remember,
    SetMark,
    Statement,
    Step,
    Unmodelled,
)


def rule_statement(parsed: ParsedRule, context: RuleContext) -> list[Step]:
    """The rule's statement; none for a rule without a target."""
    name = parsed.target
    if name in context.chains:
        return [Goto(name) if parsed.goto else Jump(name)]
    if not name:
        return []
    options = {option.name: option.values for option in parsed.target_options}
    maker = _TARGETS.get(name)
    found = maker(options, context) if maker is not None else None
    return [found or Unmodelled(" ".join(["-j", name, *map(option_text, parsed.target_options)]))]


def is_target(name: str) -> bool:
    """True if a rule may do this, and it is no chain."""
    return name in _TARGETS


Options = Mapping[str, tuple[str, ...]]


def _first(options: Options, name: str) -> str:
    return (options.get(name) or ("",))[0]


def _dnat(options: Options, _: RuleContext) -> Statement | None:
    found = parse_socket(_first(options, "--to-destination"))
    return None if found is None else Dnat(*found)


def _redirect(options: Options, _: RuleContext) -> Statement | None:
    port = parse_ports(_first(options, "--to-ports") or "0")
    return Redirect(port if port != 0 else None) if isinstance(port, int | Span) else None


def _connection_mark(options: Options, context: RuleContext) -> Statement | None:
    """``--nfmask`` is of the packet's mark, ``--ctmask`` of the connection's (man 8 iptables-extensions)."""
    both = _first(options, "--mask") or hex(ALL_BITS)
    packet, connection = (parse_number(_first(options, name) or both) for name in ("--nfmask", "--ctmask"))
    if "--restore-mark" in options:
        return CopyMark(~packet & ALL_BITS, connection)
    if "--save-mark" in options:
        return CopyMark(~connection & ALL_BITS, packet, to_connection=True)
    return _set_mark(options, context, connection=True)


def _set_mark(options: Options, _: RuleContext, *, connection: bool = False) -> Statement | None:
    for name, values in options.items():
        value, _slash, mask_text = values[0].partition("/") if values else ("", "", "")
        mask = parse_number(mask_text) if mask_text else ALL_BITS
        match name:
            case "--set-xmark":
                return SetMark(~mask & ALL_BITS, parse_number(value), connection)
            case "--set-mark":
                return SetMark(~(mask | parse_number(value)) & ALL_BITS, parse_number(value), connection)
            case "--or-mark":
                return SetMark(~parse_number(value) & ALL_BITS, parse_number(value), connection)
            case "--xor-mark":
                return SetMark(ALL_BITS, parse_number(value), connection)
            case "--and-mark":
                return SetMark(parse_number(value), 0, connection)
            case _:
                return None
    return None


def _set_target(options: Options, context: RuleContext) -> Statement | None:
    if "--map-set" not in options or "--map-mark" not in options:
        changed = _first(options, "--add-set") or _first(options, "--del-set")
        return Remember(changed) if changed else None
    name, directions = options["--map-set"][:2]
    if name not in context.sets:
        return LoseMark(f"-j SET --map-set {name}")
    return MapMark(ipset.set_match_selectors(context.sets[name], directions), name)


_NO_MATTER = frozenset(
    {
        "AUDIT",
        "CHECKSUM",
        "CLASSIFY",
        "CONNSECMARK",
        "DSCP",
        "ECN",
        "HL",
        "IDLETIMER",
        "LED",
        "LOG",
        "NFLOG",
        "RATEEST",
        "SECMARK",
        "TCPMSS",
        "TCPOPTSTRIP",
        "TEE",
        "TOS",
        "TRACE",
        "TTL",
        "ULOG",
    }
)
"""Targets that change nothing about where a packet goes."""


_TARGETS: dict[str, Callable[[Options, RuleContext], Statement | None]] = {
    "ACCEPT": lambda _o, _c: End.ACCEPT,
    "DROP": lambda _o, _c: End.DROP,
    "RETURN": lambda _o, _c: End.RETURN,
    "REJECT": lambda options, _: Reject(_first(options, "--reject-with") or "icmp-port-unreachable"),
    "DNAT": _dnat,
    "REDIRECT": _redirect,
    "SNAT": lambda options, _: Masquerade(_first(options, "--to-source")),
    "MASQUERADE": lambda options, _: Masquerade(random_fully="--random-fully" in options),
    "MARK": _set_mark,
    "CONNMARK": _connection_mark,
    "SET": _set_target,
    "NOTRACK": lambda _o, _c: NoTrack(),
    "CT": lambda options, _: NoTrack() if "--notrack" in options else End.CONTINUE,
    **{name: (lambda _o, _c: End.CONTINUE) for name in _NO_MATTER},
}

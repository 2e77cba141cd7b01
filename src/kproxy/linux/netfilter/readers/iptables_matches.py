"""The matches of one iptables rule.  Pure.

An option of a match that is not here makes the whole match `Unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from kproxy.linux.netfilter.patterns import AnyFlag, AnyOf, FieldName, Masked, Pattern, Prefix, Selector
from kproxy.linux.netfilter.readers import ipset
from kproxy.linux.netfilter.readers.iptables_options import Option, RuleContext, option_text
from kproxy.linux.netfilter.readers.numbers import (
    normalize_protocol,
    parse_number,
    parse_ports,
    parse_socket,
    read_network,
)
from kproxy.linux.netfilter.rules import (
    ALL_BITS,
    Chance,
    CountPacket,
    InSet,
    Is,
    Match,
    Recent,
    Remember,
    Step,
    Unknown,
)


def matches(options: Sequence[Option], context: RuleContext) -> list[Step]:
    """All matches in order; options of one ``-m`` that is not known together as one `Unknown`."""
    found: list[Step] = []
    skip = ""
    for at, option in enumerate(options):
        if not option.name:
            skip = ""
            own = _until_next(options[at + 1 :])
            if (whole := _whole_module(option.module, own, context)) is not None:
                found += whole
                skip = option.module
            continue
        if option.module and option.module == skip:
            continue
        found.append(_option(option))
    return found


def _until_next(options: Sequence[Option]) -> list[Option]:
    found: list[Option] = []
    for option in options:
        if not option.name:
            break
        if option.module:
            found.append(option)
    return found


def _whole_module(module: str, own: Sequence[Option], context: RuleContext) -> list[Step] | None:
    """Modules whose options mean something only together; None: each option by itself."""
    match module:
        case "nfacct":
            return [CountPacket(option.values[0]) for option in own]
        case "comment":
            return []
        case "statistic":
            return [_statistic(own)]
        case "recent":
            return [_recent(own)]
        case "set":
            return [_set(option, context) for option in own]
        case _ if any((module, option.name) not in _KNOWN for option in own):
            return [_unknown(module, own)]
        case _ if module in _WITHOUT_OPTIONS or own:
            return None
        case _:
            return [_unknown(module, own)]


_WITHOUT_OPTIONS = frozenset({"tcp", "udp", "sctp", "icmp", "icmp6", "udplite"})


def _unknown(module: str, own: Sequence[Option]) -> Unknown:
    return Unknown(" ".join(["-m", module, *map(option_text, own)]))


def _statistic(own: Sequence[Option]) -> Match:
    values = {option.name: option.values[0] for option in own if option.values}
    if any(option.negated for option in own):
        return _unknown("statistic", own)
    if values.get("--mode") == "nth" and "--every" in values:
        return Chance(Fraction(1, int(values["--every"])))
    if "--probability" not in values:
        return _unknown("statistic", own)
    return Chance(share(values["--probability"]))


def share(text: str) -> Fraction:
    """A probability; what is some in so many, as far as the digits go, is exactly that.

    The kernel keeps 31 bits of it (xt_statistic.c): fractions of denominators up to `_SHARED_BY` stay apart.
    """
    printed = Fraction(text)
    if not printed:
        return printed
    one_in = Fraction(1, max(1, round(1 / printed)))
    some_in = printed.limit_denominator(_SHARED_BY)
    if abs(one_in - printed) < Fraction(1, 10**8):
        return one_in
    return some_in if abs(some_in - printed) < Fraction(1, 10**9) else printed


_SHARED_BY = 20_000


def _recent(own: Sequence[Option]) -> Step:
    options = {option.name: option for option in own}
    name = options["--name"].values[0] if "--name" in options else "DEFAULT"
    whole = options["--mask"].values[0] in _WHOLE_MASKS if "--mask" in options else True
    if "--rdest" in options or "--hitcount" in options or not whole:
        return _unknown("recent", own)
    for check in ("--rcheck", "--update"):
        if check in options:
            seconds = int(options["--seconds"].values[0]) if "--seconds" in options else None
            return Recent(name, seconds, options[check].negated)
    if "--set" in options and not options["--set"].negated:
        return Remember(name)
    return _unknown("recent", own)


_WHOLE_MASKS = frozenset({"255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"})
"""Of lists that hold clients one by one."""


def _set(option: Option, context: RuleContext) -> Match:
    if option.name != "--match-set" or len(option.values) != 2:
        return Unknown(option_text(option))
    name, directions = option.values
    if name not in context.sets:
        return InSet((), name, option.negated)
    return InSet(ipset.set_match_selectors(context.sets[name], directions), name, option.negated)


def _option(option: Option) -> Match:
    reader = _KNOWN.get((option.module, option.name))
    found = reader(option) if reader is not None else None
    return found or Unknown(
        f"-m {option.module} {option_text(option)}" if option.module else option_text(option)
    )


def _is(field: Selector, pattern: Pattern | None, option: Option) -> Match | None:
    return None if pattern is None else Is((field,), (pattern,), option.negated)


def _address(field: FieldName) -> Callable[[Option], Match | None]:
    return lambda option: _is(field, read_network(option.values[0]), option)


def _interface(field: FieldName) -> Callable[[Option], Match | None]:
    def made(option: Option) -> Match | None:
        name = option.values[0]
        return _is(field, Prefix(name[:-1]) if name.endswith("+") else name, option)

    return made


def _port(field: FieldName) -> Callable[[Option], Match | None]:
    def made(option: Option) -> Match | None:
        found = [parse_ports(part) for part in option.values[0].split(",")]
        if None in found:
            return None
        patterns = tuple(one for one in found if one is not None)
        return _is(field, patterns[0] if len(patterns) == 1 else AnyOf(patterns), option)

    return made


def _flags(field: FieldName) -> Callable[[Option], Match | None]:
    def made(option: Option) -> Match | None:
        names = frozenset(name.lower() for name in option.values[0].split(","))
        return _is(field, AnyFlag(names), option)

    return made


def _types(field: FieldName) -> Callable[[Option], Match | None]:
    def made(option: Option) -> Match | None:
        names = tuple(name.lower() for name in option.values[0].split(","))
        return _is(field, names[0] if len(names) == 1 else AnyOf(names), option)

    return made


def _mark(field: FieldName) -> Callable[[Option], Match | None]:
    def made(option: Option) -> Match | None:
        value, _, mask = option.values[0].partition("/")
        return _is(Masked(field, parse_number(mask) if mask else ALL_BITS), parse_number(value), option)

    return made


def _range(field: FieldName) -> Callable[[Option], Match | None]:
    def made(option: Option) -> Match | None:
        found = parse_socket(option.values[0])
        return None if found is None else _is(field, found[0], option)

    return made


def _tcp_flags(option: Option) -> Match | None:
    """A connection's first segment has SYN and nothing else."""
    if option.name == "--syn":
        mask, wanted = {"syn", "rst", "ack", "fin"}, {"syn"}
    else:
        mask, wanted = ({name.lower() for name in text.split(",")} for text in option.values[:2])
    first = ({"syn"} & mask) == wanted - {"none"}
    return Is((FieldName.PROTOCOL,), ("tcp" if first else "none",), option.negated)


def _protocol(field: FieldName) -> Callable[[Option], Match | None]:
    def made(option: Option) -> Match | None:
        name = normalize_protocol(option.values[0])
        return None if name in {"all", "0"} else _is(field, name, option)

    return made


def _original_destination_port(option: Option) -> Match | None:
    return _is(FieldName.ORIGINAL_PORT, parse_ports(option.values[0]), option)


_KNOWN: dict[tuple[str, str], Callable[[Option], Match | None]] = {
    ("", "-s"): _address(FieldName.SOURCE),
    ("", "-d"): _address(FieldName.DESTINATION),
    ("", "-i"): _interface(FieldName.IN),
    ("", "-o"): _interface(FieldName.OUT),
    ("", "-p"): _protocol(FieldName.PROTOCOL),
    ("", "-f"): lambda option: Is((FieldName.PROTOCOL,), ("none",), option.negated),
    ("tcp", "--tcp-flags"): _tcp_flags,
    ("tcp", "--syn"): _tcp_flags,
    ("mark", "--mark"): _mark(FieldName.MARK),
    ("connmark", "--mark"): _mark(FieldName.CONNECTION_MARK),
    ("conntrack", "--ctstate"): _flags(FieldName.STATE),
    ("state", "--state"): _flags(FieldName.STATE),
    ("conntrack", "--ctstatus"): _flags(FieldName.STATUS),
    ("conntrack", "--ctdir"): _types(FieldName.DIRECTION),
    ("conntrack", "--ctproto"): _protocol(FieldName.ORIGINAL_PROTOCOL),
    ("conntrack", "--ctorigsrc"): _address(FieldName.ORIGINAL_SOURCE),
    ("conntrack", "--ctorigdst"): _address(FieldName.ORIGINAL_DESTINATION),
    ("conntrack", "--ctorigdstport"): _original_destination_port,
    ("addrtype", "--src-type"): _types(FieldName.SOURCE_TYPE),
    ("addrtype", "--dst-type"): _types(FieldName.DESTINATION_TYPE),
    ("iprange", "--src-range"): _range(FieldName.SOURCE),
    ("iprange", "--dst-range"): _range(FieldName.DESTINATION),
    **{
        (module, option): _port(field)
        for module in ("tcp", "udp", "sctp", "multiport", "udplite")
        for option, field in (
            ("--dport", FieldName.PORT),
            ("--dports", FieldName.PORT),
            ("--sport", FieldName.SOURCE_PORT),
            ("--sports", FieldName.SOURCE_PORT),
        )
    },
}

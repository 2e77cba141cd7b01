"""The words of one iptables rule as matches and a target.  Pure.

As ``iptables-save`` prints them: long options have one spelling, ``!`` stands before the option.  An option of a match
that is not here makes the whole match `Unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from kproxy.net import Family
from kproxy.trace.readers import ipset
from kproxy.trace.readers.ipset import ALL_BITS, Ipset
from kproxy.trace.readers.numbers import network, number, ports, protocol, socket
from kproxy.trace.rules import (
    AnyOf,
    Begins,
    Chance,
    End,
    Field,
    Flags,
    Goto,
    InSet,
    Is,
    Jump,
    MapMark,
    Masked,
    Masquerade,
    Match,
    NoTrack,
    Pattern,
    Recent,
    Redirect,
    Reject,
    Remember,
    Selector,
    SetMark,
    Skipped,
    Span,
    Statement,
    Step,
    Translate,
    Unknown,
)

Words = Sequence[str]


@dataclass(frozen=True, slots=True)
class Option:
    """One option with its values, in the match ``module`` it belongs to (empty: of the rule itself)."""

    module: str
    name: str
    values: tuple[str, ...]
    negated: bool


@dataclass(slots=True)
class Parsed:
    """A rule's options, its comment, and its target with the options of that."""

    options: list[Option] = field(default_factory=list)
    comment: str = ""
    target: str = ""
    goto: bool = False
    target_options: list[Option] = field(default_factory=list)


def parse(words: Words) -> Parsed:
    """What comes after ``-A CHAIN``."""
    parsed, module, at = Parsed(), "", 0
    while at < len(words):
        negated = words[at] == "!"
        at += negated
        name = words[at] if at < len(words) else ""
        end = at + 1
        while end < len(words) and not _starts_option(words[end]):
            end += 1
        values = tuple(words[at + 1 : end])
        at = end
        match name:
            case "-m" | "--match":
                module = values[0] if values else ""
                parsed.options.append(Option(module, "", (), negated))
            case "-j" | "--jump" | "-g" | "--goto":
                parsed.target, parsed.goto = (values[0] if values else ""), name in {"-g", "--goto"}
            case "--comment":
                parsed.comment = values[0] if values else ""
            case _ if parsed.target:
                parsed.target_options.append(Option(parsed.target, name, values, negated))
            case _:
                own = module if name.startswith("--") else ""
                parsed.options.append(Option(own, name, values, negated))
    return parsed


def _starts_option(word: str) -> bool:
    return word == "!" or (word.startswith("-") and not word[1:2].isdigit() and len(word) > 1)


# ---------------------------------------------------------------------- matches


@dataclass(frozen=True, slots=True)
class Context:
    """What a rule is read in: the family, the chains there are (what else is a target), the sets."""

    family: Family
    chains: frozenset[str]
    sets: Mapping[str, Ipset]


def matches(options: Sequence[Option], context: Context) -> list[Step]:
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


def _whole_module(module: str, own: Sequence[Option], context: Context) -> list[Step] | None:
    """Modules whose options mean something only together; None: each option by itself."""
    match module:
        case "comment":
            return []
        case "statistic":
            return [_statistic(own)]
        case "recent":
            return [_recent(own)]
        case "set":
            return [_set(option, context) for option in own]
        case "nfacct" | "quota" | "addrtype" if module != "addrtype":
            return [] if module == "nfacct" else [_unknown(module, own)]
        case _ if any(
            (module, option.name) not in _KNOWN and ("", option.name) not in _KNOWN for option in own
        ):
            return [_unknown(module, own)]
        case _ if module in _WITHOUT_OPTIONS or own:
            return None
        case _:
            return [_unknown(module, own)]


_WITHOUT_OPTIONS = frozenset({"tcp", "udp", "sctp", "icmp", "icmp6", "udplite"})


def _unknown(module: str, own: Sequence[Option]) -> Unknown:
    return Unknown(" ".join(["-m", module, *map(_text, own)]))


def _text(option: Option) -> str:
    return " ".join(["!"] * option.negated + [option.name, *option.values])


def _statistic(own: Sequence[Option]) -> Match:
    values = {option.name: option.values[0] for option in own if option.values}
    if values.get("--mode") == "nth" and "--every" in values:
        return Chance(Fraction(1, int(values["--every"])))
    if "--probability" not in values or any(option.negated for option in own):
        return _unknown("statistic", own)
    return Chance(share(values["--probability"]))


def share(text: str) -> Fraction:
    """A probability; what is one in so many, as far as the digits go, is exactly that."""
    told = Fraction(text)
    if not told:
        return told
    near = Fraction(1, max(1, round(1 / told)))
    return near if abs(near - told) < Fraction(1, 10**8) else told


def _recent(own: Sequence[Option]) -> Step:
    options = {option.name: option for option in own}
    name = options["--name"].values[0] if "--name" in options else "DEFAULT"
    if "--rdest" in options or "--hitcount" in options:
        return _unknown("recent", own)
    for check in ("--rcheck", "--update"):
        if check in options:
            seconds = int(options["--seconds"].values[0]) if "--seconds" in options else None
            return Recent(name, seconds, options[check].negated)
    return Remember(name) if "--set" in options else _unknown("recent", own)


def _set(option: Option, context: Context) -> Match:
    if option.name != "--match-set" or option.values[0] not in context.sets:
        return InSet((), option.values[0], option.negated) if option.values else Unknown(_text(option))
    name, directions = option.values[:2]
    return InSet(ipset.selectors(context.sets[name], directions), name, option.negated)


def _option(option: Option) -> Match:
    reader = _KNOWN.get((option.module, option.name)) or _KNOWN.get(("", option.name))
    found = reader(option) if reader is not None else None
    return found or Unknown(f"-m {option.module} {_text(option)}" if option.module else _text(option))


def _is(field: Selector, pattern: Pattern | None, option: Option) -> Match | None:
    return None if pattern is None else Is((field,), (pattern,), option.negated)


def _address(field: Field) -> Callable[[Option], Match | None]:
    return lambda option: _is(field, network(option.values[0]), option)


def _interface(field: Field) -> Callable[[Option], Match | None]:
    def made(option: Option) -> Match | None:
        name = option.values[0]
        return _is(field, Begins(name[:-1]) if name.endswith("+") else name, option)

    return made


def _port(field: Field) -> Callable[[Option], Match | None]:
    def made(option: Option) -> Match | None:
        found = [ports(part) for part in option.values[0].split(",")]
        if None in found:
            return None
        patterns = tuple(one for one in found if one is not None)
        return _is(field, patterns[0] if len(patterns) == 1 else AnyOf(patterns), option)

    return made


def _flags(field: Field) -> Callable[[Option], Match | None]:
    def made(option: Option) -> Match | None:
        names = frozenset(name.lower() for name in option.values[0].split(","))
        return _is(field, Flags(names), option)

    return made


def _types(field: Field) -> Callable[[Option], Match | None]:
    def made(option: Option) -> Match | None:
        names = tuple(name.lower() for name in option.values[0].split(","))
        return _is(field, names[0] if len(names) == 1 else AnyOf(names), option)

    return made


def _mark(field: Field) -> Callable[[Option], Match | None]:
    def made(option: Option) -> Match | None:
        value, _, mask = option.values[0].partition("/")
        return _is(Masked(field, number(mask) if mask else ALL_BITS), number(value), option)

    return made


def _range(field: Field) -> Callable[[Option], Match | None]:
    def made(option: Option) -> Match | None:
        found = socket(option.values[0])
        return None if found is None else _is(field, found[0], option)

    return made


def _tcp_flags(option: Option) -> Match | None:
    """A connection's first segment has SYN and nothing else."""
    if option.name == "--syn":
        mask, wanted = {"syn", "rst", "ack", "fin"}, {"syn"}
    else:
        mask, wanted = ({name.lower() for name in text.split(",")} for text in option.values[:2])
    first = ({"syn"} & mask) == (wanted & mask - {"none"})
    return Is((Field.PROTOCOL,), ("tcp" if first else "none",), option.negated)


def _protocol(option: Option) -> Match | None:
    name = protocol(option.values[0])
    return None if name in {"all", "0"} else _is(Field.PROTOCOL, name, option)


def _original_destination_port(option: Option) -> Match | None:
    return _is(Field.ORIGINAL_PORT, ports(option.values[0]), option)


_KNOWN: dict[tuple[str, str], Callable[[Option], Match | None]] = {
    ("", "-s"): _address(Field.SOURCE),
    ("", "-d"): _address(Field.DESTINATION),
    ("", "-i"): _interface(Field.IN),
    ("", "-o"): _interface(Field.OUT),
    ("", "-p"): _protocol,
    ("tcp", "--tcp-flags"): _tcp_flags,
    ("tcp", "--syn"): _tcp_flags,
    ("mark", "--mark"): _mark(Field.MARK),
    ("connmark", "--mark"): _mark(Field.CONNECTION_MARK),
    ("conntrack", "--ctstate"): _flags(Field.STATE),
    ("state", "--state"): _flags(Field.STATE),
    ("conntrack", "--ctstatus"): _flags(Field.STATUS),
    ("conntrack", "--ctdir"): _types(Field.DIRECTION),
    ("conntrack", "--ctproto"): _protocol,
    ("conntrack", "--ctorigsrc"): _address(Field.ORIGINAL_SOURCE),
    ("conntrack", "--ctorigdst"): _address(Field.ORIGINAL_DESTINATION),
    ("conntrack", "--ctorigdstport"): _original_destination_port,
    ("addrtype", "--src-type"): _types(Field.SOURCE_TYPE),
    ("addrtype", "--dst-type"): _types(Field.DESTINATION_TYPE),
    ("iprange", "--src-range"): _range(Field.SOURCE),
    ("iprange", "--dst-range"): _range(Field.DESTINATION),
    **{
        (module, option): _port(field)
        for module in ("tcp", "udp", "sctp", "multiport", "udplite")
        for option, field in (
            ("--dport", Field.PORT),
            ("--dports", Field.PORT),
            ("--sport", Field.SOURCE_PORT),
            ("--sports", Field.SOURCE_PORT),
        )
    },
}


# ---------------------------------------------------------------------- targets


def target(parsed: Parsed, context: Context) -> list[Step]:
    """What the rule does; nothing for one without a target."""
    name = parsed.target
    if name in context.chains:
        return [Goto(name) if parsed.goto else Jump(name)]
    if not name:
        return []
    options = {option.name: option.values for option in parsed.target_options}
    maker = _TARGETS.get(name)
    found = maker(options, context) if maker is not None else None
    return [found or Skipped(" ".join(["-j", name, *map(_text, parsed.target_options)]))]


Options = Mapping[str, tuple[str, ...]]


def _first(options: Options, name: str) -> str:
    return (options.get(name) or ("",))[0]


def _dnat(options: Options, _: Context) -> Statement | None:
    found = socket(_first(options, "--to-destination"))
    return None if found is None else Translate(*found)


def _redirect(options: Options, _: Context) -> Statement:
    port = ports(_first(options, "--to-ports") or "0")
    first = port.first if isinstance(port, Span) else port
    return Redirect(first if isinstance(first, int) and first else None)


def _set_mark(options: Options, _: Context, *, connection: bool = False) -> Statement | None:
    for name, values in options.items():
        value, _slash, mask_text = values[0].partition("/") if values else ("", "", "")
        mask = number(mask_text) if mask_text else ALL_BITS
        match name:
            case "--set-xmark":
                return SetMark(~mask & ALL_BITS, number(value), connection)
            case "--set-mark":
                return SetMark(~(mask | number(value)) & ALL_BITS, number(value), connection)
            case "--or-mark":
                return SetMark(~number(value) & ALL_BITS, number(value), connection)
            case "--xor-mark":
                return SetMark(ALL_BITS, number(value), connection)
            case "--and-mark":
                return SetMark(number(value), 0, connection)
            case _:
                return None
    return None


def _set_target(options: Options, context: Context) -> Statement | None:
    if "--map-set" not in options or "--map-mark" not in options:
        return Remember(_first(options, "--add-set")) if "--add-set" in options else None
    name, directions = options["--map-set"][:2]
    if name not in context.sets:
        return None
    return MapMark(ipset.selectors(context.sets[name], directions), name)


_NO_MATTER = frozenset(
    {"LOG", "NFLOG", "TRACE", "AUDIT", "CHECKSUM", "TCPMSS", "CLASSIFY", "DSCP", "TOS", "ULOG"}
)
"""Targets that change nothing about where a packet goes."""


_TARGETS: dict[str, Callable[[Options, Context], Statement | None]] = {
    "ACCEPT": lambda _o, _c: End.ACCEPT,
    "DROP": lambda _o, _c: End.DROP,
    "RETURN": lambda _o, _c: End.RETURN,
    "REJECT": lambda options, _: Reject(_first(options, "--reject-with") or "icmp-port-unreachable"),
    "DNAT": _dnat,
    "REDIRECT": _redirect,
    "SNAT": lambda options, _: Masquerade(_first(options, "--to-source")),
    "MASQUERADE": lambda _o, _c: Masquerade(),
    "MARK": _set_mark,
    "CONNMARK": lambda options, context: _set_mark(options, context, connection=True),
    "SET": _set_target,
    "NOTRACK": lambda _o, _c: NoTrack(),
    "CT": lambda options, _: NoTrack() if "--notrack" in options else End.CONTINUE,
    **{name: (lambda _o, _c: End.CONTINUE) for name in _NO_MATTER},
}

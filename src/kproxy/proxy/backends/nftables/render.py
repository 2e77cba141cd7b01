"""Rules, sets, maps and elements as text: for people, for logs, for ``nft -f``.  Pure."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from kproxy.linux.netfilter.patterns import (
    AnyFlag,
    FieldName,
    Masked,
    Pattern,
    Prefix,
    RandomNumber,
    Selector,
)
from kproxy.linux.netfilter.rules import (
    ALL_BITS,
    Chain,
    Chance,
    Dnat,
    End,
    Goto,
    InSet,
    Is,
    Jump,
    MapLookup,
    Masquerade,
    Reject,
    Remember,
    Rule,
    SetMark,
    Step,
    Verdict,
)
from kproxy.model.network import Family, Protocol, format_socket
from kproxy.proxy.backends.nftables.rules import (
    CollectionDefinition,
    ElementKey,
    Holds,
    Key,
    Part,
    Value,
)

_PREFIXES = {FieldName.PROTOCOL: "meta ", FieldName.MARK: "meta ", FieldName.PORT: "th "}


class Renderer:
    """The text of rules and elements in one family."""

    def __init__(self, family: Family) -> None:
        """``ip`` or ``ip6`` in every address selector."""
        self.family_keyword = "ip" if family is Family.IPV4 else "ip6"
        addresses = dict.fromkeys((FieldName.SOURCE, FieldName.DESTINATION), f"{self.family_keyword} ")
        prefixes = _PREFIXES | addresses
        self._fields = {field: prefixes.get(field, "") + field.value for field in FieldName}

    def key(self, key: Key) -> str:
        """``ip daddr . meta l4proto . th dport``."""
        return " . ".join(map(self.selector, key))

    def selector(self, selector: Selector) -> str:
        """One part of a key."""
        match selector:
            case RandomNumber(modulus, offset, True):
                return f"numgen inc mod {modulus} offset {offset}"
            case RandomNumber(modulus):
                return f"numgen random mod {modulus}"
            case Masked(field, mask):
                return f"{self._fields[field]} & {mask:#010x}"
            case FieldName():
                return self._fields[selector]
            case _:
                raise AssertionError(selector)

    def rule(self, rule: Rule) -> str:
        """The rule without its chain."""
        text = " ".join(map(self.step, rule.steps))
        return f'{text} comment "{rule.comment}"' if rule.comment else text

    def step(self, step: Step) -> str:
        """One match or statement."""
        match step:
            case Is((selector,), (pattern,), negated):
                operator = "" if not negated else "! " if isinstance(pattern, AnyFlag) else "!= "
                return f"{self.selector(selector)} {operator}{_pattern(selector, pattern)}"
            case InSet(key, name, negated):
                return f"{self.key(key)} {'!= ' if negated else ''}@{name}"
            case Chance(share):
                return f"numgen random mod {share.denominator} 0"
            case SetMark(keep, bits):
                return f"meta mark set meta mark {'xor' if keep == ALL_BITS else 'or'} {bits:#010x}"
            case Remember(name, key, seconds):
                return f"update @{name} {{ {self.key(key)} timeout {seconds}s }}"
            case _:
                return self._ending(step)

    def _ending(self, statement: Step) -> str:
        match statement:
            case MapLookup(key, name, True):
                return f"dnat {self.family_keyword} to {self.key(key)} map @{name}"
            case MapLookup(key, name):
                return f"{self.key(key)} vmap @{name}"
            case Dnat(IPv4Address() | IPv6Address() as address, int(port)):
                return f"dnat to {format_socket(address, port)}"
            case Masquerade(random_fully=True):
                return "masquerade fully-random"
            case Reject():
                return "reject"
            case Jump() | Goto() | End():
                return render_verdict(statement)
            case _:
                raise AssertionError(statement)

    def collection(self, collection: CollectionDefinition) -> str:
        """Its definition, in braces."""
        held = {
            Holds.NOTHING: "",
            Holds.VERDICT: " : verdict",
            Holds.ENDPOINT: f" : {self.family_keyword} daddr . th dport",
        }[collection.holds]
        lines = [f"typeof {self.key(collection.key)}{held};"]
        if collection.filled_up_to is not None:
            lines.append(f"size {collection.filled_up_to}; flags dynamic,timeout;")
        if collection.interval:
            lines.append("flags interval;")
        if collection.comment:
            lines.append(f'comment "{collection.comment}";')
        return f"{{ {' '.join(lines)} }}"


def chain_definition(chain: Chain) -> str:
    """Hook and comment of a chain, in braces; empty where it has neither."""
    lines = []
    if (hook := chain.hook) is not None:
        lines.append(
            f"type {'nat' if hook.nat else 'filter'} hook {hook.point.value} priority {hook.priority};"
        )
    if chain.comment:
        lines.append(f'comment "{chain.comment}";')
    return f" {{ {' '.join(lines)} }}" if lines else ""


def render_element(key: ElementKey, value: Value = None) -> str:
    """One element: ``10.96.0.1 . tcp . 80 : goto one-of-3``."""
    text = " . ".join(map(_part, key))
    match value:
        case None:
            return text
        case (address, port):
            return f"{text} : {address} . {port}"
        case _:
            return f"{text} : {render_verdict(value)}"


def render_verdict(value: Verdict) -> str:
    """``goto chain`` and the like."""
    match value:
        case Jump(chain):
            return f"jump {chain}"
        case Goto(chain):
            return f"goto {chain}"
        case End():
            return value.name.lower()


def _part(part: Part) -> str:
    return part.value.lower() if isinstance(part, Protocol) else str(part)


def _pattern(selector: Selector, pattern: Pattern) -> str:
    match pattern:
        case AnyFlag(flags):
            return ",".join(sorted(flags))
        case Prefix(text):
            return f'"{text}*"'
        case str() if selector is FieldName.IN:
            return f'"{pattern}"'
        case IPv4Network() | IPv6Network() if pattern.prefixlen == pattern.max_prefixlen:
            return str(pattern.network_address)
        case _:
            return str(pattern)

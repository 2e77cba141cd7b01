"""Rules, sets, maps and elements as text: for people, for logs, for ``nft -f``.  Pure."""

from __future__ import annotations

from kproxy.model.network import Address, Family, Protocol
from kproxy.proxy.backends.nftables.rules import (
    AddressIsLocal,
    AddressWithin,
    Chain,
    Collection,
    Constant,
    Dispatch,
    Drop,
    ElementKey,
    Field,
    GoesOn,
    Goto,
    Holds,
    InInterface,
    InSet,
    IsInvalid,
    IsNew,
    IsTranslated,
    Jump,
    Key,
    Marked,
    Masquerade,
    Match,
    OfProtocol,
    OneIn,
    Part,
    Random,
    Reject,
    Remember,
    Rule,
    Selector,
    SetMark,
    Statement,
    Step,
    ToggleMark,
    Translate,
    TranslateBy,
    Value,
    Verdict,
)

_FIXED_STEPS: dict[Step, str] = {
    GoesOn(): "tcp flags ! fin,rst",
    IsNew(): "ct state new",
    IsInvalid(): "ct state invalid",
    IsTranslated(): "ct status dnat",
    Masquerade(): "masquerade fully-random",
    Reject(): "reject",
    Drop(): "drop",
}


class Renderer:
    """The text of rules and elements in one family."""

    def __init__(self, family: Family) -> None:
        """``ip`` or ``ip6`` in every address selector."""
        self.family_keyword = "ip" if family is Family.IPV4 else "ip6"
        self._selectors = {field: field.value.replace("ip ", f"{self.family_keyword} ") for field in Field}

    def key(self, key: Key) -> str:
        """``ip daddr . meta l4proto . th dport``."""
        return " . ".join(map(self.selector, key))

    def selector(self, selector: Selector) -> str:
        """One part of a key."""
        match selector:
            case Random(modulus):
                return f"numgen random mod {modulus}"
            case Constant(number):
                return f"numgen inc mod 1 offset {number}"
            case Field():
                return self._selectors[selector]

    def rule(self, rule: Rule) -> str:
        """The rule without its chain."""
        text = " ".join(map(self.step, rule.steps))
        return f'{text} comment "{rule.comment}"' if rule.comment else text

    def step(self, step: Step) -> str:
        """One match or statement."""
        match step:
            case GoesOn() | IsNew() | IsInvalid() | IsTranslated() | Masquerade() | Reject() | Drop():
                return _FIXED_STEPS[step]
            case (
                InSet()
                | AddressWithin()
                | AddressIsLocal()
                | InInterface()
                | OfProtocol()
                | Marked()
                | OneIn()
            ):
                return self._match(step)
            case _:
                return self._statement(step)

    def _match(self, match_: Match) -> str:
        match match_:
            case InSet(key, name, negated):
                return f"{self.key(key)} {_not(negated)}@{name}"
            case AddressWithin(field, network, negated):
                whole = network.prefixlen == network.max_prefixlen
                value = network.network_address if whole else network
                return f"{self._selectors[field]} {_not(negated)}{value}"
            case AddressIsLocal(field):
                return f"fib {field.value.removeprefix('ip ')} type local"
            case InInterface(name, negated):
                return f'iifname {_not(negated)}"{name}"'
            case OfProtocol(protocol):
                return f"meta l4proto {protocol.value.lower()}"
            case OneIn(count):
                return f"numgen random mod {count} 0"
            case Marked(bit):
                return f"meta mark & {bit:#010x} != 0"
            case plain:
                return _FIXED_STEPS[plain]

    def _statement(self, statement: Statement) -> str:
        match statement:
            case SetMark(bit):
                return f"meta mark set meta mark or {bit:#010x}"
            case ToggleMark(bit):
                return f"meta mark set meta mark xor {bit:#010x}"
            case Remember(key, name, seconds):
                return f"update @{name} {{ {self.key(key)} timeout {seconds}s }}"
            case Dispatch(key, name):
                return f"{self.key(key)} vmap @{name}"
            case TranslateBy(key, name):
                return f"dnat {self.family_keyword} to {self.key(key)} map @{name}"
            case Translate(address, port):
                return f"dnat to {_render_socket(address, port)}"
            case Jump() | Goto():
                return render_verdict(statement)
            case plain:
                return _FIXED_STEPS[plain]

    def collection(self, collection: Collection) -> str:
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
    if chain.hook is not None:
        hook = chain.hook
        lines.append(f"type {hook.kind.value} hook {hook.point.value} priority {hook.priority};")
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
        case Drop():
            return "drop"


def _part(part: Part) -> str:
    return part.value.lower() if isinstance(part, Protocol) else str(part)


def _not(negated: bool) -> str:  # noqa: FBT001 - a word for a flag
    return "!= " if negated else ""


def _render_socket(address: Address, port: int) -> str:
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"

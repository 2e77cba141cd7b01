"""The arguments of one iptables rule, split into options of matches and of the target.  Pure.

As ``iptables-save`` prints them: long options have one spelling, ``!`` stands before the option.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kproxy.linux.netfilter.readers.ipset import Ipset
from kproxy.model.network import Family

Tokens = Sequence[str]


@dataclass(frozen=True, slots=True)
class Option:
    """One option with its values, in the match ``module`` it belongs to (empty: of the rule itself)."""

    module: str
    name: str
    values: tuple[str, ...]
    negated: bool


@dataclass(slots=True)
class ParsedRule:
    """A rule's options, its comment, and its target with the options of that."""

    options: list[Option] = field(default_factory=list)
    comment: str = ""
    target: str = ""
    goto: bool = False
    target_options: list[Option] = field(default_factory=list)


def parse_rule_tokens(tokens: Tokens) -> ParsedRule:
    """A rule's text after ``-A CHAIN``, split into options."""
    parsed, module, at = ParsedRule(), "", 0
    while at < len(tokens):
        negated = tokens[at] == "!"
        at += negated
        name = tokens[at] if at < len(tokens) else ""
        end = at + 1 + (name in _TEXTS)
        while end < len(tokens) and not _starts_option(tokens[end]):
            end += 1
        values = tuple(tokens[at + 1 : end])
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


_TEXTS = frozenset({"--comment", "--log-prefix", "--nflog-prefix", "--string", "--hex-string", "--prefix"})
"""Options whose value may begin with anything."""


def _starts_option(argument: str) -> bool:
    return argument == "!" or (argument.startswith("-") and not argument[1:2].isdigit() and len(argument) > 1)


def option_text(option: Option) -> str:
    """As it was read."""
    return " ".join(["!"] * option.negated + [option.name, *option.values])


@dataclass(frozen=True, slots=True)
class RuleContext:
    """Context of a rule that is read: the family, the chains there are (what else is a target), the sets."""

    family: Family
    chains: frozenset[str]
    sets: Mapping[str, Ipset]

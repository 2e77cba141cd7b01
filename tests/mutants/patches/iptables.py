"""Patches of iptables mode: families of typed rules, and changes of the compiler's output."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from kproxy.linux.netfilter.patterns import FieldName, Masked
from kproxy.linux.netfilter.rules import Chain, Is, Jump, Rule, Step
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.iptables.compile import Context
from kproxy.proxy.backends.iptables.static_rules import Options
from kproxy.proxy.backends.xtables.rules import ChainName, HookRules, TableName
from tests.mutants.mutant import Function, Patch

FILTER = TableName.FILTER
MARK = Jump(names.MARK_MASQUERADE)
"""In ipvs mode's rules too."""
POOLS = "KUBE-SV"
"""Common prefix of the names of both pools' chains, KUBE-SVC- and KUBE-SVL-."""
EXTERNAL, RANGES, ENDPOINT = names.EXTERNAL_PREFIX, names.SOURCE_RANGES_PREFIX, names.ENDPOINT_PREFIX

Edit = Callable[[Rule], Rule | None]
Kind = FieldName | type[Step]
"""Of a match: the first field that it compares, or the class of one that compares none."""


def kind_of(match: Step) -> object:
    """The kind of a match."""
    if not isinstance(match, Is):
        return type(match)
    return match.key[0].field if isinstance(match.key[0], Masked) else match.key[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A family of rules.

    ``chain``: prefix of the names of its chains.  ``target``: a kind of target, or a target; a `Jump` has a prefix of
    its chain.  ``having`` and ``lacking``: kinds of matches.  ``comment``: its suffix.
    """

    chain: str
    target: type[Step] | Step
    table: TableName = TableName.NAT
    having: tuple[Kind, ...] = ()
    lacking: tuple[Kind, ...] = ()
    comment: str = ""

    def holds(self, table: TableName, chain: ChainName, rule: Rule) -> bool:
        """True if a rule of that chain belongs to the family."""
        kinds = set(map(kind_of, rule.steps[:-1]))
        return (
            table is self.table
            and chain.startswith(self.chain)
            and rule.comment.endswith(self.comment)
            and self._is_target(rule.steps[-1])
            and kinds.issuperset(self.having)
            and kinds.isdisjoint(self.lacking)
        )

    def _is_target(self, target: Step) -> bool:
        wanted = self.target
        if isinstance(wanted, type):
            return isinstance(target, wanted)
        if isinstance(wanted, Jump):
            return isinstance(target, Jump) and target.chain.startswith(wanted.chain)
        return target == wanted


def left_out(family: Rules) -> tuple[Patch, ...]:
    """The family is not written."""
    return edited(family, lambda _: None)


def without(family: Rules, *kinds: Kind) -> tuple[Patch, ...]:
    """The family is written without matches of these kinds."""
    return edited(
        family, lambda rule: replace(rule, steps=tuple(s for s in rule.steps if kind_of(s) not in kinds))
    )


def with_match(family: Rules, changed: Callable[[Step], Step]) -> tuple[Patch, ...]:
    """The family is written with each match changed."""
    return edited(family, lambda rule: replace(rule, steps=(*map(changed, rule.steps[:-1]), rule.steps[-1])))


def with_target(family: Rules, target: Step) -> tuple[Patch, ...]:
    """The family is written with another target."""
    return edited(family, lambda rule: replace(rule, steps=(*rule.steps[:-1], target)))


def edited(family: Rules, edit: Edit) -> tuple[Patch, ...]:
    """Patches of all functions that return rules: the family's rules are edited, others unchanged."""
    editor = _Editor(family, edit)
    return (
        Patch("kproxy.proxy.backends.iptables.desired_state:own_chains", editor.own_chains),
        Patch("kproxy.proxy.backends.iptables.desired_state:dispatch", editor.dispatch),
        Patch("kproxy.proxy.backends.iptables.static_rules:static_chains", editor.constant_chains),
        Patch("kproxy.proxy.backends.iptables.static_rules:node_port_rules", editor.last_rules),
        Patch("kproxy.proxy.backends.iptables.static_rules:martian_guard", editor.guard),
        Patch("kproxy.proxy.backends.iptables.static_rules:hook_rules", editor.hooks),
    )


@dataclass(frozen=True, slots=True)
class _Editor:
    """Wraps for the functions that return rules; each is named after its function's result."""

    family: Rules
    edit: Edit

    def own_chains(self, chains: Function) -> Function:
        return lambda *of: tuple(self._chain(TableName.NAT, chain) for chain in chains(*of))

    def dispatch(self, dispatch: Function) -> Function:
        return lambda *of: [
            shared._replace(rule=rule)
            for shared in dispatch(*of)
            for rule in self._rules(shared.chain.table, shared.chain.chain, [shared.rule])
        ]

    def constant_chains(self, constant: Function) -> Function:
        def chains(options: Options) -> dict[TableName, tuple[Chain, ...]]:
            tables = constant(options).items()
            return {table: tuple(self._chain(table, chain) for chain in found) for table, found in tables}

        return chains

    def last_rules(self, last: Function) -> Function:
        return lambda context: self._rules(TableName.NAT, names.SERVICES, last(context))

    def guard(self, martian_guard: Function) -> Function:
        def guard(context: Context) -> Chain | None:
            found = martian_guard(context)
            return found and self._chain(TableName.FILTER, found)

        return guard

    def hooks(self, hooks: Function) -> Function:
        return lambda **where: tuple(
            HookRules(h.table, h.hook, self._rules(h.table, h.hook.name, h.rules)) for h in hooks(**where)
        )

    def _chain(self, table: TableName, chain: Chain) -> Chain:
        return Chain(chain.name, self._rules(table, chain.name, chain.rules))

    def _rules(self, table: TableName, chain: ChainName, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        new = (self.edit(rule) if self.family.holds(table, chain, rule) else rule for rule in rules)
        return tuple(rule for rule in new if rule is not None)

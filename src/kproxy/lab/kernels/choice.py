"""Choice of a kernel: the first that has all abilities needed, with the reasons.

Pure but for the surveys passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kproxy.lab.kernels import host
from kproxy.lab.kernels.abilities import Ability, KernelName, KernelSurvey
from kproxy.lab.kernels.uml import BUILD
from kproxy.lab.namespaces import LabError

Need = frozenset[Ability]
"""Alternative abilities, any of which is enough."""

Surveyors = Mapping[KernelName, Callable[[], KernelSurvey]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelNeeds:
    """Needs of a run: ``always`` to run at all, ``fully`` to leave no case out.

    ``insist``: a later kernel that leaves none out is better than an earlier one that does.
    """

    always: frozenset[Need]
    fully: frozenset[Need] = frozenset()
    insist: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChoice:
    """Kernel to run on; ``passed_over``: the reason against each one before it; ``without``: needs it leaves unsatisfied."""

    survey: KernelSurvey
    passed_over: Mapping[KernelName, str]
    without: frozenset[Need] = frozenset()

    def __str__(self) -> str:
        """Text of the choice, with the reasons against the kernels passed over."""
        over = (f"{name.value}: {reason}" for name, reason in self.passed_over.items())
        first = f"kernel: {self.survey.name.value} ({self.survey.what})"
        left_out = [f"cases that need {describe_needs(self.without)} are left out"] if self.without else []
        return "; ".join([first, *left_out, *over])


def missing_needs(survey: KernelSurvey, needs: frozenset[Need]) -> frozenset[Need]:
    """Needs that a usable kernel does not satisfy."""
    return frozenset(need for need in needs if all(survey.obstacles.get(ability, "?") for ability in need))


def describe_needs(needs: frozenset[Need]) -> str:
    """Text of needs: ``iptables-legacy or iptables-nft, sctp``."""
    return ", ".join(sorted(" or ".join(sorted(ability.value for ability in need)) for need in needs))


def reason_against(survey: KernelSurvey, needs: frozenset[Need]) -> str:
    """Reason why a kernel cannot be used, with the remedy; empty when it can."""
    if survey.unusable:
        return f"{survey.unusable} ({survey.fix})" if survey.fix else survey.unusable
    missing = describe_needs(missing_needs(survey, needs))
    if not missing:
        return ""
    required = sorted({ability for need in needs for ability in need}, key=list(Ability).index)
    reasons = (survey.obstacles.get(ability, "") for ability in required)
    packages = "; ".join(dict.fromkeys(reason for reason in reasons if "apt-get" in reason))
    return f"no {missing} ({packages})" if packages else f"no {missing}"


def pick_kernel(surveyors: Surveyors, needs: KernelNeeds) -> KernelChoice:
    """The first kernel that satisfies the needs; surveys are made one by one and no further than needed.

    Raises `LabError` when none does.
    """
    surveys: dict[KernelName, KernelSurvey] = {}
    against: dict[KernelName, str] = {}
    first = needs.always | needs.fully if needs.insist else needs.always
    for name, survey in surveyors.items():
        surveys[name] = survey()
        against[name] = reason_against(surveys[name], first)
        if not against[name]:
            return _chosen(surveys[name], against, needs)
    for known in surveys.values():
        if not reason_against(known, needs.always):
            return _chosen(known, against, needs)
    raise LabError("no kernel can run this: " + "; ".join(f"{n.value}: {r}" for n, r in against.items()))


def _chosen(survey: KernelSurvey, against: Mapping[KernelName, str], needs: KernelNeeds) -> KernelChoice:
    others = {name: reason for name, reason in against.items() if name is not survey.name}
    return KernelChoice(survey=survey, passed_over=others, without=missing_needs(survey, needs.fully))


def ability_fix(survey: KernelSurvey, ability: Ability) -> str:
    """Remedy for an ability that a kernel lacks; empty where there is none."""
    reason = survey.obstacles.get(ability, "")
    if not reason or "apt-get" in reason:
        return reason
    match survey.name:
        case KernelName.HOST:
            return host.host_fix(ability)
        case KernelName.ROOTLESS if ability in host.MODULES:
            return f"root: modprobe {host.MODULES[ability]}; or --kernel uml"
        case KernelName.UML:
            return BUILD
        case _:
            return "--kernel uml"

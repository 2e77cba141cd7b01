"""Which kernel is taken, and what is reported of the others."""

from collections.abc import Mapping

import pytest
from rich.console import Console

from kproxy.lab.kernels.abilities import (
    Ability,
    KernelName,
    KernelSurvey,
    Obstacles,
    decode_obstacles,
    encode_obstacles,
)
from kproxy.lab.kernels.choice import KernelNeeds, ability_fix, pick_kernel
from kproxy.lab.kernels.command import abilities_table, kernel_advice, simulation_advice
from kproxy.lab.namespaces import LabError

VETH, SCTP, NFT, LEGACY = Ability.VETH, Ability.SCTP, Ability.IPTABLES_NFT, Ability.IPTABLES_LEGACY
HOST, ROOTLESS, UML, VM = KernelName


def survey(name: KernelName, *works: Ability, lacks: tuple[Ability, ...] = ()) -> KernelSurvey:
    obstacles = dict.fromkeys(works, "") | dict.fromkeys(lacks, "not in this kernel")
    return KernelSurvey(name=name, what=f"kernel of {name.value}", obstacles=obstacles)


def needs(*always: Ability, fully: tuple[Ability, ...] = (), insist: bool = False) -> KernelNeeds:
    return KernelNeeds(
        always=frozenset(frozenset({ability}) for ability in always),
        fully=frozenset(frozenset({ability}) for ability in fully),
        insist=insist,
    )


def chosen(wanted: KernelNeeds, *surveys: KernelSurvey) -> tuple[KernelName, str]:
    choice = pick_kernel({known.name: lambda known=known: known for known in surveys}, wanted)  # type: ignore[misc]
    return choice.survey.name, str(choice)


def test_the_first_kernel_that_can_is_taken_and_reports_which_it_is() -> None:
    assert chosen(needs(VETH), survey(HOST, VETH), survey(UML, VETH)) == (
        HOST,
        "kernel: host (kernel of host)",
    )


def test_kernels_after_the_first_that_can_are_not_looked_at() -> None:
    def never() -> KernelSurvey:
        raise AssertionError

    assert pick_kernel({HOST: lambda: survey(HOST, VETH), UML: never}, needs(VETH)).survey.name is HOST


def test_a_kernel_that_lacks_something_is_passed_over_and_reports_what() -> None:
    name, text = chosen(needs(VETH, SCTP), survey(HOST, VETH, lacks=(SCTP,)), survey(UML, VETH, SCTP))
    assert name is UML
    assert text == "kernel: uml (kernel of uml); host: no sctp"


def test_what_was_not_found_out_counts_as_lacking() -> None:
    assert chosen(needs(VETH), survey(HOST), survey(UML, VETH))[0] is UML


def test_one_of_two_abilities_is_enough() -> None:
    either = KernelNeeds(always=frozenset({frozenset({NFT, LEGACY})}))
    assert chosen(either, survey(HOST, LEGACY, lacks=(NFT,)))[0] is HOST
    with pytest.raises(LabError, match="no iptables-legacy or iptables-nft"):
        chosen(either, survey(HOST, lacks=(NFT, LEGACY)))


def test_a_kernel_that_cannot_be_used_gives_its_reason_and_the_fix() -> None:
    unusable = KernelSurvey(name=HOST, unusable="this user is not root", fix="run it with sudo")
    name, text = chosen(needs(VETH), unusable, survey(ROOTLESS, VETH))
    assert name is ROOTLESS
    assert "host: this user is not root (run it with sudo)" in text


def test_of_all_cases_a_few_may_be_left_out_but_that_is_reported() -> None:
    kernels = survey(HOST, VETH, lacks=(SCTP,)), survey(UML, VETH, SCTP)
    name, text = chosen(needs(VETH, fully=(SCTP,)), *kernels)
    assert name is HOST
    assert "cases that need sctp are left out" in text


def test_cases_that_were_requested_by_name_find_a_kernel_that_runs_them_all() -> None:
    kernels = survey(HOST, VETH, lacks=(SCTP,)), survey(UML, VETH, SCTP)
    assert chosen(needs(VETH, fully=(SCTP,), insist=True), *kernels)[0] is UML
    name, text = chosen(needs(VETH, fully=(SCTP,), insist=True), kernels[0])
    assert name is HOST
    assert "cases that need sctp are left out" in text


def test_when_none_will_do_each_one_reports_why() -> None:
    kernels = (
        survey(HOST, lacks=(VETH,)),
        KernelSurvey(name=VM, unusable="not here: vng", fix="pipx install virtme-ng"),
    )
    with pytest.raises(LabError) as refused:
        chosen(needs(VETH), *kernels)
    assert str(refused.value) == (
        "no kernel can run this: host: no veth; vm: not here: vng (pipx install virtme-ng)"
    )


def test_a_missing_program_is_reported_with_its_package() -> None:
    reason = "ip is not installed: apt-get install iproute2"
    with pytest.raises(LabError, match="apt-get install iproute2"):
        chosen(needs(VETH), KernelSurvey(name=HOST, obstacles={VETH: reason}))
    assert ability_fix(KernelSurvey(name=HOST, obstacles={VETH: reason}), VETH) == reason


# ------------------------------------------------------------------------------ the doctor


def printed(*surveys: KernelSurvey) -> Mapping[str, list[str]]:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(abilities_table(surveys))
    rows = [line.split() for line in capture.get().splitlines()]
    return {row[0]: row[1:] for row in rows}


def test_the_doctors_table_has_a_row_for_each_ability_and_a_column_for_each_kernel() -> None:
    unusable = KernelSurvey(name=VM, unusable="not here")
    rows = printed(survey(HOST, VETH, lacks=(SCTP,)), survey(UML, VETH, SCTP), unusable)
    assert rows["host"] == ["uml", "vm"]
    assert rows["veth"] == ["yes", "yes", "-"]
    assert rows["sctp"] == ["no", "yes", "-"]
    assert rows["dummy"] == ["?", "?", "-"]
    assert set(rows) == {"host", *(ability.value for ability in Ability)}


def test_the_doctor_reports_what_to_do_about_all_that_is_missing() -> None:
    lacking = [survey(name, lacks=(SCTP,)) for name in (HOST, ROOTLESS, UML)]
    lines = "\n".join(kernel_advice([*lacking, KernelSurvey(name=VM, unusable="not here", fix="install it")]))
    for arguments in (
        "modprobe sctp, or --kernel uml",
        "root: modprobe sctp",
        "kproxy lab kernel build",
        "install it",
    ):
        assert arguments in lines
    assert list(kernel_advice([survey(UML, *Ability)])) == ["", "uml: kernel of uml"]


def test_the_doctor_reports_if_there_is_a_kernel_for_universes() -> None:
    assert simulation_advice([survey(HOST), survey(UML, Ability.TIME_TRAVEL)]).endswith("(kernel of uml)")
    for lacking in (
        survey(UML, lacks=(Ability.TIME_TRAVEL,)),
        survey(UML),
        KernelSurvey(name=UML, unusable="none"),
    ):
        assert simulation_advice([lacking]).endswith("kproxy lab kernel build")


def test_the_doctor_reports_what_universes_lack() -> None:
    able = survey(UML, *Ability)
    assert "cannot" not in simulation_advice([able])
    without = survey(UML, Ability.TIME_TRAVEL, lacks=(Ability.NFTABLES, Ability.IP_VS))
    line = simulation_advice([without])
    assert line.endswith("; modes that need nftables, ip_vs cannot be simulated: kproxy lab kernel build")
    line = simulation_advice([able], "OSError: [Errno 1] no mount namespace, and a universe needs it")
    assert "this machine can start no universe: OSError: [Errno 1] no mount namespace" in line


def test_obstacles_survive_being_written() -> None:
    obstacles: Obstacles = {VETH: "", SCTP: "no\nsuch thing"}
    assert decode_obstacles(encode_obstacles(obstacles)) == obstacles

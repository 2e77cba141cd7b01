"""User-Mode Linux as a value: which kernel is found, what it can do, how it is started and built."""

import shlex
import subprocess
from pathlib import Path

import pytest

from kproxy.lab.kernels import build, uml, universe
from kproxy.lab.kernels.abilities import Ability
from kproxy.lab.kernels.uml import Time, UmlJob, UmlKernel, obstacles, uml_candidates, uml_command_line
from kproxy.lab.namespaces import LabError

STOCK = """
CONFIG_NET_NS=y
CONFIG_VETH=m
CONFIG_IP_NF_NAT=m
CONFIG_IP6_NF_NAT=m
# CONFIG_NF_TABLES_INET is not set
# CONFIG_NF_TABLES_IPV4 is not set
CONFIG_NFT_COMPAT=m
CONFIG_IP_SCTP=m
"""


def a_job(time: Time = Time.REAL, modules: str = "") -> UmlJob:
    kernel = UmlKernel(path=Path("/k/linux"), origin="", release="7.0", obstacles={}, modules=modules)
    return UmlJob(
        kernel=kernel, argv=("a", "b c"), environment={"E": "1"}, cwd=Path("/w"), memory=300, time=time
    )


# ------------------------------------------------------------------------------ finding one


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    path.chmod(0o755)
    return path


def test_the_option_comes_before_the_variable_before_built_ones_before_the_package(tmp_path: Path) -> None:
    built = [
        program(tmp_path / "kproxy/kernels" / name) for name in ("linux-6.9-kproxy", "linux-6.12.1-kproxy")
    ]
    stock = program(tmp_path / "bin/linux.uml")
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": str(stock.parent)}
    found = [path for path, _ in uml_candidates("", environment)]
    assert found == [built[1], built[0], stock]
    named = environment | {uml.VARIABLE: "/from/variable"}
    assert [path for path, _ in uml_candidates("", named)] == [Path("/from/variable")]
    assert [path for path, _ in uml_candidates("/from/option", named)] == [Path("/from/option")]


def test_without_any_kernel_it_reports_how_to_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uml, "uml_candidates", lambda *_: iter(()))
    with pytest.raises(LabError, match="kproxy lab kernel build"):
        uml.find_uml_kernel()
    assert "kproxy lab kernel build" in uml.survey_uml().unusable


def test_what_is_no_kernel_is_refused_by_name(tmp_path: Path) -> None:
    impostor = program(tmp_path / "linux")
    with pytest.raises(LabError, match=f"{impostor} .* is not a User-Mode Linux kernel"):
        uml.find_uml_kernel(str(impostor))


def kernel_with(path: Path, config: str) -> Path:
    program(path).write_text(
        f"#!/bin/sh\ncase $1 in --version) echo 6.1;; *) echo '{config}';; esac\n", encoding="utf-8"
    )
    return path


TRAVELS = "CONFIG_UML_TIME_TRAVEL_SUPPORT=y"


def test_a_universe_has_the_first_kernel_with_virtual_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uml, "universe_obstacle", lambda: "")
    stock, able = kernel_with(tmp_path / "stock", STOCK), kernel_with(tmp_path / "able", TRAVELS)
    candidates = [(stock, "package"), (able, "built")]
    monkeypatch.setattr(uml, "uml_candidates", lambda *_: iter(candidates))
    assert uml.find_universe_kernel().path == able
    candidates.pop()
    with pytest.raises(LabError) as refused:
        uml.find_universe_kernel()
    assert str(refused.value) == (
        f"{stock} (package) has no virtual time (built without CONFIG_UML_TIME_TRAVEL_SUPPORT): "
        "kproxy lab kernel build, or give --uml-kernel PATH of one that has it"
    )


def test_without_a_kernel_a_universe_reports_the_fix_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LabError, match=r"is not a User-Mode Linux kernel.*: kproxy lab kernel build"):
        uml.find_universe_kernel(str(tmp_path / "none"))
    monkeypatch.setattr(uml, "uml_candidates", lambda *_: iter(()))
    with pytest.raises(LabError, match=r"^there is no User-Mode Linux kernel: kproxy lab kernel build, or"):
        uml.find_universe_kernel()


def test_what_forbids_a_universe_on_this_machine_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    able = kernel_with(tmp_path / "able", TRAVELS)
    script = tmp_path / "universe.py"
    monkeypatch.setattr(universe, "__file__", str(script))
    script.write_text("raise OSError(1, 'no mount namespace')")
    with pytest.raises(LabError, match=r"can start no universe: .*no mount namespace"):
        uml.find_universe_kernel(str(able))
    script.write_text("")
    assert uml.find_universe_kernel(str(able)).path == able


def test_abilities_are_read_from_the_configuration_modules_included() -> None:
    lacking = obstacles(STOCK)
    for ability in (Ability.NAMESPACES, Ability.VETH, Ability.IPTABLES_LEGACY, Ability.SCTP):
        assert lacking[ability] == ""
    assert lacking[Ability.NFTABLES].startswith("built without CONFIG_NF_TABLES_INET, CONFIG_NF_TABLES_IPV4")
    assert "CONFIG_UML_TIME_TRAVEL_SUPPORT" in lacking[Ability.TIME_TRAVEL]


def test_our_own_configuration_has_every_ability() -> None:
    assert {ability: reason for ability, reason in obstacles(build.config_fragment()).items() if reason} == {}
    assert set(uml.SYMBOLS) == set(Ability)


# ------------------------------------------------------------------------------ starting one


def test_a_guest_has_the_hosts_files_its_memory_and_orders_on_a_serial_line() -> None:
    arguments = uml_command_line(a_job(), Path("/job"))
    assert arguments[0] == "/k/linux"
    assert {"mem=300M", "rootfstype=hostfs", "rootflags=/", "init=/job/init", "ssl0=fd:0,null"} <= set(
        arguments
    )
    assert "time-travel" not in arguments


def test_virtual_time_is_a_mode_of_the_kernel() -> None:
    arguments = uml_command_line(a_job(Time.VIRTUAL), Path("/job"))
    assert "time-travel" in arguments


def test_a_job_is_written_down_whole() -> None:
    assert a_job(modules="/m").document() == {
        "argv": ["a", "b c"],
        "environment": {"E": "1"},
        "cwd": "/w",
        "modules": "/m",
    }


def test_the_first_program_of_a_guest_survives_spaces_in_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/my projects/python")
    first, _, second = uml.init_script(Path("/j ob")).splitlines()
    assert first == "#!/bin/sh"
    tokens = shlex.split(second)
    assert tokens[:2] == ["exec", "/my projects/python"]
    assert tokens[-1] == "/j ob"
    assert Path(tokens[-2]).is_file()


def test_the_guests_program_refuses_to_run_anywhere_else(tmp_path: Path) -> None:
    tokens = shlex.split(uml.init_script(tmp_path).splitlines()[-1])[1:]
    refused = subprocess.run(tokens, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "only as the first process of a guest" in refused.stderr


@pytest.mark.parametrize(
    ("path", "seen"), [("/home/me", True), ("/srv/x", True), ("/run/user/1", False), ("/dev/x", False)]
)
def test_a_guest_does_not_see_what_it_covers(path: str, seen: bool) -> None:  # noqa: FBT001
    assert uml.visible(Path(path)) is seen


def test_memory_needs_a_file_system_with_room() -> None:
    assert uml.memory_folder(1).is_dir()
    with pytest.raises(LabError, match="try --memory"):
        uml.memory_folder(1 << 40)


# ------------------------------------------------------------------------------ building one


def test_the_newest_source_is_taken_by_number() -> None:
    search = "linux-source - meta-package\nlinux-source-6.9 - nine\nlinux-source-6.12 - twelve\nlinux-source-6.1 - one\n"
    assert build.newest_source_package(search) == "linux-source-6.12"
    with pytest.raises(LabError, match="apt-get update"):
        build.newest_source_package("linux-source - meta-package\n")


def test_symbols_that_a_source_did_not_give_are_reported() -> None:
    requested = build.parse_config("# CONFIG_NO=y\nCONFIG_A=y\nCONFIG_B=m\n")
    assert requested == {"CONFIG_A": "y", "CONFIG_B": "m"}
    assert build.missing_symbols(requested, build.parse_config("CONFIG_A=y\n# CONFIG_B is not set\n")) == [
        "CONFIG_B"
    ]


def test_a_build_without_its_tools_names_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda tool: None if tool in {"flex", "gcc"} else tool)
    with pytest.raises(LabError, match="apt-get install flex gcc"):
        build.build_uml_kernel(build.Recipe(cache=tmp_path / "cache"), lambda _: {}, lambda _: None)
    assert list(tmp_path.iterdir()) == []

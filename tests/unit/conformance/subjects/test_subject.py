"""Subject files: what is read from them, and how errors in them are reported."""

from pathlib import Path

import pytest

from kproxy.conformance.case import OPTIONAL_FEATURES, Feature
from kproxy.conformance.subjects.subject import (
    BUNDLED,
    DOCUMENTED_SUBJECTS,
    PLACEHOLDERS,
    FileSystem,
    InvalidSubject,
    fill_placeholders,
    load_subject,
    subject_from_toml,
)
from tests.support.paths import ROOT

GOOD = """
name = "my-proxy"
modes = ["iptables", "ebpf"]
command = ["{binary}", "--config={config}"]
version-command = ["{binary}", "--version"]
binary = "/opt/my-proxy"
min-sync-period = "1s"
features = ["NodePort", "IPv6"]

[environment]
NODE = "{node}"

[files]
"settings.json" = '{"node": "{node_name}"}'

[[deviations]]
mode = "ebpf"
link = "https://example.com/issues/1"
text = "it forgets"
excuses = [{ case = "affinity.*", clauses = ["affinity.client-ip.sticks"], steps = [3] }]
"""
SMALL = 'name = "x"\nmodes = ["m"]\ncommand = ["c"]\n'


def refusal(text: str, binary: str = "") -> str:
    with pytest.raises(InvalidSubject) as refused:
        subject_from_toml(text, "my.toml", binary)
    assert str(refused.value).startswith("my.toml: ")
    return str(refused.value)


def test_every_key_is_read() -> None:
    subject = subject_from_toml(GOOD, "my.toml")
    assert (subject.name, subject.modes) == ("my-proxy", ("iptables", "ebpf"))
    assert subject.command == ("{binary}", "--config={config}")
    assert subject.version_command == ("{binary}", "--version")
    assert (subject.binary, subject.min_sync_period) == ("/opt/my-proxy", "1s")
    assert subject.features == {Feature.NODE_PORT, Feature.IPV6}
    assert subject.environment == {"NODE": "{node}"}
    assert subject.files == {"settings.json": '{"node": "{node_name}"}'}
    assert [deviation.link for deviation in subject.deviations] == ["https://example.com/issues/1"]


def test_what_is_left_out_claims_everything_and_excuses_nothing() -> None:
    subject = subject_from_toml(SMALL, "my.toml")
    assert subject.features == frozenset(Feature) - OPTIONAL_FEATURES
    assert (subject.deviations, subject.environment, subject.files) == ((), {}, {})


def test_an_empty_list_of_features_claims_none() -> None:
    assert subject_from_toml(f"{SMALL}features = []", "my.toml").features == frozenset()


def test_a_cleanup_is_claimed_where_there_is_a_command_for_it_and_the_mode_is_not_excepted() -> None:
    command, excepted = 'cleanup-command = ["/bin/true"]\n', '[without]\nm = ["cleanup"]\n'
    claimed = [
        Feature.CLEANUP in subject_from_toml(f"{SMALL}{more}", "my.toml").claimed_features("m")
        for more in (command, "", f"{command}{excepted}")
    ]
    assert claimed == [True, False, False]


def test_a_file_is_loaded_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(GOOD, encoding="utf-8")
    assert load_subject(str(path)).name == "my-proxy"


def test_a_binary_that_is_given_beats_the_one_of_the_file() -> None:
    assert subject_from_toml(GOOD, "my.toml", "/usr/bin/other").binary == "/usr/bin/other"


@pytest.mark.parametrize("key", ["name", "modes", "command"])
def test_a_missing_key_is_named(key: str) -> None:
    lines = [line for line in SMALL.splitlines() if not line.startswith(key)]
    assert f"`{key}`" in refusal("\n".join(lines))


def test_unknown_keys_are_named_with_those_that_are_known() -> None:
    message = refusal(f"{SMALL}colours = []\nversion_command = []")
    assert "unknown keys colours, version_command;" in message
    assert "features" in message
    assert "version-command" in message


def test_an_unknown_feature_is_named_with_those_that_are_known() -> None:
    message = refusal(f'{SMALL}features = ["NodePort", "Teleport"]')
    assert "'Teleport'" in message
    assert "externalTrafficPolicy" in message


@pytest.mark.parametrize(
    "wrong",
    [
        SMALL.replace('["m"]', '"iptables"'),
        SMALL.replace('["c"]', '"my-proxy --config"'),
        SMALL.replace('["m"]', "[]"),
        SMALL.replace('["c"]', "[]"),
        SMALL.replace('"x"', '""'),
        f"{SMALL}[environment]\nLEVEL = 3",
        f"{SMALL}binary = 3",
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_its_place(wrong: str) -> None:
    assert "$." in refusal(wrong)


def test_text_that_is_no_toml_is_refused_with_its_place() -> None:
    assert "line 2" in refusal("name = 'x'\nmodes = oops\n")


EXCUSE = 'excuses = [{ case = "a.*", clauses = ["affinity.client-ip.sticks"] }]'
LINKED = 'text = "it differs"\nlink = "https://example.com"\n'


@pytest.mark.parametrize(
    "deviation",
    [
        f'text = "it differs"\n{EXCUSE}',
        f'text = "it differs"\nlink = ""\n{EXCUSE}',
        f'text = "it differs"\nlink = "somewhere"\n{EXCUSE}',
        f'text = ""\nlink = "https://example.com"\n{EXCUSE}',
        f'{LINKED}reason = "x"\n{EXCUSE}',
        f'{LINKED}mode = "n"\n{EXCUSE}',
        f"{LINKED}excuses = []",
        f'{LINKED}excuses = [{{ case = "a.*" }}]',
        f'{LINKED}excuses = [{{ case = "a.*", clauses = [] }}]',
        f'{LINKED}excuses = [{{ case = "", clauses = ["affinity.client-ip.sticks"] }}]',
        f'{LINKED}excuses = [{{ case = "a.*", clauses = ["affinity.client-ip.sticks"], steps = [0] }}]',
    ],
)
def test_a_deviation_without_a_link_a_text_a_case_or_clauses_is_refused(deviation: str) -> None:
    assert "$.deviations[0]" in refusal(f"{SMALL}[[deviations]]\n{deviation}")


def test_a_deviation_by_a_clause_that_there_is_not_is_refused_with_its_name() -> None:
    deviation = LINKED + EXCUSE.replace("sticks", "stucks")
    assert "no clause is called affinity.client-ip.stucks" in refusal(f"{SMALL}[[deviations]]\n{deviation}")


def test_a_deviation_of_a_whole_case_is_refused_and_shown_how_it_is_written() -> None:
    deviation = f'{LINKED}case = "a.*"'
    assert "excuses = [{ case =" in refusal(f"{SMALL}[[deviations]]\n{deviation}")


def test_a_program_that_is_not_given_is_requested() -> None:
    assert "--binary PATH" in refusal(SMALL.replace('"c"', '"{binary}"'))
    assert subject_from_toml(SMALL.replace('"c"', '"{binary}"'), "my.toml", "/bin/x").binary == "/bin/x"


def test_a_file_that_is_not_there_is_reported_with_the_names_that_are() -> None:
    with pytest.raises(InvalidSubject, match=r"no-such-proxy: No such file.*kproxy, kube-proxy, kube-router"):
        load_subject("no-such-proxy")


def test_placeholders_are_filled_and_other_braces_stay() -> None:
    values = {name: f"<{name}>" for name in PLACEHOLDERS}
    template = "".join(f"{{{name}}}" for name in PLACEHOLDERS)
    assert fill_placeholders(template, values) == "".join(values.values())
    assert fill_placeholders('{"node": "{node}", "x": {y}}', values) == '{"node": "<node>", "x": {y}}'


@pytest.mark.parametrize("name", DOCUMENTED_SUBJECTS)
def test_a_bundled_subject_is_what_it_is_called_and_claims_all(name: str) -> None:
    subject = load_subject(name, "/bin/true")
    assert subject.name == name
    assert "iptables" in subject.modes
    assert subject.features == frozenset(Feature) - OPTIONAL_FEATURES


@pytest.mark.parametrize("name", BUNDLED)
def test_every_deviation_of_a_bundled_subject_names_cases_modes_and_a_link(name: str) -> None:
    subject = load_subject(name, "/bin/true")
    for deviation in subject.deviations:
        assert deviation.mode in {"", *subject.modes}
        assert deviation.link.startswith(
            (
                "https://github.com/kubernetes/",
                "https://github.com/torvalds/linux/",
                "https://github.com/cloudnativelabs/kube-router/",
            )
        )


@pytest.mark.parametrize("name", DOCUMENTED_SUBJECTS)
def test_what_modes_cannot_do_is_reported(name: str) -> None:
    """Behaviours ``np.localhost.ipvs-nft``, ``np.forward-policy``, ``eip.is-node-ip``; kproxy's relay serves loopback.

    ``kube-proxy --cleanup`` fails after ipvs mode (docs/findings).
    """
    theirs = name == "kube-proxy"
    loopback = {Feature.LOCALHOST_NODE_PORTS} if theirs else set()
    cleanup = {Feature.CLEANUP} if theirs else set()
    assert load_subject(name, "/bin/true").without == {
        "nftables": {Feature.FORWARD_POLICY, Feature.INPUT_POLICY} | loopback,
        "ipvs": {Feature.EXTERNAL_IPS_OF_NODES, Feature.SHARED_SOURCE_PORT} | loopback | cleanup,
        **({} if theirs else {"userspace": {Feature.SCTP}}),
    }


def test_kproxy_deviates_only_by_what_its_kernel_or_a_socket_cannot_do() -> None:
    """SCTP's first packet, twins' answers, how long affinity lasts; and a socket's refusal of what a daemon listens to."""
    deviations = load_subject("kproxy").deviations
    unserved = "node-port.localhost-over-udp-and-without-endpoints"
    cases = {
        mode: {e.case for d in deviations if d.mode == mode for e in d.excuses}
        for mode in ("", "nftables", "ipvs")
    }
    assert cases[""] == set()
    assert cases["nftables"] == {unserved, "node-port.node-sends-from-its-number"}
    assert cases["ipvs"] == {
        unserved,
        "node-port.node-sends-from-its-number",
        "protocols.sctp-beside-the-others",
        "affinity.time-runs-out",
        "affinity.time-is-changed",
    }


def test_the_template_of_several_processes_is_a_subject() -> None:
    template = ROOT / "docs/examples/several-processes.toml"
    subject = load_subject(str(template), "/bin/true")
    assert [program.name for program in subject.all_processes] == ["agent", "controller"]
    assert subject.mounts["/sys/fs/bpf"] is FileSystem.BPF


@pytest.mark.parametrize(
    ("links", "given", "found"),
    [
        ("Project-URL: Source, https://git.test/p\nProject-URL: Issues, https://git.test/p/issues\n", "", ("https://git.test/p", "https://git.test/p/issues")),
        ("Project-URL: Source, https://git.test/p\n", 'url = "https://mine"', ("https://mine", "")),
        ("", "", ("", "")),
        (None, "", ("", "")),
    ],
)  # fmt: skip
def test_links_of_a_distribution_name_whom_results_are_about(
    links: str | None, given: str, found: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if links is not None:
        (tmp_path / "some_proxy-1.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: some-proxy\nVersion: 1\n{links}"
        (tmp_path / "some_proxy-1.dist-info/METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "mine.toml"
    file.write_text(
        f'name = "x"\nmodes = ["a"]\ncommand = ["x"]\n[implementation]\n{given}\ndistribution = "some-proxy"\n'
    )
    about = load_subject(str(file)).implementation
    assert (about.url, about.contact) == found

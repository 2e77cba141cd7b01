"""Programs from a release site: here a local HTTP server with its paths and checksums."""

import hashlib
import json
import platform
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kproxy.cli import main
from kproxy.lab.cluster import fetch
from kproxy.lab.namespaces import LabError

VERSION = "1.36.2"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Folder of the site: programs with their checksums."""
    folder = tmp_path / "site" / f"v{VERSION}" / "bin/linux/amd64"
    folder.mkdir(parents=True)
    for name in fetch.FETCHED:
        content = f"program {name}".encode()
        (folder / name).write_bytes(content)
        (folder / f"{name}.sha256").write_text(hashlib.sha256(content).hexdigest())
    return folder


@pytest.fixture
def release(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fetch.Release]:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert site.exists()
    handler = partial(_Quiet, directory=str(tmp_path / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield fetch.Release(version=VERSION, url=f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()


def test_all_programs_are_fetched_verified_and_executable(release: fetch.Release, tmp_path: Path) -> None:
    folder, lines = tmp_path / "assets", list[str]()
    fetch.fetch_programs(release, folder, lines.append)
    assert {file.name for file in folder.iterdir()} == set(fetch.FETCHED)
    assert all(file.stat().st_mode & 0o777 == 0o755 for file in folder.iterdir())
    assert lines == [f"{name}: fetched, checksum verified" for name in fetch.FETCHED]


def test_what_is_there_and_right_is_not_fetched_again(
    release: fetch.Release, site: Path, tmp_path: Path
) -> None:
    folder, lines = tmp_path / "assets", list[str]()
    fetch.fetch_programs(release, folder, lambda _: None)
    for name in fetch.FETCHED:
        (site / name).unlink()
    fetch.fetch_programs(release, folder, lines.append)
    assert lines == [f"{name}: there already, checksum verified" for name in fetch.FETCHED]


def test_a_program_reads_which_were_fetched(
    release: fetch.Release, site: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, file = tmp_path / "assets", tmp_path / "fetched.json"
    folder.mkdir()
    (folder / "kubelet").write_bytes((site / "kubelet").read_bytes())
    arguments = ("--assets", str(folder), "--url", release.url, "--version", VERSION)
    assert main(["lab", "cluster", "fetch", *arguments, "-o", "json", "--output", str(file)]) == 0
    assert json.loads(file.read_text()) == {
        "schema": "kproxy-lab-assets/1",
        "version": VERSION,
        "folder": str(folder),
        "fetched": [name for name in fetch.FETCHED if name != "kubelet"],
        "there": ["kubelet"],
    }
    assert capfd.readouterr().out == ""


def test_a_program_that_is_there_but_wrong_is_replaced(release: fetch.Release, tmp_path: Path) -> None:
    folder = tmp_path / "assets"
    folder.mkdir()
    (folder / "kubelet").write_text("of another version")
    fetch.fetch_programs(release, folder, lambda _: None)
    assert (folder / "kubelet").read_text() == "program kubelet"


def test_a_program_with_another_checksum_is_not_installed(
    release: fetch.Release, site: Path, tmp_path: Path
) -> None:
    (site / "kubelet").write_text("somebody else's")
    with pytest.raises(LabError, match=r"kubelet: .*it was not installed"):
        fetch.fetch_programs(release, tmp_path / "assets", lambda _: None)
    left = {file.name for file in (tmp_path / "assets").iterdir()}
    assert left == set(fetch.FETCHED) - {"kubelet"}


def test_all_that_is_missing_is_named(release: fetch.Release, site: Path, tmp_path: Path) -> None:
    (site / "kubelet").unlink()
    (site / "kube-proxy.sha256").write_text("<html>not found</html>")
    with pytest.raises(LabError) as raised:
        fetch.fetch_programs(release, tmp_path / "assets", lambda _: None)
    assert "kubelet: http://127.0.0.1" in str(raised.value)
    assert "404" in str(raised.value)
    assert "kube-proxy.sha256 is no checksum: '<html>" in str(raised.value)


def test_without_a_site_each_program_is_named_with_its_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch.run_fetch(tmp_path, VERSION, "http://127.0.0.1:9") == 2
    printed = capsys.readouterr().err
    assert all(f"/{name}.sha256 cannot be reached" in printed for name in fetch.FETCHED)


@pytest.mark.parametrize(
    ("version", "url"), [("1.36", "http://x"), ("latest", "http://x"), (VERSION, "file:///etc")]
)
def test_no_version_and_no_url_are_refused(version: str, url: str) -> None:
    with pytest.raises(LabError, match="give"):
        fetch.Release(version=version, url=url)


def test_a_folder_is_needed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    assert fetch.run_fetch(None, VERSION, fetch.RELEASES) == 2
    assert "--assets" in capsys.readouterr().err

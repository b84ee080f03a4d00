"""The app shows what is in its folder, as text, and nothing else can be reached."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rightreasons.errors import DataError, SettingError
from rightreasons.findings import Finding
from rightreasons.report import report
from rightreasons.serve import Server
from rightreasons.serve.folder import Folder
from rightreasons.study import Study
from sample_findings import EVIL, finding, saved, some
from serving import plan_of, serving

WAIT = 300  # seconds for an answer: on a busy machine many clients wait for one another


def unit(status: str, **told: Any) -> dict[str, Any]:
    return {"status": status, "plan": {}, "attempts": [{"time": "2026-01-01T00:00:00+00:00", "step": "train"}], **told}


def study(folder: Path, name: str = "sweep", done: int = 3) -> Path:
    """The files of a study at work: some units done, one running, one failed, one planned."""
    units = [f"u{k}" for k in range(done)] + ["running", "failed", "planned"]
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(plan_of(name, units)))
    for k in range(done):
        finish(folder, k)
    for status, told in (("running", {}), ("failed", {"error": {"type": "ValueError", "message": EVIL}})):
        place = folder / "runs" / status
        place.mkdir(parents=True)
        (place / "run.json").write_text(json.dumps(unit(status, **told)))
    return folder


def finish(folder: Path, number: int) -> None:
    place = folder / "runs" / f"u{number}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "run.json").write_text(json.dumps(unit("done", finished=f"2026-01-01T00:0{number}:00+00:00")))
    (place / "row.json").write_text(json.dumps({"measured": "x", "columns": {}}))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with two audits, a study, and much that is none of anybody's business."""
    root = tmp_path / "site"
    for name, verdict in (("before", "shortcut"), ("after", "no evidence")):
        saved(root / name, some(verdict=verdict))
        report(some(verdict=verdict), root / name / "report.html")
    study(root / "deep" / "sweep")
    (tmp_path / "secret.json").write_text('{"verdict": "secret"}')
    (tmp_path / "outside").mkdir()
    saved(tmp_path / "outside", some())
    (root / "before" / "private.txt").write_text("secret")
    (root / ".hidden").mkdir()
    saved(root / ".hidden" / "audit", some())
    return root


@pytest.fixture
def server(place: Path) -> Iterator[Server]:
    with serving(place) as made:
        yield made


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, http.client.HTTPMessage]:
    """The path goes out as it is written here."""
    connection = http.client.HTTPConnection(server.address.split("/")[2], timeout=WAIT)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body, answer.headers


class Parsed(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


def test_the_list_shows_studies_and_audits(server: Server) -> None:
    status, body, _ = ask(server, "/")
    parsed = Parsed(body.decode())
    assert status == 200
    links = {attributes["href"] for tag, attributes in parsed.tags if tag == "a"}
    assert {"/at/before/", "/at/after/", "/at/deep/sweep/", "/at/before/report.html"} <= links
    assert not [link for link in links if "hidden" in str(link)]
    assert "1 shortcut" in parsed.words and "3 of 6 done" in parsed.words


def test_an_entry_shows_its_findings_and_leads_to_its_files(server: Server, place: Path) -> None:
    parsed = Parsed(ask(server, "/at/before/")[1].decode())
    assert "Sentence of art." in parsed.words and "no reference models" in parsed.words
    for name in ("findings/art.json", "report.html"):
        assert name in {attributes.get("href") for _, attributes in parsed.tags}
        status, body, _ = ask(server, f"/at/before/{name}")
        assert status == 200
        assert body == (place / "before" / name).read_bytes()


def test_progress_follows_a_running_sweep(server: Server, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rightreasons.serve.folder.PROGRESS_SECONDS", 0.0)
    first = json.loads(ask(server, "/at/deep/sweep/progress.json")[1])
    assert (first["units"], first["done"], first["planned"]) == (6, 3, 1)
    assert first["running"][0]["unit"] == "running" and first["running"][0]["step"] == "train"
    assert first["failed"] == [{"unit": "failed", "error": f"ValueError: {EVIL}"}]
    assert first["seconds_left"] == pytest.approx(60 * 2)
    folder = place / "deep" / "sweep"
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps(plan_of(plan["name"], [*plan["units"], "u3"])))
    finish(folder, 3)
    told = json.loads(ask(server, "/at/deep/sweep/progress.json")[1])
    assert (told["units"], told["done"]) == (7, 4)
    page = Parsed(ask(server, "/at/deep/sweep/")[1].decode())
    assert EVIL.splitlines()[0] in page.words


def test_a_comparison_is_a_page(server: Server) -> None:
    status, body, headers = ask(server, "/compare?a=before&b=after")
    assert status == 200
    assert b"art: shortcut \xe2\x86\x92 no evidence" in body
    assert "sandbox" in headers["Content-Security-Policy"]
    for nothing in ("/compare", "/compare?a=before", "/compare?a=before&b=deep/sweep", "/compare?a=../outside&b=before"):
        assert ask(server, nothing)[0] == 404


def test_three_versions_are_a_trend_in_the_order_in_which_they_were_made(server: Server, place: Path) -> None:
    for day, name in ((3, "one"), (1, "two"), (2, "three")):
        saved(place / name, [finding("art", "shortcut" if day < 3 else "no evidence", created=f"2026-01-0{day}T00:00:00+00:00")])
    status, body, headers = ask(server, "/compare?of=one&of=two&of=three")
    assert status == 200
    assert b"two to one: 3 versions" in body
    assert "“shortcut” (two to three), then “no evidence” (one)" in body.decode()
    assert "sandbox" in headers["Content-Security-Policy"]
    status, body, _ = ask(server, "/compare?of=one&of=one")
    assert status == 400
    assert b"one was chosen" in body
    saved(place / "other", [finding("art", "shortcut", attribute="age")])
    status, body, _ = ask(server, "/compare?of=one&of=two&of=other")
    assert status == 422
    assert b"no attribute in common" in body
    for outside in ("../outside", "deep/sweep", "nowhere"):
        assert ask(server, f"/compare?of=one&of=two&of={outside}")[0] == 404


ESCAPES = [
    "/at/../outside/",
    "/at/%2e%2e/outside/",
    "/at/%2E%2E%2Foutside/",
    "/at/%252e%252e/outside/",
    "/at/..%5coutside/",
    "/at/before/../../outside/",
    "/at/before/findings/../../../secret.json",
    "/at/before/findings/..%2f..%2f..%2fsecret.json",
    "/at/before/findings/%2e%2e/%2e%2e/%2e%2e/secret.json",
    "/at//etc/passwd",
    "/at/%2fetc%2fpasswd",
    "/at/before/%00/",
    "/at/before/private.txt",
    "/at/deep/sweep/plan.json",
    "/at/deep/sweep/runs/failed/run.json",
    "/at/.hidden/audit/",
    "/../secret.json",
    "/etc/passwd",
    "/at/before",
    "/at/nothing/",
    "//secret.json",
    "/at/before/findings/",
    "/at/before/findings/none.json",
    "/at/before/progress.json",
    "/at/linked/",
    "/at/before/findings/linked.json",
    "/at/loop/",
    "/at/before/report.html/",
    "/at/" + "a/" * 900,
    "/at/" + "a" * 4000 + "/",
    "/at/%ff%fe/",
]


@pytest.mark.parametrize("path", ESCAPES)
def test_nothing_outside_and_nothing_private_is_served(server: Server, place: Path, path: str) -> None:
    (place / "linked").symlink_to(place.parent / "outside")
    (place / "before" / "findings" / "linked.json").symlink_to(place.parent / "secret.json")
    (place / "loop").symlink_to(place / "loop")
    status, body, _ = ask(server, path)
    assert status == 404, body
    assert b"secret" not in body and b"root:" not in body


def test_a_link_that_leaves_the_folder_is_not_even_counted(place: Path) -> None:
    (place / "before" / "findings" / "linked.json").symlink_to(place.parent / "secret.json")
    (place / "linked").symlink_to(place.parent / "outside")
    entries = {entry.path: entry for entry in Folder(place).entries()}
    assert set(entries) == {"before", "after", "deep/sweep"}
    assert dict(entries["before"].verdicts) == {"shortcut": 1, "described": 1, "not run": 1}


def test_a_study_whose_files_lie_elsewhere_has_no_progress(place: Path) -> None:
    elsewhere = study(place.parent / "elsewhere")
    (place / "deep" / "linked").mkdir()
    (place / "deep" / "linked" / "plan.json").write_text((elsewhere / "plan.json").read_text())
    (place / "deep" / "linked" / "runs").symlink_to(elsewhere / "runs")
    (place / "deep" / "plan").mkdir()
    (place / "deep" / "plan" / "plan.json").symlink_to(elsewhere / "plan.json")
    (place / "deep" / "climbs").mkdir()
    climbs = plan_of("x", ["../../../elsewhere/runs/failed"])
    (place / "deep" / "climbs" / "plan.json").write_text(json.dumps(climbs))
    with Server(place, port=0) as made:
        threading.Thread(target=made.run, daemon=True).start()
        for name in ("linked", "plan", "climbs"):
            assert ask(made, f"/at/deep/{name}/progress.json")[0] == 404
        status, body, _ = ask(made, "/")
        assert (
            status == 200 and b"ValueError" not in ask(made, "/at/deep/linked/")[1] and b"3 of 6" not in body.split(b"linked")[-1]
        )
        made.stop()


def test_it_only_shows(server: Server, place: Path) -> None:
    before = sorted((p, p.stat().st_mtime_ns) for p in place.rglob("*"))
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        status, _, headers = ask(server, "/", method)
        assert status == 405 and headers["Allow"] == "GET, HEAD"
    for path in ("/", "/at/before/", "/at/deep/sweep/", "/compare?a=before&b=after"):
        status, body, headers = ask(server, path, "HEAD")
        assert (status, body) == (200, b"") and int(headers["Content-Length"]) > 1000
    assert sorted((p, p.stat().st_mtime_ns) for p in place.rglob("*")) == before


def test_a_name_that_is_not_this_machine_is_refused(server: Server) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
        assert ask(server, "/", Host=host)[0] == 421
    for host in ("localhost:1", "127.0.0.1", "[::1]:8765"):
        assert ask(server, "/", Host=host)[0] == 200


def test_every_answer_has_the_headers_that_keep_a_browser_safe(server: Server) -> None:
    for path in (
        "/",
        "/at/before/",
        "/at/before/report.html",
        "/at/before/findings/art.json",
        "/nothing",
        "/compare?a=before&b=after",
    ):
        headers = ask(server, path)[2]
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["X-Frame-Options"] == "DENY"
        assert "unsafe" not in policy or "sandbox" in policy
    text = ask(server, "/")[1].decode()
    assert not re.search(r"<[^>]+\sstyle=", text)  # the policy would drop it


def test_a_page_that_the_client_has_is_not_sent_again(server: Server, place: Path) -> None:
    tag = ask(server, "/at/before/report.html")[2]["ETag"]
    assert ask(server, "/at/before/report.html", **{"If-None-Match": tag})[:2] == (304, b"")
    os.utime(place / "before" / "report.html", (1, 1))
    assert ask(server, "/at/before/report.html", **{"If-None-Match": tag})[0] == 200


def test_odd_names_are_shown_as_text(server: Server, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rightreasons.serve.folder.LIST_SECONDS", 0.0)
    name = """<script>alert(1)</script>"'&#مرحبا 🩻?x=%2e""".replace("/", "")
    saved(place / name, [finding(EVIL, question=EVIL, sentence=EVIL)])
    study(place / "odd", name=EVIL)
    time.sleep(0.01)
    with Server(place, port=0) as fresh:  # nothing kept from before
        threading.Thread(target=fresh.run, daemon=True).start()
        listed = Parsed(ask(fresh, "/")[1].decode())
        address = next(str(a["href"]) for tag, a in listed.tags if tag == "a" and "alert" in str(a.get("href")))
        shown = Parsed(ask(fresh, address)[1].decode())
        link = next(str(a["href"]) for tag, a in shown.tags if tag == "a" and str(a.get("href")).startswith("findings/"))
        status, body, _ = ask(fresh, address + link)
        fresh.stop()
    for page in (listed, shown):
        assert sum(tag == "script" for tag, _ in page.tags) == 1
        assert not [a for _, a in page.tags if any(key.startswith("on") for key in a)]
    assert name in listed.words and EVIL.replace("\u202e", "") in listed.words.replace("\u202e", "")
    assert "<script>alert(1)</script>" in shown.words
    assert status == 200 and json.loads(body)["name"] == EVIL


def test_files_that_are_something_else_do_not_break_the_list(place: Path) -> None:
    (place / "plan.json").write_text("[1, 2]")
    (place / "other").mkdir()
    (place / "other" / "plan.json").write_text("{not json")
    (place / "before" / "findings" / "broken.json").write_text("{")
    (place / "before" / "findings" / "list.json").write_text("[]")
    assert len(Folder(place).entries()) == 3


def test_findings_that_go_while_they_are_read_are_passed_over(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep that ends removes findings that it does not say any more; the others are shown."""
    read = Finding.read

    def read_too_late(path: Path) -> Finding:
        if path.name == "art.json":
            path.unlink()
        return read(path)

    folder = Folder(place)
    before = [one.name for one in folder.findings("before")]
    shutil.copytree(place / "before" / "findings", place / "again" / "findings")
    monkeypatch.setattr(Finding, "read", read_too_late)
    assert [one.name for one in folder.findings("again")] == [name for name in before if name != "art"]
    (place / "again" / "findings" / "broken.json").write_text("{")
    with pytest.raises(DataError, match="broken"):
        folder.findings("again")


def test_a_unit_whose_folder_is_being_replaced_is_planned(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two states of a unit that comes home from a store there is none for a moment."""
    told = Study.open(place / "deep" / "sweep")
    monkeypatch.setattr(Path, "exists", lambda path: True)  # it was there when it was looked for
    assert (told.run("planned")["status"], told.row("planned"), told.status("planned")) == ("planned", None, "planned")


def test_a_folder_that_is_itself_a_study_is_served(tmp_path: Path) -> None:
    study(tmp_path / "only")
    with Server(tmp_path / "only", port=0) as made:
        threading.Thread(target=made.run, daemon=True).start()
        assert "/at/progress.json" in ask(made, "/")[1].decode()
        assert json.loads(ask(made, "/at/progress.json")[1])["units"] == 6
        assert ask(made, "/at/")[0] == 200
        made.stop()


def test_a_port_that_is_taken_is_said(server: Server, tmp_path: Path) -> None:
    port = int(server.address.rstrip("/").rpartition(":")[2])
    for taken, host in ((port, "127.0.0.1"), (99_999, "127.0.0.1"), (0, "no.such.host.invalid")):
        with pytest.raises(SettingError, match="choose another port"):
            Server(tmp_path, host, taken)


def test_no_folder_no_server(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        Server(tmp_path / "none")


def test_fifty_clients_at_once_get_whole_answers(server: Server, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rightreasons.serve._Handler.timeout", WAIT)  # nor may a client be too late with its next question
    paths = ["/", "/at/before/", "/at/deep/sweep/progress.json", "/at/before/report.html"]
    page = (place / "before" / "report.html").read_bytes()

    def client(number: int) -> list[int]:
        connection = http.client.HTTPConnection(server.address.split("/")[2], timeout=WAIT)
        seen = []
        for k in range(8):
            connection.request("GET", paths[(number + k) % len(paths)])
            answer = connection.getresponse()
            body = answer.read()
            seen.append(answer.status)
            if paths[(number + k) % len(paths)].endswith(".html"):
                assert body == page
        connection.close()
        return seen

    with ThreadPoolExecutor(50) as pool:
        assert [s for seen in pool.map(client, range(50)) for s in seen] == [200] * 400


def test_a_client_that_goes_away_or_says_nothing_harms_nobody(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    host, port = server.address.split("/")[2].split(":")
    for sent in (b"", b"GET /at/before/report.html HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01 nonsense\r\n\r\n"):
        with socket.create_connection((host, int(port))) as raw:
            raw.sendall(sent)
    assert ask(server, "/")[0] == 200
    assert "Traceback" not in capsys.readouterr().err


# ---- what is broken ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["[]", "7", "{", "", '{"status": 3}', '{"status": "done", "attempts": "x"}', "[" * 100_000])
def test_a_broken_run_takes_nothing_else_down(server: Server, place: Path, content: str) -> None:
    (place / "deep" / "sweep" / "runs" / "running" / "run.json").write_text(content)
    status, body, _ = ask(server, "/")
    assert status == 200 and b"before" in body
    told = json.loads(ask(server, "/at/deep/sweep/progress.json")[1])
    assert told["done"] == 3 and any("run.json" in unit["error"] for unit in told["failed"])


def test_a_pipe_among_the_findings_stops_nobody(server: Server, place: Path) -> None:
    os.mkfifo(place / "before" / "findings" / "pipe.json")
    os.mkfifo(place / "deep" / "sweep" / "runs" / "planned.json")
    assert ask(server, "/")[0] == ask(server, "/at/before/")[0] == 200
    assert ask(server, "/at/before/findings/pipe.json")[0] == 404
    with pytest.raises(DataError, match="a pipe or a device"):
        Finding.read(place / "before" / "findings" / "pipe.json")


def test_a_host_or_a_query_that_cannot_be_read_is_refused(server: Server) -> None:
    assert ask(server, "/", Host="[")[0] == 421
    status, body, _ = ask(server, "/compare?" + "a=before&" * 50)
    assert status == 400 and b"takes two folders or more" in body
    assert ask(server, "//[")[0] in (400, 404)
    assert ask(server, "/")[0] == 200

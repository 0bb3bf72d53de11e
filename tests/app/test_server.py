"""The server: who may talk to it, what it answers, uploads, edits and answers."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from browser_tab import HOST, ORIGIN, PORT, STROKES, TOKEN, Tab, brush, connected, own
from densecrf.app import server as module
from densecrf.app import strokes
from densecrf.app.server import check_host, make_app
from densecrf.app.store import STATE, ImageFolder
from densecrf.io import read_labels, write_image
from scribbling import scene

# --- Who may talk to it --------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "images", "config", "image?name=first.png", "main.js"])
def test_nothing_is_answered_without_the_token(client, path):
    assert client.get(own(path)).status_code == 200
    for prefix in ("/", "/wrong/", f"/{TOKEN[:-1]}/", f"/{TOKEN}x/", "//"):
        assert client.get(prefix + path).status_code == 403


@pytest.mark.parametrize("path", ["*", "", "127.0.0.1:8650"])
def test_a_request_without_a_path_is_refused(folder, path):
    """As ``OPTIONS *`` and ``CONNECT`` are; clients of Python's do not send them."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    headers = [(b"host", HOST.encode())]
    scope = {"type": "http", "method": "OPTIONS", "path": path, "headers": headers}
    answered = make_app(ImageFolder(folder), TOKEN, PORT)(scope, receive, send)
    with ThreadPoolExecutor(1) as thread:  # a browser of other tests keeps a loop in this one
        thread.submit(asyncio.run, answered).result()
    assert sent[0]["status"] == 403


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have names in Unicode alone")
def test_a_folder_whose_name_is_not_utf_8_is_served(folder):
    other = os.fsdecode(os.fsencode(folder) + b"\xe9")
    folder.rename(other)
    with TestClient(make_app(ImageFolder(Path(other)), TOKEN, PORT), base_url=ORIGIN) as client:
        assert client.get(own("config")).status_code == 200
        assert client.get(own("image?name=first.png")).status_code == 200


def test_a_long_stroke_does_not_hold_up_the_server(client, monkeypatch):
    """Strokes are drawn by the solver's thread."""
    threads = set()
    draw = strokes.draw
    monkeypatch.setattr(
        strokes, "draw", lambda *args: threads.add(threading.current_thread().name) or draw(*args)
    )
    with connected(client) as socket:
        tab = Tab(socket)
        tab.draw(*STROKES)
        tab.until("saved")
        tab.until("answer", "certified")
    assert threads == {"densecrf-live"}


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", "localhost", ""]
)
def test_other_hosts_are_refused(client, host):
    assert client.get(own(""), headers={"host": host}).status_code == 403
    with (
        pytest.raises(WebSocketDisconnect),
        connected(client, host=host, origin=f"http://{host}"),
    ):
        pass


def test_loopback_names_are_served(client):
    for host in (HOST, f"localhost:{PORT}", f"[::1]:{PORT}"):
        assert client.get(own("config"), headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:8650", "http://127.0.0.1:1", None]
)
def test_other_origins_are_refused(client, origin):
    headers = {} if origin is None else {"origin": origin}
    if origin is not None:
        assert client.get(own("images"), headers=headers).status_code == 403
    assert client.post(own("upload?name=a.png"), headers=headers).status_code == 403
    with (
        pytest.raises(WebSocketDisconnect),
        client.websocket_connect(own("live"), headers={"host": HOST} | headers),
    ):
        pass


def test_requests_that_another_site_caused_are_refused(client):
    headers = {"sec-fetch-site": "cross-site"}
    assert client.get(own("export/labels?name=first.png"), headers=headers).status_code == 403


def test_every_answer_has_a_strict_policy(client):
    for path in ("", "main.js", "image?name=first.png", "nothing-here"):
        headers = client.get(own(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_the_page_fetches_nothing_from_elsewhere():
    for path in module.STATIC.iterdir():
        text = path.read_text("utf-8").replace("http://www.w3.org/", "")  # the name of SVG
        for forbidden in ("http://", "https://", "//cdn", "eval(", "innerHTML", "new Function"):
            assert forbidden not in text, (path.name, forbidden)
    page = (module.STATIC / "index.html").read_text("utf-8")
    assert "style=" not in page
    assert "onclick" not in page


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_only_loopback_is_served(host):
    with pytest.raises(ValueError, match="this machine alone"):
        check_host(host)
    done = subprocess.run(
        [sys.executable, "-m", "densecrf", "app", "--host", host or " ", "--no-browser"],
        check=False, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 1
    assert "this machine alone" in done.stderr


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_the_app_quietly(server, folder):
    running = server(folder)
    running.stop()
    assert running.process.returncode == 0
    assert running.said == "The app is open at this address, until Ctrl-C:\n"


def test_the_running_server_listens_on_loopback_alone(server, folder):
    running = server(folder)
    port = int(running.url.split(":")[2].split("/")[0])
    own_address = socket.gethostbyname(socket.gethostname())
    if not own_address.startswith("127."):
        with socket.socket() as attempt:
            attempt.settimeout(2)
            assert attempt.connect_ex((own_address, port)) != 0


@pytest.mark.parametrize(
    "path",
    [
        "../server.py",
        "..%2fserver.py",
        "%2e%2e/server.py",
        "static/../../server.py",
        "//etc/passwd",
    ],
)
def test_no_path_leads_out_of_the_static_files(client, path):
    assert client.get(own(path)).status_code in (403, 404)


@pytest.mark.parametrize("name", ["../x.png", "/etc/passwd", "", "a%00b", "x" * 2000])
def test_no_name_leads_out_of_the_folder(client, name):
    for path in (f"image?name={name}", f"export/labels?name={name}"):
        answer = client.get(own(path))
        assert answer.status_code == 422
        assert answer.json()["error"]


# --- Uploads -------------------------------------------------------------------------------------


def test_uploads_are_limited_checked_and_listed(client, folder, monkeypatch):
    send = {"headers": {"origin": ORIGIN}}
    data = (folder / "first.png").read_bytes()
    answer = client.post(own("upload?name=mine.png"), content=data, **send)
    assert answer.json() == {"name": "mine.png"}
    assert [entry["name"] for entry in client.get(own("images")).json()][-1] == "mine.png"
    answer = client.post(own("upload?name=text.png"), content=b"text", **send)
    assert answer.status_code == 422
    assert "not an image" in answer.json()["error"]
    monkeypatch.setattr(module, "MAX_UPLOAD", 1000)
    answer = client.post(own("upload?name=big.png"), content=b"x" * 2000, **send)
    assert answer.status_code == 413
    assert not (folder / STATE / "uploads" / "big.png").exists()


# --- Edits and answers ---------------------------------------------------------------------------


def test_strokes_are_answered_by_a_preview_and_then_a_certificate(client):
    with connected(client) as socket:
        tab = Tab(socket)
        tab.until("waiting")
        tab.draw(*STROKES)
        head, planes = tab.until("answer", "preview")
        while (head["revision"], head["stage"]) != (3, "certified"):
            head, planes = tab.until("answer")
        labels = planes[0]
        assert labels[5, 64] == 0
        assert labels[90, 64] == 1
        assert labels[48, 64] == 2
        assert head["gap"] <= 1e-3
        assert head["bound"] <= head["energy"]


def test_a_new_tab_finds_the_strokes_and_two_tabs_see_each_other(client):
    with connected(client) as first:
        one = Tab(first)
        one.draw(STROKES[0])
        one.until("saved")
        with connected(client) as second:
            two = Tab(second)
            assert len(two.document["strokes"]) == 1
            two.draw(STROKES[1])
            assert one.until("edit")["edit"] == STROKES[1]["edit"]
            two.until("saved")


def test_labels_are_written_beside_the_strokes_after_a_pause(client, folder):
    with connected(client) as socket:
        tab = Tab(socket)
        tab.draw(*STROKES)
        head: dict = {}
        while head.get("revision") != 3:
            head, planes = tab.until("answer", "certified")
        tab.until("labelled")
        kept = read_labels(folder / STATE / "first.png.labels.png")
        assert sorted(np.unique(kept)) == [0, 1, 2]
        assert (kept == planes[0]).mean() > 0.99  # a better answer may have come meanwhile
        # Other names and colours: the same answer, written anew as soon as the image is left.
        before = tab.document["labels"]
        labels = [{**x, "name": f"n{i}", "color": f"#00000{i}"} for i, x in enumerate(before)]
        tab.draw({"type": "edit", "edit": {"id": "r", "kind": "labels", "labels": labels}})
        Tab(socket, "second.png")
        with Image.open(folder / STATE / "first.png.labels.png") as file:
            assert file.getpalette()[:12] == [0, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 3]


def test_two_servers_on_one_folder_keep_each_others_strokes(client, folder):
    other = TestClient(make_app(ImageFolder(folder), TOKEN, PORT), base_url=ORIGIN)
    with other, connected(client) as here, connected(other) as there:
        one, two = Tab(here), Tab(there)
        one.draw(STROKES[0])
        one.until("saved")
        two.draw(STROKES[1])  # on top of a document without the first stroke
        two.until("saved")
        assert "Another densecrf app" in one.until("message")["text"]
        one.draw(STROKES[2])
        one.until("saved")
        ids = [edit["edit"]["id"] for edit in STROKES]
        assert json.loads((folder / STATE / "first.png.json").read_text())["applied"] == ids
        for tab in (one, two):
            strokes: list = []
            while len(strokes) < 3:
                tab.socket.send_json({"type": "sync"})
                strokes = tab.until("document")["document"]["strokes"]
            assert [stroke["label"] for stroke in strokes] == [0, 1, 2]


def test_wrong_messages_are_answered_and_change_nothing(client):
    with connected(client) as socket:
        tab = Tab(socket)
        wrong = {"type": "edit", "edit": {"id": "w", "kind": "stroke", "stroke": {"tool": "x"}}}
        for message, kind in (
            (wrong, "refused"),
            ({"type": "nonsense"}, "message"),
            ([1], "message"),
        ):
            socket.send_json(message)
            assert tab.until(kind)["text"]
        socket.send_json({"type": "open", "image": "../../etc/passwd"})
        assert "no image" in tab.until("message")["text"]
        assert Tab(socket).document["strokes"] == []


def test_two_hundred_strokes_at_once_are_all_kept(client, folder):
    edits = [brush(i % 3, (i % 120, 5 + (30 * (i % 3))), size=3) for i in range(200)]
    with connected(client) as socket:
        tab = Tab(socket)
        tab.draw(*edits)
        saved = set()
        while len(saved) < 200:
            saved |= set(tab.until("saved")["ids"])
        _, planes = tab.until("answer", "certified")
        assert len(np.unique(planes[0])) > 1
    stored = json.loads((folder / STATE / "first.png.json").read_text())
    assert len(stored["strokes"]) == 200


def test_sixty_labels_are_solved(client, folder):
    write_image(folder / "small.png", scene(48, 64))
    labels = [{"name": f"l{i}", "color": "#102030", "uid": f"label-{i}"} for i in range(60)]
    edits = [{"type": "edit", "edit": {"id": "l", "kind": "labels", "labels": labels}}]
    edits += [brush(i, (i + 2, 10 + (i % 7) * 4), size=2) for i in range(60)]
    with connected(client) as socket:
        tab = Tab(socket, "small.png")
        tab.draw(*edits)
        while True:
            head, _ = tab.until("answer", "certified")
            if head["revision"] == 61:
                break
        assert head["labels"] > 50


def test_a_folder_that_cannot_be_written_is_said_and_nothing_is_lost(client, folder):
    (folder / STATE).write_text("in the way")
    with connected(client) as socket:
        tab = Tab(socket)
        tab.draw(*STROKES)
        assert "cannot be saved" in tab.until("unsaved")["text"]
        with connected(client) as other:
            assert len(Tab(other).document["strokes"]) == 3
        (folder / STATE).unlink()
        saved = set()
        while len(saved) < 3:
            saved |= set(tab.until("saved")["ids"])

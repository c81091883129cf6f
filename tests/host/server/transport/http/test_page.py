"""Test the live page in a real browser, Debian's Chromium: its content, its inputs, and that it contacts no other
server."""

import base64
import contextlib
import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
from playwright.sync_api import expect, sync_playwright
from running import IMAGE_FILE, SPEC, scale_request, serving, until

from headrace.host.dpu.reference.image import preprocess
from headrace.host.dpu.specs import ImageStage

CHROMIUM = "/usr/bin/chromium-headless-shell"
DROP = """photo => {
  const bytes = Uint8Array.from(atob(photo), c => c.charCodeAt(0)), given = new DataTransfer();
  given.items.add(new File([bytes], "chelsea.jpg", {type: "image/jpeg"}));
  document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: given, bubbles: true, cancelable: true}));
}"""
PASTE = (
    DROP.replace("new DragEvent", "new ClipboardEvent")
    .replace('"drop"', '"paste"')
    .replace("dataTransfer:", "clipboardData:")
)
ROOM = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def browser():
    # As root, and where no user namespaces are, Chromium has no sandbox; it only sees the page that is tested.
    options = ["--no-sandbox", "--disable-dev-shm-usage"]
    with (
        sync_playwright() as playwright,
        contextlib.closing(playwright.chromium.launch(executable_path=CHROMIUM, args=options)) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running


@contextlib.contextmanager
def opened(browser, server, path="/", said=None, **options):
    """Open the page. At the end it checks that the console has only `said`, and that the page contacted no other
    server."""
    url = f"http://{server.url()}"
    with contextlib.closing(browser.new_page(**options)) as page:
        heard, asked = [], []
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.set_default_timeout(30_000)
        page.goto(url + path)
        yield page
        assert [text for text in heard if said is None or said not in text] == []
        assert [each for each in asked if not each.startswith((url, "data:image/png", "blob:" + url, "data:,"))] == []


@contextlib.contextmanager
def load(server, clients=4):
    """Send requests for `scale` that keep its worker busy for 10 ms, one after another from each client."""
    done = threading.Event()

    def send():
        while not done.is_set():
            assert server.request("POST", "/v2/models/scale/infer", scale_request(1000.01, 2.0))[0] == 200

    with ThreadPoolExecutor(clients) as threads:
        sending = [threads.submit(send) for _ in range(clients)]
        try:
            yield
        finally:
            done.set()
        for each in sending:
            each.result()


def give(page, how):
    expect(page.locator("#photo")).to_be_visible()  # the page knows who takes photos
    page.evaluate(how, base64.b64encode(IMAGE_FILE).decode())


def number(page, id):
    return float(re.match(r"[\d.,]*", page.locator(id).inner_text().replace(",", ""))[0] or -1)


def test_the_page_fills_under_load(browser, server):
    with opened(browser, server) as page, load(server):
        expect(page.locator("#state")).to_have_text("serving")
        until(lambda: number(page, "#rate") > 0 and number(page, "#p95") > 0 and number(page, "#batch") > 1)
        expect(page.locator("#last tr").first).to_contain_text("scale")
        reason = page.locator("#last tr .tag").first.inner_text()
        expect(page.locator("#reasons .tag", has_text=reason)).to_have_count(1)
        expect(page.locator("#reasons .why").first).not_to_be_empty()
        expect(page.locator("#units li", has_text="worker")).to_have_count(1)
        expect(page.locator("#units li", has_text="cpu thread 0")).not_to_have_count(0)
        expect(page.locator("#sizes li")).not_to_have_count(0)
        for chart in ("rate", "latency", "inside"):
            expect(page.locator(f"#chart-{chart} path").first).to_have_attribute("d", re.compile(r"M[\d.]+ [\d.]+L"))
        expect(page.locator("#units li").first).not_to_contain_text(re.compile(r"· 0 %$"))  # its load


def test_what_fails_is_counted_and_a_batch_that_failed_says_so(browser, server):
    with opened(browser, server) as page:
        assert server.request("POST", "/v2/models/scale/infer", scale_request(666.0))[0] == 500
        expect(page.locator("#outcomes div", has_text="failed").locator("dd")).to_have_text("1")
        expect(page.locator("#last .tag.bad").first).to_contain_text("failed")
        assert "unlucky number" in page.locator("#last tr td[title]").first.get_attribute("title")


@pytest.mark.parametrize("way", ["drop", "paste", "choose"])
def test_an_image_shows_its_tensor_its_labels_and_its_times(browser, server, way, tmp_path):
    with opened(browser, server) as page:
        expect(page.locator("#photo")).to_be_visible()
        if way == "choose":
            path = tmp_path / "chelsea.jpg"
            path.write_bytes(IMAGE_FILE)
            page.set_input_files("#file", path)
        else:
            give(page, DROP if way == "drop" else PASTE)
        labels = page.locator("#top li")
        expect(labels).to_have_count(3)
        means = preprocess(IMAGE_FILE, SPEC).mean((1, 2))
        found = [text.split("\n") for text in labels.all_inner_texts()]
        order = np.argsort(-means)
        assert [text[0] for text in found] == [("red", "green", "blue")[each] for each in order]
        np.testing.assert_allclose([float(text[1]) for text in found], means[order], rtol=1e-3)
        png = base64.b64decode(page.locator("#tensor").get_attribute("src").removeprefix("data:image/png;base64,"))
        seen = cv2.cvtColor(cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
        np.testing.assert_array_equal(seen, preprocess(IMAGE_FILE, SPEC, ImageStage.CROP))
        expect(page.locator("#tensor-text")).to_contain_text(re.compile("FP32 3 . 64 . 64,"))
        expect(page.locator("#given-text")).to_have_text("chelsea.jpg, 35 kB")
        times = [float(text.split("\n")[1].removesuffix(" ms")) for text in page.locator("#spans li").all_inner_texts()]
        assert len(times) == 5 and times[-1] == pytest.approx(sum(times[:-1]), rel=0.02)
        assert page.evaluate("document.querySelector('#given').naturalWidth") == 451


def test_a_file_that_is_no_image_is_refused_with_the_reason(browser, server, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a photo")
    with opened(browser, server, said="400") as page:  # Chromium tells of every answer that is an error
        expect(page.locator("#photo")).to_be_visible()
        page.set_input_files("#file", path)
        expect(page.locator("#wrong")).to_contain_text("not a JPEG, PNG or WebP")
        expect(page.locator("#answer")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 800, 1280])
def test_nothing_goes_beyond_the_width_of_a_screen(browser, server, scheme, width):
    with opened(browser, server, viewport={"width": width, "height": 844}, color_scheme=scheme) as page:
        give(page, DROP)
        expect(page.locator("#top li")).to_have_count(3)
        assert page.evaluate(ROOM)
        background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (max(map(int, re.findall(r"\d+", background))) < 64) == (scheme == "dark")


def test_the_keyboard_reaches_everything(browser, server):
    with opened(browser, server) as page, load(server, clients=1):
        expect(page.locator("#choice")).to_be_visible()
        reached = []
        for _ in range(12):
            page.keyboard.press("Tab")
            reached.append(
                page.evaluate("(e => e.id || e.closest('section[id]')?.id || e.className)(document.activeElement)")
            )
        assert {"model", "chart-rate", "chart-latency", "chart-inside", "scroll", "file"} <= set(reached)
        page.locator("#chart-rate svg").focus()
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#chart-rate svg")).to_have_attribute("aria-label", re.compile("1 second ago: good [0-9]"))
        page.locator("#model").focus()
        page.keyboard.type("means")
        expect(page.locator("#model")).to_have_value("means")
        expect(page.locator("#last tr", has_text="scale")).to_have_count(0)


def test_a_server_with_a_token_asks_for_it_and_shows_nothing_before(browser, tmp_path):
    (tmp_path / "token").write_text("open-sesame\n")
    with serving("--token-file", str(tmp_path / "token"), models=("means",)) as server:
        assert server.request("GET", "/status")[0] == 401
        assert server.request("POST", "/photo/means", IMAGE_FILE)[0] == 401
        with opened(browser, server, said="401") as page:
            expect(page.locator("#locked")).to_be_visible()
            expect(page.locator("main")).to_be_hidden()
            page.locator("#token").fill("wrong")
            page.keyboard.press("Enter")
            expect(page.locator("#locked-why")).to_contain_text("is wrong")
            page.locator("#token").fill("open-sesame")
            page.keyboard.press("Enter")
            expect(page.locator("#locked")).to_be_hidden()
            expect(page.locator("#about")).to_contain_text("means")
            give(page, DROP)
            expect(page.locator("#top li")).to_have_count(3)
            expect(page.locator("#outcomes")).to_contain_text("no token")
            page.reload()  # it is kept for this tab
            expect(page.locator("#about")).to_contain_text("means")


def test_a_new_server_says_how_to_begin_and_one_that_has_gone_is_told(browser):
    with serving(models=("scale",)) as server, opened(browser, server, said="ERR_CONNECTION_REFUSED") as page:
        expect(page.locator("#empty code")).to_have_text(f"curl http://{server.url()}/v2/models/scale")
        expect(page.locator("#photo")).to_be_hidden()  # it takes none
        expect(page.locator("#state")).to_have_text("serving")
        server.end(signal.SIGTERM)
        expect(page.locator("#gone")).to_be_visible()
        expect(page.locator("#state")).to_have_text("gone")


@pytest.mark.slow
def test_the_page_may_do_nothing_that_is_not_its_own(server):
    status, headers, body = server.request("GET", "/")
    assert status == 200 and headers["content-type"] == "text/html; charset=utf-8"
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy and "http" not in policy
    assert re.findall(rb"(?:src|href)=\"(?!data:,\")[^\"]+\"", body) == []
    assert server.request("POST", "/")[0] == 405 and server.request("GET", "/photo/means")[0] == 405

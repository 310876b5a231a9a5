"""What an image holds is read from its files, and reported in the same words each time."""

import json
import os
from pathlib import Path

import pytest

from tools.image.contents import Package, as_cyclonedx, packages_in, size_in_mib

STATUS = """\
Package: libc6
Status: install ok installed
Version: 2.36-9+deb12u14
Description: GNU C Library
 with a second line

Package: gone
Status: deinstall ok config-files
Version: 1.0

Package: libssl3
Status: install ok installed
Version: 1:3.0.17-1~deb12u2
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    lists = tmp_path / "var" / "lib" / "dpkg"
    lists.mkdir(parents=True)
    (lists / "status").write_text(STATUS)
    for name, version in (("typing_extensions", "4.15.0"), ("PyJWT", "2.10.1")):
        about = tmp_path / "opt" / "lib" / f"{name}-{version}.dist-info"
        about.mkdir(parents=True)
        text = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nName: not this\n"
        (about / "METADATA").write_text(text)
    return tmp_path


def test_packages_of_both_kinds_are_found_and_what_was_removed_is_not(root: Path) -> None:
    assert packages_in(root) == [
        Package("deb", "libc6", "2.36-9+deb12u14"),
        Package("deb", "libssl3", "1:3.0.17-1~deb12u2"),
        Package("pypi", "pyjwt", "2.10.1"),
        Package("pypi", "typing-extensions", "4.15.0"),
    ]


def test_a_package_without_a_system_is_no_fault(tmp_path: Path) -> None:
    assert packages_in(tmp_path) == []


def test_the_bill_names_each_by_its_url_and_is_the_same_each_time(root: Path) -> None:
    text = as_cyclonedx("ringfence", "0.1.0", packages_in(root))
    assert text == as_cyclonedx("ringfence", "0.1.0", packages_in(root))
    assert text != as_cyclonedx("ringfence", "0.1.0", packages_in(root)[1:])
    urls = [component["purl"] for component in json.loads(text)["components"]]
    assert urls[1:3] == ["pkg:deb/debian/libssl3@1%3A3.0.17-1~deb12u2", "pkg:pypi/pyjwt@2.10.1"]


def test_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(bytes(2**20))
    os.link(tmp_path / "one", tmp_path / "same")
    (tmp_path / "points").symlink_to(tmp_path / "one")
    assert 1 <= size_in_mib(tmp_path) < 1.001

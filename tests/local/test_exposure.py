"""Pages are reached from outside only where passwords are protected."""

from pathlib import Path

import pytest

from workers.local.local_layout import Exposure
from workers.local.places import UserError


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "caravan.example.org"])
def test_it_refuses_an_address_that_others_reach_without_tls(host: str) -> None:
    with pytest.raises(UserError, match="--tls-cert and --tls-key, or --behind-proxy"):
        Exposure(host=host).check()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_it_takes_loopback_addresses(host: str) -> None:
    Exposure(host=host).check()


def test_it_takes_an_open_address_behind_a_proxy_or_with_tls(tmp_path: Path) -> None:
    certificate = tmp_path / "certificate.pem"
    certificate.write_text("")
    Exposure(host="0.0.0.0", behind_proxy=True).check()
    Exposure(host="0.0.0.0", tls_cert=certificate, tls_key=certificate).check()


def test_it_refuses_half_of_a_tls_pair_and_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="go together"):
        Exposure(tls_cert=tmp_path / "certificate.pem").check()
    missing = tmp_path / "missing.pem"
    with pytest.raises(UserError, match=r"missing\.pem does not exist"):
        Exposure(host="0.0.0.0", tls_cert=missing, tls_key=missing).check()


def test_it_prints_an_address_that_can_be_typed() -> None:
    assert Exposure(host="0.0.0.0", behind_proxy=True).address(80) == "http://127.0.0.1:80"
    assert Exposure(host="::1").address(80) == "http://[::1]:80"
    proxied = Exposure(host="0.0.0.0", behind_proxy=True, url="https://rl.example.org/")
    assert proxied.address(80) == "https://rl.example.org"
    assert "rl.example.org" in proxied.allowed_hosts(80).split(",")

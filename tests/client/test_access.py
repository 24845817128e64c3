"""Which server is asked, and with which token."""

import json
from pathlib import Path

import pytest

from caravan.access import Access, find_access, login_file, save_access
from caravan.errors import AccessError, RefusedError


def stored(path: Path, url: str = "http://127.0.0.1:1", token: str = "kept") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"url": url, "token": token}))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CARAVAN_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "secrets" / "cli_token.json"


def test_it_takes_the_environment_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(home)
    monkeypatch.setenv("CARAVAN_URL", "https://there.example/")
    monkeypatch.setenv("CARAVAN_TOKEN", "given")
    assert find_access() == Access("https://there.example", "given")


def test_it_takes_the_checkouts_before_the_login(home: Path) -> None:
    save_access(Access("http://127.0.0.1:2", "mine"))
    assert find_access().token == "mine"
    stored(home)
    assert find_access().token == "kept"


def test_it_sends_a_stored_token_to_its_own_server_only(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(home)
    monkeypatch.setenv("CARAVAN_URL", "http://127.0.0.1:1/")
    assert find_access().token == "kept"
    monkeypatch.setenv("CARAVAN_URL", "http://elsewhere.example:1")
    with pytest.raises(AccessError, match=r"belongs to http://127\.0\.0\.1:1"):
        find_access()


def test_it_says_how_to_sign_in_where_nothing_is_known() -> None:
    with pytest.raises(AccessError, match="caravan login"):
        find_access()


@pytest.mark.parametrize("url", ["there", "ftp://there", "http://", "http://me:secret@there"])
def test_it_refuses_what_is_no_address(url: str) -> None:
    with pytest.raises(RefusedError):
        find_access(url, "token")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"url": 1, "token": "x"}', "no json"])
def test_it_says_which_file_is_broken(home: Path, text: str) -> None:
    home.parent.mkdir(parents=True)
    home.write_text(text)
    with pytest.raises((AccessError, RefusedError), match=r"cli_token\.json"):
        find_access()


def test_it_keeps_a_login_where_nobody_else_can_read_it() -> None:
    path = save_access(Access("http://127.0.0.1:1", "secret"))
    assert path == login_file()
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    save_access(Access("http://127.0.0.1:1", "newer"))
    assert find_access().token == "newer"


def test_it_shows_no_token() -> None:
    assert "secret" not in repr(Access("http://127.0.0.1:1", "secret"))

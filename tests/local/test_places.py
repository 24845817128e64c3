"""Folders and secrets are private, and nothing that was there is loosened."""

import os
import stat
from pathlib import Path

import pytest

from workers.local.places import Places, UserError, find_places, prepare, stamp, write_private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_its_secrets_are_made_once_and_only_their_owner_reads_them(places: Places) -> None:
    password = places.secret("valkey_password").read_text()
    prepare(places)
    assert places.secret("valkey_password").read_text() == password
    assert mode(places.home / "secrets") == 0o700
    for name in ("secret_key", "valkey_password", "ray_token"):
        assert mode(places.secret(name)) == 0o600
        assert len(places.secret(name).read_text()) == 64


def test_it_refuses_a_folder_that_others_may_write(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o777)
    with pytest.raises(UserError, match="can be written by other users"):
        prepare(Places(home, tmp_path / "run"))
    assert mode(home) == 0o777


def test_it_refuses_a_link_in_place_of_its_socket_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="must be a folder that belongs to"):
        prepare(Places(tmp_path / "home", tmp_path / "run"))


def test_its_socket_folder_leaves_room_for_long_socket_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("very-long-name-" * 6)))
    run = find_places(tmp_path).run
    assert len(str(run)) <= 36
    assert run.name.startswith(f"caravan-{os.getuid()}-")
    assert run != find_places(tmp_path / "other").run


def test_it_replaces_a_private_file_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text() == "new"
    assert mode(path) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs a folder that nobody can write")
def test_it_says_where_it_cannot_write() -> None:
    with pytest.raises(UserError, match="cannot write /proc/caravan"):
        prepare(Places(Path("/proc/caravan/home"), Path("/proc/caravan/run")))


def test_a_stamp_is_of_files_themselves_and_of_all_below_folders(tmp_path: Path) -> None:
    alone, below = tmp_path / "alone", tmp_path / "folder" / "deep" / "below"
    below.parent.mkdir(parents=True)
    seen = set()
    for path, text in ((alone, "1"), (below, "1"), (alone, "12"), (below, "12")):
        path.write_text(text)
        seen.add(stamp([alone, tmp_path / "folder"]))
    assert len(seen) == 4
    assert stamp([alone, tmp_path / "folder"]) in seen

"""The table of processes, and docker-compose.yml beside it."""

import yaml

from workers.local import compose
from workers.local.processes import SERVICES, processes


def test_its_compose_file_is_what_the_table_says() -> None:
    assert compose.FILE.read_text() == compose.render()


def test_its_compose_file_has_every_service_of_the_table_with_its_command() -> None:
    services = yaml.safe_load(compose.FILE.read_text())["services"]
    for service in processes(compose.compose_layout()):
        assert service.name in services
        if service.argv:
            assert services[service.name]["command"] == list(service.argv)
            assert services[service.name]["environment"] == dict(service.env)
    assert services["ray-worker"]["profiles"] == ["gpu"]


def test_its_containers_run_as_ordinary_users_and_restart() -> None:
    services = yaml.safe_load(compose.FILE.read_text())["services"]
    assert "\nUSER caravan\n" in (compose.CHECKOUT / "Dockerfile").read_text()
    for name, service in services.items():
        assert service["image"] == "caravan" or service["user"] != "root"
        assert service["restart"] == ("no" if name == "setup" else "unless-stopped")


def test_its_names_are_those_of_the_table() -> None:
    assert tuple(s.name for s in processes(compose.compose_layout())) == SERVICES


def test_each_service_comes_after_those_it_depends_on() -> None:
    seen: set[str] = set()
    for service in processes(compose.compose_layout()):
        assert set(service.depends_on) <= seen
        seen.add(service.name)


def test_ray_and_the_runs_in_it_get_no_address_or_secret_of_the_control_plane() -> None:
    head = next(s for s in processes(compose.compose_layout()) if s.name == "ray-head")
    text = " ".join([*head.argv, *head.env.values()])
    for hidden in ("DATABASE_URL", "REDIS_URL", "CARAVAN_SECRET_KEY_FILE"):
        assert hidden not in head.env
    for hidden in ("postgresql://", "redis://", "secret_key"):
        assert hidden not in text


def test_no_password_is_in_an_argument_list() -> None:
    for service in processes(compose.compose_layout()):
        assert not any("PASSWORD" in argument for argument in service.argv)

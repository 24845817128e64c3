"""Primary keys: a prefix that says what it is, and 80 random bits in lower-case base 32."""

import secrets

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: easy to read aloud


def new_id(prefix: str) -> str:
    """For example `run_7h2k9q4w0c3mz8xa`."""
    return f"{prefix}_" + "".join(secrets.choice(_ALPHABET) for _ in range(16))


def run_id() -> str:
    return new_id("run")


def attempt_id() -> str:
    return new_id("att")


def job_id() -> str:
    return new_id("job")


def team_id() -> str:
    return new_id("team")


def project_id() -> str:
    return new_id("prj")


def experiment_id() -> str:
    return new_id("exp")


def preset_id() -> str:
    return new_id("pre")


def scheme_id() -> str:
    return new_id("rws")


def dataset_id() -> str:
    return new_id("ds")


def version_id() -> str:
    return new_id("ver")


def checkpoint_id() -> str:
    return new_id("ckp")


def token_id() -> str:
    return new_id("tok")


def invitation_id() -> str:
    return new_id("inv")


def comment_id() -> str:
    return new_id("cmt")


def queue_id() -> str:
    return new_id("que")


def sweep_id() -> str:
    return new_id("swp")


def queue_item_id() -> str:
    return new_id("qit")


def webhook_id() -> str:
    return new_id("whk")


def view_id() -> str:
    return new_id("view")


def notice_id() -> str:
    return new_id("ntc")

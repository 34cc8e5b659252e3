# SPDX-License-Identifier: Apache-2.0
"""A lab's own slurmdbd over a MariaDB of its own: QOS and association limits are Slurm's real ones.

Limits live in slurmdbd alone. Both listen on this host, on ports that the lab has claimed.
"""

import os
import pwd
import secrets
import subprocess

from slurm_coloc.errors import SlurmError
from slurm_coloc.lab import parts
from slurm_coloc.lab.daemons import Command, Daemons

PACKAGES = {
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
}
ACCOUNT = "lab"


def find_programs(slurm: str = "") -> dict[str, str]:
    """Absolute paths; raises SlurmError naming the Debian packages to install."""
    return parts.find(PACKAGES, slurm)


def start(
    lab: Daemons, hostname: str, db_port: int, dbd_port: int, slurm: pwd.struct_passwd
) -> None:
    """Start both and make the cluster known; slurmctld comes after. Raises SlurmError."""
    programs = find_programs(lab.spec.slurm)
    password = secrets.token_hex(16)
    _start_database(lab, programs, db_port, password)
    d = lab.dir
    path = d / "slurmdbd.conf"
    path.write_text(
        f"AuthType=auth/munge\nAuthInfo=socket={d}/munge/socket\nSlurmUser={slurm.pw_name}\n"
        f"DbdHost={hostname}\nDbdAddr=127.0.0.1\nDbdPort={dbd_port}\n"
        "StorageType=accounting_storage/mysql\n"
        f"StorageHost=127.0.0.1\nStoragePort={db_port}\nStorageUser=slurm\nStorageLoc=slurm\n"
        f"StoragePass={password}\n"
        f"LogFile={d}/log/slurmdbd.log\nPidFile={d}/log/slurmdbd.pid\nDebugLevel=info\n"
    )
    os.chown(path, slurm.pw_uid, slurm.pw_gid)
    path.chmod(0o600)  # slurmdbd starts with no other mode
    env = {
        "PATH": parts.path_of(lab.spec.slurm),
        "SLURM_CONF": f"{d}/slurm.conf",
        "LANG": "C.UTF-8",
    }
    who = slurm.pw_uid, slurm.pw_gid
    lab.launch("slurmdbd", Command([programs["slurmdbd"], "-D"], env, who))
    lab.run(["sacctmgr", "-iQ", "add", "cluster", f"coloc-{lab.spec.name}"])
    lab.run(["sacctmgr", "-iQ", "add", "account", ACCOUNT])
    for user in lab.spec.user_names:
        lab.run(["sacctmgr", "-iQ", "add", "user", user, f"account={ACCOUNT}"])


def _start_database(lab: Daemons, programs: dict[str, str], port: int, password: str) -> None:
    try:
        mysql = pwd.getpwnam("mysql")
    except KeyError as err:
        raise SlurmError(f"no account of MariaDB on this machine: {err}") from err
    folder = lab.dir / "db"
    folder.mkdir(mode=0o700)
    os.chown(folder, mysql.pw_uid, mysql.pw_gid)
    data = folder / "data"
    argv = [programs["mariadb-install-db"], "--no-defaults", "--user=mysql", f"--datadir={data}"]
    argv += ["--skip-test-db", "--auth-root-authentication-method=normal"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise SlurmError(f"mariadb-install-db: {(done.stderr or done.stdout)[-400:]}")
    init = folder / "init.sql"
    init.write_text(
        "ALTER USER root@localhost ACCOUNT LOCK;\nCREATE DATABASE slurm;\n"
        f"CREATE USER slurm@'127.0.0.1' IDENTIFIED BY '{password}';\n"
        "GRANT ALL ON slurm.* TO slurm@'127.0.0.1';\n"
    )
    os.chown(init, mysql.pw_uid, mysql.pw_gid)
    init.chmod(0o600)
    argv = [programs["mariadbd"], "--no-defaults", "--user=mysql", f"--datadir={data}"]
    argv += [f"--socket={folder}/socket", f"--pid-file={folder}/pid", f"--init-file={init}"]
    argv += ["--bind-address=127.0.0.1", f"--port={port}", "--skip-name-resolve"]
    # A lab is thrown away: what a crash of the machine would lose is of no use.
    argv += ["--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0"]
    argv += ["--innodb-log-file-size=8M", "--innodb-temp-data-file-path=ibtmp1:1M:autoextend"]
    argv += ["--innodb-lock-wait-timeout=900"]  # as slurmdbd's manual asks
    lab.launch("mariadbd", Command(argv, {"PATH": parts.SYSTEM_PATH}))

"""etcd of one or several members, with the commands of docs/etcd.md."""

import json
import os
import shutil
import subprocess
import time

from processes import Process, free_port, wait_for

UP_SECONDS = 60
SETTINGS = ("--auto-compaction-mode=periodic", "--auto-compaction-retention=5m", "--snapshot-count=10000")


class Member(Process):
    def __init__(self, program, folder, name, quota_bytes):
        self.client, self.peer = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
        self.data, self.quota_bytes = folder / name, quota_bytes
        super().__init__(name, folder / f"{name}.log", [program], dict(os.environ))

    def belongs_to(self, members, token):
        """The command of a member of that cluster."""
        there = ",".join(f"{m.name}={m.peer}" for m in members)
        options = ["--name", self.name, "--data-dir", self.data, "--listen-client-urls", self.client, "--advertise-client-urls", self.client]
        options += ["--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer, "--initial-cluster", there]
        options += ["--initial-cluster-token", token, "--quota-backend-bytes", self.quota_bytes, *SETTINGS]
        self.command = [self.command[0], *map(str, options)]


class Store:
    """Its members; `url` is what Trawl is given."""

    def __init__(self, program, control, folder, members, quota_bytes=2 * 1024**3):
        folder.mkdir(parents=True, exist_ok=True)
        self.control, self.folder = control, folder
        self.members = [Member(program, folder, f"m{n}", quota_bytes) for n in range(1, members + 1)]
        self.url = ",".join(member.client for member in self.members)
        for member in self.members:
            member.belongs_to(self.members, "first")

    def start(self):
        for member in self.members:
            member.start()
        wait_for("etcd is healthy", self.healthy, UP_SECONDS)

    def stop(self):
        for member in self.members:
            member.kill()

    def ran(self, *words, member=None):
        """etcdctl at all members, or at one."""
        environment = os.environ | {"ETCDCTL_API": "3", "ETCDCTL_ENDPOINTS": member.client if member else self.url}
        return subprocess.run([self.control, *map(str, words)], env=environment, capture_output=True, text=True)

    def said(self, *words, member=None):
        """The same; an error ends the drill."""
        ended = self.ran(*words, member=member)
        if ended.returncode != 0:
            raise OSError(f"etcdctl {words[0]}: {ended.stderr.strip()[-300:]}")
        return (ended.stdout + ended.stderr).strip()

    def healthy(self):
        return self.ran("endpoint", "health").returncode == 0

    def status(self):
        """Of the first member: revision and bytes of its database."""
        found = json.loads(self.said("endpoint", "status", "-w", "json", member=self.members[0]))[0]["Status"]
        return found["header"]["revision"], found["dbSize"]

    def restore(self, snapshot):
        """The procedure of docs/etcd.md on every member, whose old data are lost."""
        token = f"restored-{time.time_ns()}"
        there = ",".join(f"{m.name}={m.peer}" for m in self.members)
        for member in self.members:
            member.kill()
            shutil.rmtree(member.data, ignore_errors=True)
            words = ["snapshot", "restore", snapshot, "--name", member.name, "--data-dir", member.data, "--initial-cluster", there]
            self.said(*words, "--initial-advertise-peer-urls", member.peer, "--initial-cluster-token", token)
            member.belongs_to(self.members, token)
        self.start()

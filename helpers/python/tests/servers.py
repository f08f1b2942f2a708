"""Servers and broken networks for the tests: all on loopback, on their own ports, and ended with the test."""
import contextlib
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import redis

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODULE = os.environ.get("MORTISE_MODULE", str(ROOT / "target/release/libmortise.so"))
SERVER = os.environ.get("MORTISE_SERVER", "redis-server")


def eventually(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s: {condition}")


CLAIMS = []  # held until the process ends


def claim_port():
    """A port that no other test of any language gets, even while its server is down.
    
    The process that listens 2,500 above owns it. It is below the range of outgoing connections, and a cluster's bus is 10,000
    above.
    """
    while True:
        port = random.randrange(10_000, 12_500)
        with contextlib.suppress(OSError):
            CLAIMS.append(socket.create_server(("127.0.0.1", port + 2_500)))
            socket.create_server(("127.0.0.1", port)).close()
            return port


class Server:
    def __init__(self, *options, module=True, sentinel=None):
        self.port, self.folder = claim_port(), tempfile.mkdtemp(prefix="mortise-python-")
        self.arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.folder,
                          "--enable-debug-command", "yes", *options]
        if sentinel is not None:
            path = os.path.join(self.folder, "sentinel.conf")
            pathlib.Path(path).write_text(f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\n{sentinel}")
            self.arguments = [path, "--sentinel"]
        elif module:
            self.arguments += ["--loadmodule", MODULE]
        self.start()

    def start(self):
        self.process = subprocess.Popen([SERVER, *self.arguments], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        self.admin = redis.Redis(port=self.port, decode_responses=True, protocol=3)
        eventually(self.answers)

    def answers(self):
        assert self.process.poll() is None, "the server did not start"
        try:
            return self.admin.ping()
        except redis.RedisError:
            return False

    def is_primary(self):
        """Whether it is a primary. Sentinel closes the connections of a server that it promotes, even this one."""
        try:
            return self.admin.info("replication")["role"] == "master"
        except redis.RedisError:
            return False

    def info(self, field):
        return self.admin.info("lock")[f"lock_{field}"]

    def waiters(self, key):
        info = self.admin.execute_command("LOCK.INFO", key)
        return info["waiters"] if info else 0

    def queue(self, key):
        """The owners of the waiting requests."""
        return [waiter["owner"] for waiter in self.admin.execute_command("LOCK.INFO", key)["queue"]]

    def mail_readers(self):
        """How many clients wait for letters, and so know that they are queued."""
        return sum(client["cmd"].lower() == "lock.mail" and "b" in client["flags"] for client in self.admin.client_list())

    def connections(self, name):
        """How many connections clients with this name have."""
        return sum(client["name"] == name for client in self.admin.client_list())

    def commands(self, name):
        calls = {command.lower(): stats["calls"] for command, stats in self.admin.info("commandstats").items()}
        return calls.get(f"cmdstat_lock.{name}", 0)

    def nothing_is_left(self):
        """No key and no waiter; and no box, once the server has closed abandoned ones."""
        return self.admin.dbsize() == 0 and self.info("waiters") == 0

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def await_all_of(self, primary):
        """Waits for a replica. A primary sends a newly loaded one nothing before its first request, a second later."""
        written = primary.admin.info("replication")["master_repl_offset"]
        eventually(lambda: self.admin.info("replication")["slave_repl_offset"] >= written)

    def close(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Cluster:
    def __init__(self, nodes=3):
        self.servers = [self.server() for _ in range(nodes)]
        share = 16384 // nodes
        for number, server in enumerate(self.servers):
            last = 16383 if number == nodes - 1 else (number + 1) * share - 1
            server.admin.execute_command("CLUSTER", "ADDSLOTSRANGE", number * share, last)
            server.admin.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in self.servers[1:]:
            server.admin.execute_command("CLUSTER", "MEET", "127.0.0.1", self.servers[0].port)
        eventually(lambda: all(self.agrees(server) for server in self.servers))

    def server(self):
        return Server("--cluster-enabled", "yes", "--cluster-node-timeout", "3000")

    def replica_of(self, primary):
        replica, node = self.server(), primary.admin.execute_command("CLUSTER MYID")
        replica.admin.execute_command("CLUSTER", "MEET", "127.0.0.1", primary.port)
        eventually(lambda: replica.admin.execute_command("CLUSTER NODES").get(f"127.0.0.1:{primary.port}", {}).get("node_id") == node)
        replica.admin.execute_command("CLUSTER", "REPLICATE", node)
        eventually(lambda: replica.admin.info("replication").get("master_link_status") == "up")
        self.servers.append(replica)
        return replica

    def agrees(self, server):
        info = server.admin.execute_command("CLUSTER INFO")
        nodes = server.admin.execute_command("CLUSTER NODES")
        return info["cluster_state"] == "ok" and len(nodes) == len(self.servers) and info["cluster_slots_assigned"] == "16384"

    def close(self):
        for server in self.servers:
            server.close()


class Relay:
    """A proxy before a server. It can delay or hold back data in either direction, and cut connections."""

    def __init__(self, port):
        self.target, self.pairs, self.delay = port, [], 0
        self.requests, self.replies = threading.Event(), threading.Event()
        self.pass_all()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def pass_all(self):
        self.requests.set()
        self.replies.set()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.target))
            self.pairs.append((near, far))
            threading.Thread(target=self.pump, args=(near, far, self.requests), daemon=True).start()
            threading.Thread(target=self.pump, args=(far, near, self.replies), daemon=True).start()

    def pump(self, source, sink, gate):
        try:
            while data := source.recv(65536):
                gate.wait()
                time.sleep(self.delay)
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def close(self):
        self.listener.close()
        self.cut()
        self.pass_all()

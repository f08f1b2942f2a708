"""Processes for the common runs: a language's script, a server, and a relay that breaks the network between both."""
import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULE = os.environ.setdefault("MORTISE_MODULE", str(ROOT / "target/release/libmortise.so"))
SERVER = os.environ.get("MORTISE_SERVER", "redis-server")


def say(*words):
    print("interop:", *words, file=sys.stderr, flush=True)


def eventually(condition, seconds=30):
    """The first true value of the condition, or its last one."""
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return value


class Call:
    """One call of a language's script. All that it started ends with it."""

    def __init__(self, folder, call, *words, **how):
        self.name, self.call = folder.name, call
        how.setdefault("stdin", subprocess.DEVNULL)
        self.process = subprocess.Popen(["./interop", call, *words], cwd=folder, start_new_session=True, **how)

    def signal(self, what):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, what)

    def wait(self, limit):
        """None if it succeeded within `limit` seconds, else what went wrong."""
        try:
            code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            return f"took more than {limit:.0f} s"
        finally:
            self.signal(signal.SIGKILL)
            self.process.wait()
        return f"ended with {code}" if code else None


class ServerError(Exception):
    """An error that the server replied."""


class Wire:
    """A connection of the test's own: sends commands, and reads replies as they come (RESP2)."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.lines = self.socket.makefile("rb")

    def ask(self, *words):
        self.send(*words)
        return self.read()

    def send(self, *words):
        packed = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(packed) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in packed))

    def read(self):
        line = self.lines.readline()
        if not line:
            raise ConnectionResetError("the server has closed the connection")
        kind, text = line[:1], line[1:-2].decode()
        if kind == b"-":
            raise ServerError(text)
        if kind == b"*":
            return None if text == "-1" else [self.read() for _ in range(int(text))]
        if kind == b"$":
            return None if text == "-1" else self.lines.read(int(text) + 2)[:-2].decode()
        return int(text) if kind == b":" else text

    def close(self):
        self.lines.close()
        self.socket.close()


CLAIMS = []  # listeners, until the process ends


def free_port():
    """A port that no other server of a common run gets, even while its own is down: the process that listens 5,000 above owns it. It is below
    those of outgoing connections."""
    while True:
        port = random.randrange(15_000, 20_000)
        with contextlib.suppress(OSError):
            CLAIMS.append(socket.create_server(("127.0.0.1", port + 5_000)))
            socket.create_server(("127.0.0.1", port)).close()
            return port


class Server:
    def __init__(self, *options, module=True):
        self.port, self.folder = free_port(), tempfile.mkdtemp(prefix="mortise-interop-")
        self.words = [SERVER, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.folder, *options]
        self.words += ["--loadmodule", MODULE] if module else []
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        if not eventually(self.answers):
            raise RuntimeError(f"the server does not start: {' '.join(self.words)}")

    def answers(self):
        try:
            return self.ask("PING") == "PONG"
        except ServerError:
            return True  # it wants a password
        except OSError:
            return False

    def ask(self, *words):
        """The reply, over a connection of its own."""
        with contextlib.closing(Wire(self.port)) as wire:
            return wire.ask(*words)

    def info(self):
        lines = self.ask("INFO", "lock").splitlines()
        return {name: value for name, _, value in (line.partition(":") for line in lines) if value}

    def count(self, name):
        return int(self.info()[f"lock_{name}"])

    def calls(self, command):
        """How many commands of this name the server has run."""
        found = re.search(rf"^cmdstat_{command}:calls=(\d+)", self.ask("INFO", "commandstats"), re.MULTILINE | re.IGNORECASE)
        return int(found[1]) if found else 0

    def lock(self, key):
        """What LOCK.INFO says of the key: None if nobody holds and nobody waits."""
        return fields(self.ask("LOCK.INFO", key))

    def lease(self, key):
        """The milliseconds that are left to the first hold of the key; None if there is none."""
        info = self.lock(key)
        return fields(info["holds"][0])["lease"] if info and info["holds"] else None

    def waiters(self, key):
        info = self.lock(key)
        return info["waiters"] if info else 0

    def left_over(self):
        info = self.info()
        left = {name: info[f"lock_{name}"] for name in ("locks", "holders", "waiters", "boxes", "letters")}
        return {name: count for name, count in left.items() if count != "0"}

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def fields(reply):
    return dict(zip(reply[::2], reply[1::2])) if reply else None


class Relay:
    """A proxy between one worker and the server. It holds data back in either direction, breaks connections off, and refuses requests."""

    def __init__(self, port):
        self.target, self.pairs = port, []
        self.requests, self.replies = threading.Event(), threading.Event()
        self.refused, self.refusals = None, 0
        self.go_on()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # the server is being restarted
                near.close()
                continue
            pair = (near, far)
            self.pairs.append(pair)
            threading.Thread(target=self.pump, args=(pair, near, far, self.requests), daemon=True).start()
            threading.Thread(target=self.pump, args=(pair, far, near, self.replies), daemon=True).start()

    def pump(self, pair, source, sink, gate):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                gate.wait()
                if gate is self.requests and self.refuses(data):
                    break
                sink.sendall(data)
        self.shut(pair)

    def refuses(self, data):
        if self.refusals == 0 or self.refused not in data.upper():  # some clients send names in lower case
            return False
        self.refusals -= 1
        return True

    def shut(self, pair):
        for end in pair:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def refuse(self, word, times):
        """Breaks a connection off when it brings a request with that word, so many times, and passes none of these on."""
        self.refused, self.refusals = word.encode(), times

    def hold_requests(self):
        self.requests.clear()

    def hold_replies(self):
        self.replies.clear()

    def go_on(self):
        self.requests.set()
        self.replies.set()

    def cut(self):
        pairs, self.pairs = self.pairs, []
        for pair in pairs:
            self.shut(pair)

    def silent(self, seconds):
        self.requests.clear()
        self.replies.clear()
        threading.Timer(seconds, self.go_on).start()

    def close(self):
        self.listener.close()
        self.cut()
        self.go_on()

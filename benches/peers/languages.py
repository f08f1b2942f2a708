"""The libraries, how each language's are built, and which versions its package manager brought."""
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = ROOT / "target/peers"


LOCK = ("workers", "processes", "waiters", "tasks", "keys", "alone")
MODES = (*LOCK, "readers")
ALL = (*MODES, "permits", "several")
PHP_LOCK = tuple(case for case in LOCK if case != "tasks")  # a process for each worker: no thousand of them


class Library:
    """`beside`: ours, which it is compared with. `polls`: whether its waiters do. `cases`: in which it takes part.
    `lock`: whether it is one, and not a measure of what the server and the round trip allow."""

    def __init__(self, language, label, name, beside=None, polls=False, cases=LOCK, lock=True):
        self.language, self.label, self.name, self.beside = language, label, name, beside
        self.polls, self.cases, self.lock = polls, cases, lock

    @property
    def command(self):
        return [*COMMANDS[self.language](), self.name]


def ours(language, client, name, cases):
    return Library(language, f"Mortise, {client}", name, cases=cases)


JAVA, SHEDLOCK = ours("java", "Jedis", "mortise-jedis", ALL), ours("java", "ShedLock's provider", "mortise-shedlock", ("waiters",))
GO_REDIS, RUEIDIS = ours("go", "go-redis", "mortise-go-redis", MODES), ours("go", "rueidis", "mortise-rueidis", MODES)
PYTHON, NODE = ours("python", "redis-py", "mortise", MODES), ours("node", "ioredis", "mortise", ALL)
PHP, RUBY = ours("php", "Laravel", "mortise", (*PHP_LOCK, "readers")), ours("ruby", "redis-rb", "mortise", ("waiters", "permits"))
LIBRARIES = [
    JAVA, Library("java", "Redisson", "redisson", JAVA, cases=ALL),
    SHEDLOCK, Library("java", "ShedLock, Spring and Lettuce", "shedlock", SHEDLOCK, polls=True, cases=("waiters",)),
    GO_REDIS, Library("go", "redsync", "redsync", GO_REDIS, polls=True), Library("go", "redislock", "redislock", GO_REDIS, polls=True),
    Library("go", "no lock: BLPOP, RPUSH", "token", GO_REDIS, lock=False),
    RUEIDIS, Library("go", "rueidislock", "rueidislock", RUEIDIS),
    PYTHON, Library("python", "redis-py Lock", "redis-py", PYTHON, polls=True),
    NODE, Library("node", "redlock", "redlock", NODE, polls=True, cases=(*LOCK, "several")),
    Library("node", "redlock-universal", "redlock-universal", NODE, polls=True),
    Library("node", "redis-semaphore (npm)", "redis-semaphore", NODE, polls=True, cases=("permits",)),
    PHP, Library("php", "Laravel Cache::lock", "laravel", PHP, polls=True, cases=PHP_LOCK),
    Library("php", "Symfony RedisStore", "symfony", PHP, polls=True, cases=(*PHP_LOCK, "readers")),
    RUBY, Library("ruby", "redis-semaphore (gem)", "redis-semaphore", RUBY, cases=("waiters", "permits")),
    Library("ruby", "sidekiq-unique-jobs", "sidekiq-unique-jobs", RUBY, cases=("waiters",)),
]
REDIS_RB, GEMS = "4.8.0", {"redis-semaphore": "0.3.1", "sidekiq-unique-jobs": "8.0.11"}

VENV = TARGET / "venv"
CLASSPATH = TARGET / "classpath"
COMMANDS = {
    "java": lambda: ["java", "-cp", CLASSPATH.read_text(), "Driver"],
    "go": lambda: [str(TARGET / "go-driver")],
    "python": lambda: [str(VENV / "bin/python"), str(HERE / "python/driver.py")],
    "node": lambda: ["node", str(HERE / "node/driver.js")],
    "php": lambda: ["php", str(HERE / "php/driver.php")],
    "ruby": lambda: ["env", f"GEM_PATH={gem_path()}", "ruby", "-W0", str(HERE / "ruby/driver.rb")],
}


# Of one library rather than of its language: (language, name) and why it is left out.
unavailable = {}


class NotHere(SystemExit):
    """A toolchain, or packages that have to be fetched, cannot be had here."""


def gem_path():
    """Where Ruby's gems are: those fetched for this, what helpers/ruby has fetched of a newer distribution, and its own."""
    newer = ROOT / "target/helpers/ruby/newer/usr/share/rubygems-integration/all"
    return ":".join(map(str, (TARGET / "gems", newer, run(HERE, "ruby", "-e", "print Gem.path.join(':')"))))


def run(folder, *command, error=SystemExit):
    """Its output. With CI=true four minutes have to do, for what has to be fetched may not be there to be had."""
    limit = 240 if os.environ.get("CI") == "true" else None
    try:
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        raise error(f"{' '.join(command)} took more than {limit} s")
    if done.returncode != 0:
        raise error(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def fetch(folder, *command):
    return run(folder, *command, error=NotHere)


def java():
    """Ours is compiled where it is and not installed: an installed one could be an older one."""
    ours, classes, libraries = ROOT / "helpers/java", TARGET / "java", TARGET / "libraries"
    fetch(ours, "./interop", "prepare")
    fetch(HERE / "java", "mvn", "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:build-classpath", f"-Dmdep.outputFile={libraries}")
    run(ours, "mvn", "-q", "-B", "-o", "compile")
    CLASSPATH.write_text(f"{classes}:{ours}/target/classes:{libraries.read_text()}")
    run(HERE / "java", "javac", "-d", str(classes), "-cp", CLASSPATH.read_text(), "Driver.java", "Contenders.java")
    jars = [pathlib.Path(jar) for jar in libraries.read_text().split(":")]
    return [f"{jar.parent.parent.name} {jar.parent.name}" for jar in jars if jar.parent.parent.name in ("redisson", "jedis", "shedlock-core")]


def go():
    fetch(HERE / "go", "go", "mod", "download")
    run(HERE / "go", "go", "build", "-o", str(TARGET / "go-driver"), ".")
    lines = run(HERE / "go", "go", "list", "-m", "-f", "{{if not (or .Indirect .Main .Replace)}}{{.Path}} {{.Version}}{{end}}", "all").split("\n")
    return [line.replace("github.com/", "") for line in lines if any(name in line for name in ("redislock", "redsync", "go-redis/v9", "redis/rueidis "))]


def python():
    if not VENV.exists():
        run(ROOT, "python3", "-m", "venv", str(VENV))
    pip = [str(VENV / "bin/python"), "-m", "pip", "--disable-pip-version-check"]
    fetch(HERE / "python", *pip, "install", "--quiet", "-r", "requirements.txt", str(ROOT / "helpers/python"))
    return [f"{p['name']} {p['version']}" for p in json.loads(run(ROOT, *pip, "list", "--format", "json")) if p["name"] == "redis"]


def node():
    fetch(HERE / "node", "npm", "install", "--no-fund", "--no-audit", "--loglevel=error")
    tree = json.loads(run(HERE / "node", "npm", "ls", "--json", "--depth=0"))["dependencies"]
    return [f"{name} {tree[name]['version']}" for name in ("ioredis", "redlock", "redlock-universal", "redis-semaphore")]


def php():
    """All comes with the distribution's packages."""
    return [line for line in run(HERE, "dpkg-query", "--show", "--showformat", "${Package} ${Version}\\n",
                                 "php-redis", "php-laravel-framework", "php-symfony-lock").split("\n") if line]


def have_gem(name, version):
    gem, wanted = ["env", f"GEM_PATH={gem_path()}", "gem"], [name, "--version", version]
    if subprocess.run([*gem, "list", "--installed", "--exact", *wanted], stdout=subprocess.DEVNULL).returncode != 0:
        fetch(HERE, *gem, "install", "--install-dir", str(TARGET / "gems"), "--no-document", *wanted)
    return f"{name} {version}"


def ruby():
    """The distribution has redis-rb. What is compared with ours comes from the gems' own registry, which not every network reaches."""
    fetch(ROOT / "helpers/ruby", "./interop", "prepare")
    versions = [have_gem("redis", REDIS_RB)]
    for name, version in GEMS.items():
        try:
            versions.append(have_gem(name, version))
        except NotHere as why:
            print(f"the gem {name} is left out: {why}", file=sys.stderr)
            unavailable["ruby", name] = f"the gem {name} {version}, which cannot be fetched here"
    return versions


BUILDERS = {"java": java, "go": go, "python": python, "node": node, "php": php, "ruby": ruby}


def build(language):
    """Builds a language's driver. The line that says which versions it has."""
    found = subprocess.run(["./interop", "toolchain"], cwd=ROOT / "helpers" / language, capture_output=True, text=True)
    if found.returncode != 0:
        raise NotHere(f"{language}: missing here: {found.stderr.strip()}. To leave it out: WITHOUT={language}")
    return f"{found.stdout.strip()}: {', '.join(BUILDERS[language]())}"


def prepare(without):
    """The libraries whose languages are not left out, ready to run, and the lines that say which versions they are."""
    unknown = set(without) - set(BUILDERS)
    if unknown:
        raise SystemExit(f"WITHOUT names {unknown.pop()}; the languages are {', '.join(BUILDERS)}")
    versions = [build(language) for language in BUILDERS if language not in without]
    if without:
        versions.append(f"left out: {', '.join(without)}")
    versions += [f"left out: {why}" for why in unavailable.values()]
    libraries = [library for library in LIBRARIES if library.language not in without]
    return [library for library in libraries if (library.language, library.name) not in unavailable], versions

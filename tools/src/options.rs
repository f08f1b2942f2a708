//! The command line and the environment.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};
use redis::{ConnectionInfo, IntoConnectionInfo, TlsCertificates};

use crate::tls;

/// The URL to use if none is given.
const HERE: &str = "redis://127.0.0.1:6379/";

/// The text of `--help`.
pub const USAGE: &str = "\
mortise-top: a live view of the locks of Redis and Valkey servers with Mortise

  mortise-top [options] [URL …]

URL is redis://[user[:password]@]host[:port][/db], rediss://… over TLS, or unix:///path. Of a cluster name any
nodes: all primaries are found. Of independent servers name all. Without a URL: $MORTISE_URL, which may hold
several with spaces between them, else redis://127.0.0.1:6379/. Without a password in it: $REDISCLI_AUTH.

  --sentinel NAME    the URLs are those of Sentinels: watch the primary that they call NAME
  --user NAME        log in as this user
  --cacert FILE      trust these certificates instead of the system's
  --cert FILE        show this certificate…
  --key FILE         …whose key this is
  --count N          show the N locks of each server with the most waiters (50)
  --interval SECONDS how often to ask (1)
  --timeout SECONDS  how long a server may take to answer (2)
  --filter TEXT      show only lines with TEXT in the name of lock, holder or server
  --once             print the state once, in columns, and end: 0 if all servers answered, else 1
  --json             the same as JSON
  --help, --version
";

/// The chosen options.
#[derive(Debug)]
pub struct Options {
    /// Which servers.
    pub target: Target,
    /// How to ask them.
    pub asking: Asking,
    /// What to show first.
    pub filter: String,
    /// How to show it.
    pub output: Output,
}

/// Which servers.
#[derive(Debug, Clone)]
pub struct Target {
    /// Their addresses, or those of the Sentinels.
    pub urls: Vec<ConnectionInfo>,
    /// What the Sentinels call the primary, if they are Sentinels.
    pub sentinel: Option<String>,
    /// Certificates of our own, if any.
    pub certificates: Option<TlsCertificates>,
}

/// How to ask servers.
#[derive(Debug, Clone, Copy)]
pub struct Asking {
    /// How many locks to ask for.
    pub count: u32,
    /// How often.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// How to show what they say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// On the screen, until somebody quits.
    Live,
    /// Once, in columns.
    Plain,
    /// Once, as JSON.
    Json,
    /// Only this text.
    Text(&'static str),
}

impl Options {
    /// From the command line and the environment.
    ///
    /// # Errors
    /// What is wrong with them, for people.
    pub fn read() -> Result<Options, String> {
        parse(env::args_os().skip(1)).map_err(|error| format!("{error}\nTry mortise-top --help."))
    }
}

fn parse(args: impl Iterator<Item = OsString>) -> Result<Options, String> {
    let mut raw = Raw::default();
    raw.take(args).map_err(|error| error.to_string())?;
    let urls = raw.urls()?;
    let login = Login {
        user: raw.user,
        password: env::var("REDISCLI_AUTH")
            .ok()
            .filter(|word| !word.is_empty()),
    };
    let urls: Result<Vec<ConnectionInfo>, String> =
        urls.iter().map(|url| login.address(url)).collect();
    Ok(Options {
        target: Target {
            urls: urls?,
            sentinel: raw.sentinel,
            certificates: certificates(raw.files)?,
        },
        asking: Asking {
            count: raw.count.unwrap_or(50),
            interval: seconds("--interval", raw.interval, 1.0)?,
            timeout: seconds("--timeout", raw.timeout, 2.0)?,
        },
        filter: raw.filter,
        output: raw.output.unwrap_or(Output::Live),
    })
}

/// The options as they stand on the command line.
#[derive(Default)]
struct Raw {
    urls: Vec<String>,
    sentinel: Option<String>,
    user: Option<String>,
    /// Trusted certificates, our own, and its key.
    files: [Option<PathBuf>; 3],
    count: Option<u32>,
    interval: Option<f64>,
    timeout: Option<f64>,
    filter: String,
    output: Option<Output>,
}

impl Raw {
    fn take(&mut self, args: impl Iterator<Item = OsString>) -> Result<(), lexopt::Error> {
        let mut parser = Parser::from_args(args);
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Value(url) => self.urls.push(url.string()?),
                Arg::Long("sentinel") => self.sentinel = Some(parser.value()?.string()?),
                Arg::Long("user") => self.user = Some(parser.value()?.string()?),
                Arg::Long("cacert") => self.files[0] = Some(parser.value()?.into()),
                Arg::Long("cert") => self.files[1] = Some(parser.value()?.into()),
                Arg::Long("key") => self.files[2] = Some(parser.value()?.into()),
                Arg::Long("count") => {
                    let count: u32 = parser.value()?.parse()?;
                    self.count = Some(count.clamp(1, 1000));
                }
                Arg::Long("interval") => self.interval = Some(parser.value()?.parse()?),
                Arg::Long("timeout") => self.timeout = Some(parser.value()?.parse()?),
                Arg::Long("filter") => self.filter = parser.value()?.string()?,
                // An option that names a format wins over one that only says how often.
                Arg::Long("once") => self.output = self.output.or(Some(Output::Plain)),
                Arg::Long("json") => self.output = Some(Output::Json),
                Arg::Long("help") | Arg::Short('h') => self.output = Some(Output::Text(USAGE)),
                Arg::Long("version") | Arg::Short('V') => {
                    let version = concat!("mortise-top ", env!("CARGO_PKG_VERSION"), "\n");
                    self.output = Some(Output::Text(version));
                }
                other => return Err(other.unexpected()),
            }
        }
        Ok(())
    }

    fn urls(&self) -> Result<Vec<String>, String> {
        if !self.urls.is_empty() {
            return Ok(self.urls.clone());
        }
        let urls = env::var("MORTISE_URL").unwrap_or_default();
        let urls: Vec<String> = urls.split_whitespace().map(str::to_owned).collect();
        match (urls.is_empty(), &self.sentinel) {
            (true, Some(_)) => Err("--sentinel needs the URL of a Sentinel".to_owned()),
            (true, None) => Ok(vec![HERE.to_owned()]),
            (false, _) => Ok(urls),
        }
    }
}

struct Login {
    user: Option<String>,
    password: Option<String>,
}

impl Login {
    fn address(&self, url: &str) -> Result<ConnectionInfo, String> {
        let info = url.into_connection_info().map_err(|error| {
            // The URL may hold a password: it is not repeated.
            let host = url.rsplit('@').next().unwrap_or_default();
            format!("{host:?} is not an address such as redis://HOST:PORT/: {error}")
        })?;
        let mut settings = info.redis_settings().clone();
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if settings.password().is_none()
            && let Some(password) = &self.password
        {
            settings = settings.set_password(password);
        }
        Ok(info.set_redis_settings(settings))
    }
}

fn certificates(files: [Option<PathBuf>; 3]) -> Result<Option<TlsCertificates>, String> {
    let read = |file: &Option<PathBuf>| {
        let read =
            |path: &PathBuf| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        file.as_ref().map(read).transpose()
    };
    tls::certificates([read(&files[0])?, read(&files[1])?, read(&files[2])?])
}

fn seconds(option: &str, given: Option<f64>, default: f64) -> Result<Duration, String> {
    match given.unwrap_or(default) {
        seconds if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        seconds => Err(format!("{option} {seconds}: between 0.1 and 3600 seconds")),
    }
}

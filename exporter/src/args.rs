//! The options on the command line and in the environment.

use std::env;
use std::fs;
use std::time::Duration;

use redis::TlsCertificates;

use crate::address::Address;
use crate::discovery::{Discovery, Source};
use crate::link::{Access, Login};

/// Where metrics are served by default: for this machine alone.
const LISTEN: &str = "127.0.0.1:9637";
const TIMEOUT: Duration = Duration::from_secs(3);
const USERNAME: &str = "MORTISE_EXPORTER_USERNAME";
const PASSWORD: &str = "MORTISE_EXPORTER_PASSWORD";
/// The server to ask if none is named.
const HERE: &str = "127.0.0.1:6379";

const HELP: &str = "\
mortise-exporter: the locks of Redis and Valkey servers as metrics for Prometheus

mortise-exporter [OPTION VALUE]...

  --server ADDRESS        a server on the page /metrics: host:port, redis://host:port, or rediss://host:port over TLS;
                          may be given more than once (127.0.0.1:6379 if no server is named in any way)
  --cluster ADDRESS,...   all nodes of the cluster that one of these knows, primaries and replicas
  --sentinel NAME@ADDRESS,...
                          the primary that these Sentinels call NAME, and its replicas
  --allow-target PATTERN  servers that /scrape?target=host:port may name: a host:port in which * matches anything; may
                          be given more than once. By default none, because each gets the password
  --username NAME         the ACL user; or MORTISE_EXPORTER_USERNAME
  --password-file FILE    a file with the password; or the password itself in MORTISE_EXPORTER_PASSWORD
  --cacert FILE           over TLS trust these certificates instead of the system's
  --cert FILE             over TLS show this certificate...
  --key FILE              ...whose key this is
  --listen ADDRESS        where metrics are served (127.0.0.1:9637)
  --timeout SECONDS       how long a server may take to answer (3)
  --names N               also show the N locks with the most waiters by name (0): names become labels, so keep N
                          small, and the names no secrets
  --once                  print the page /metrics and end
  --help, --version
";

/// What the program is to do.
#[derive(Debug)]
pub(crate) enum Wish {
    Serve(Options),
    /// Write the page of metrics.
    Once(Options),
    Print(String),
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) listen: String,
    pub(crate) sources: Vec<Discovery>,
    pub(crate) allowed: Vec<String>,
    pub(crate) access: Access,
    pub(crate) timeout: Duration,
    pub(crate) names: usize,
}

/// Reads the arguments, the program's name left out.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Wish, String> {
    let mut options = Options {
        listen: LISTEN.to_owned(),
        sources: Vec::new(),
        allowed: Vec::new(),
        access: Access {
            login: Login {
                username: env::var(USERNAME).ok(),
                password: env::var(PASSWORD).ok(),
            },
            certificates: None,
        },
        timeout: TIMEOUT,
        names: 0,
    };
    let (mut args, mut once, mut files) = (args, false, [const { None }; 3]);
    while let Some(option) = args.next() {
        match &*option {
            "--help" | "-h" => return Ok(Wish::Print(HELP.to_owned())),
            "--version" | "-V" => {
                let version = env!("CARGO_PKG_VERSION");
                return Ok(Wish::Print(format!("mortise-exporter {version}\n")));
            }
            "--once" => {
                once = true;
                continue;
            }
            _ => {}
        }
        let mut value = || args.next().ok_or(format!("{option} needs a value"));
        match &*option {
            "--server" | "--cluster" | "--sentinel" => {
                let source = source(&option, &value()?)?;
                options.sources.push(Discovery::new(source));
            }
            "--allow-target" => options.allowed.push(value()?),
            "--username" => options.access.login.username = Some(value()?),
            "--password-file" => options.access.login.password = Some(password(&value()?)?),
            "--cacert" => files[0] = Some(value()?),
            "--cert" => files[1] = Some(value()?),
            "--key" => files[2] = Some(value()?),
            "--listen" => options.listen = value()?,
            "--timeout" => options.timeout = seconds(&value()?)?,
            "--names" => {
                let text = value()?;
                let number = text.parse().ok().filter(|number| *number <= 1_000);
                options.names = number.ok_or(format!("--names is 0 to 1000, not '{text}'"))?;
            }
            _ => return Err(format!("there is no option '{option}'")),
        }
    }
    if options.sources.is_empty() && options.allowed.is_empty() {
        let here = Source::Server(Address::parse(HERE)?);
        options.sources.push(Discovery::new(here));
    }
    options.access.certificates = certificates(files)?;
    Ok(if once {
        Wish::Once(options)
    } else {
        Wish::Serve(options)
    })
}

/// A source of servers, from an option.
fn source(option: &str, value: &str) -> Result<Source, String> {
    let addresses = |list: &str| {
        list.split(',')
            .map(Address::parse)
            .collect::<Result<Vec<_>, _>>()
    };
    match option {
        "--cluster" => Ok(Source::Cluster(addresses(value)?)),
        "--sentinel" => {
            let named = value.split_once('@').filter(|(name, _)| !name.is_empty());
            let (name, list) = named.ok_or("--sentinel is NAME@host:port,...")?;
            Ok(Source::Sentinels(name.to_owned(), addresses(list)?))
        }
        _ => Ok(Source::Server(Address::parse(value)?)),
    }
}

fn certificates(files: [Option<String>; 3]) -> Result<Option<TlsCertificates>, String> {
    let read = |path: &Option<String>| {
        let read = |path| fs::read(path).map_err(|why| format!("{path} cannot be read: {why}"));
        path.as_ref().map(read).transpose()
    };
    mortise_reach::certificates([read(&files[0])?, read(&files[1])?, read(&files[2])?])
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| (0.01..=300.0).contains(seconds));
    let seconds = seconds.ok_or(format!("--timeout is 0.01 to 300 seconds, not '{text}'"))?;
    Ok(Duration::from_secs_f64(seconds))
}

fn password(path: &str) -> Result<String, String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(why) => Err(format!("the password file {path} cannot be read: {why}")),
    }
}

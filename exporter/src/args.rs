//! What is said on the command line and in the environment.

use std::env;
use std::fs;
use std::time::Duration;

/// Where metrics are served unless said otherwise: for this machine alone.
const LISTEN: &str = "127.0.0.1:9637";
const TIMEOUT: Duration = Duration::from_secs(3);
const USERNAME: &str = "MORTISE_EXPORTER_USERNAME";
const PASSWORD: &str = "MORTISE_EXPORTER_PASSWORD";

const HELP: &str = "\
mortise-exporter: the locks of Redis and Valkey servers as metrics for Prometheus

mortise-exporter [OPTION VALUE]...

  --server ADDRESS        a server that /metrics tells of: host:port, redis://host:port, rediss://host:port where it
                          was built with TLS; may be given more than once, for each node of a cluster
                          (127.0.0.1:6379 if there is neither this nor --allow-target)
  --allow-target PATTERN  servers that /scrape?target=host:port may ask for: a host:port in which * is anything; may
                          be given more than once. None is allowed otherwise, because each gets the password
  --username NAME         the ACL user; or MORTISE_EXPORTER_USERNAME
  --password-file FILE    a file with the password; or the password itself in MORTISE_EXPORTER_PASSWORD
  --listen ADDRESS        where metrics are served (127.0.0.1:9637)
  --timeout SECONDS       how long a server may take to answer (3)
  --names N               also tell of the N locks with the most waiters by name (0): names become labels, so let N be
                          small, and the names no secrets
  --once                  write the page of /metrics to the standard output, and end
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
    pub(crate) servers: Vec<String>,
    pub(crate) allowed: Vec<String>,
    pub(crate) login: Login,
    pub(crate) timeout: Duration,
    pub(crate) names: usize,
}

/// Who the exporter is to the servers.
#[derive(Clone, Default)]
pub(crate) struct Login {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// Reads the arguments, the program's name left out.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Wish, String> {
    let mut options = Options {
        listen: LISTEN.to_owned(),
        servers: Vec::new(),
        allowed: Vec::new(),
        login: Login {
            username: env::var(USERNAME).ok(),
            password: env::var(PASSWORD).ok(),
        },
        timeout: TIMEOUT,
        names: 0,
    };
    let (mut args, mut once) = (args, false);
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
            "--server" => options.servers.push(value()?),
            "--allow-target" => options.allowed.push(value()?),
            "--username" => options.login.username = Some(value()?),
            "--password-file" => options.login.password = Some(read_password(&value()?)?),
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
    if options.servers.is_empty() && options.allowed.is_empty() {
        options.servers.push("127.0.0.1:6379".to_owned());
    }
    Ok(if once {
        Wish::Once(options)
    } else {
        Wish::Serve(options)
    })
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| (0.01..=300.0).contains(seconds));
    let seconds = seconds.ok_or(format!("--timeout is 0.01 to 300 seconds, not '{text}'"))?;
    Ok(Duration::from_secs_f64(seconds))
}

fn read_password(path: &str) -> Result<String, String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(why) => Err(format!("the password file {path} cannot be read: {why}")),
    }
}

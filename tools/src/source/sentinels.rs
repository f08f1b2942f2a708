//! The thread that asks Sentinels who the primary is.

use std::thread;

use redis::{Value, cmd};

use super::dial::Address;
use super::reply::{self, error_text};
use crate::options::Asking;

/// Asks one Sentinel after the other, and sends the primary, or why no Sentinel knows one, until `send` reports that the receiver is gone.
pub(super) fn run(
    sentinels: &[Address],
    name: &str,
    asking: Asking,
    send: impl Fn(Result<Address, String>) -> bool,
) {
    // The Sentinel that has answered is asked first.
    let mut first = 0;
    loop {
        let mut outcome = Err("no Sentinel is named".to_owned());
        for step in 0..sentinels.len() {
            let at = (first + step) % sentinels.len();
            outcome = ask(&sentinels[at], name, asking);
            if outcome.is_ok() {
                first = at;
                break;
            }
        }
        if !send(outcome) {
            return;
        }
        thread::sleep(asking.interval);
    }
}

/// A Sentinel often asks for no password where the servers do, so it is tried without one first.
fn ask(sentinel: &Address, name: &str, asking: Asking) -> Result<Address, String> {
    let mut last = String::new();
    for address in [&sentinel.without_login(), sentinel] {
        match ask_as(address, name, asking) {
            Ok(Some((host, port))) => return Ok(sentinel.sibling(&host, port)),
            Ok(None) => {
                return Err(format!("{} knows no primary {name:?}", sentinel.name()));
            }
            Err(error) => last = error,
        }
        if !(last.starts_with("NOAUTH") || last.starts_with("NOPERM")) {
            break;
        }
    }
    Err(format!("{}: {last}", sentinel.name()))
}

fn ask_as(address: &Address, name: &str, asking: Asking) -> Result<Option<(String, u16)>, String> {
    let mut link = address.open(asking.timeout)?;
    let question = cmd("SENTINEL")
        .arg("GET-MASTER-ADDR-BY-NAME")
        .arg(name)
        .to_owned();
    match &link.ask(&[question], asking.timeout)?[0] {
        Value::ServerError(error) => Err(error_text(error)),
        reply => {
            let [host, port] = reply::items(reply) else {
                return Ok(None);
            };
            let port = reply::string(port).parse();
            Ok(port.ok().map(|port| (reply::string(host), port)))
        }
    }
}

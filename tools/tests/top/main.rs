//! `mortise-top` in a terminal, and once, against real servers.

mod breaking;
mod docs;
mod leaving;
mod list;
mod once;
mod one_lock;
mod servers;
mod terminal;
mod tls;

use std::path::Path;

use mortise_harness::{Builder, Server};

use terminal::Terminal;

/// The program.
const TOP: &str = env!("CARGO_BIN_EXE_mortise-top");

/// The program on a terminal, with these arguments.
fn top(args: &[&str]) -> Terminal {
    let args = [args, &["--interval", "0.2"]].concat();
    Terminal::start(Path::new(TOP), &args, &[])
}

/// A server whose boxes are kept while nobody asks for their letters.
fn builder() -> Builder {
    Server::builder().module_arg("mail-timeout", "60000")
}

//! Ten processes that want one lock, shown in a minute: `make demo`.
//!
//! It starts a server with the module and ten clients as processes of their own. The holder of the
//! lock sells the next ticket. One is killed while it holds, one is frozen for longer than its
//! lease; at the end it checks the ledger.

#![forbid(unsafe_code)]

mod actor;
mod cast;
mod ledger;
mod options;
mod picture;
mod scene;
mod show;
mod stage;
mod story;
mod svg;

use std::process::ExitCode;

use options::Part;

fn main() -> ExitCode {
    let outcome = match options::read() {
        Ok(Part::Actor(part)) => actor::play(&part),
        Ok(Part::Show(settings)) => story::perform(&settings),
        Ok(Part::Help) => {
            print!("{}", options::USAGE);
            Ok(())
        }
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mortise-demo: {error}");
            ExitCode::FAILURE
        }
    }
}

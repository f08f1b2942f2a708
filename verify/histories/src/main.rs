//! Searches for broken promises: clients use locks while servers, links and clients fail, and judges check what the clients believed.
//! `make -C verify histories` runs all of it; `docs/proof.md` has the results.

#![forbid(unsafe_code)]

mod check;
mod client;
mod crowd;
mod haul;
mod history;
mod languages;
mod options;
mod page;
mod run;
mod setup;
mod show;
mod watcher;

use std::process::ExitCode;

use options::Part;

fn main() -> ExitCode {
    let outcome = match options::read() {
        Ok(Part::Work(job)) => client::run(&job),
        Ok(Part::Histories(wanted)) => show::histories(&wanted),
        Ok(Part::Haul(wanted)) => haul::run(&wanted),
        Ok(Part::Help) => {
            print!("{}", options::USAGE);
            Ok(())
        }
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mortise-proof: {error}");
            ExitCode::FAILURE
        }
    }
}

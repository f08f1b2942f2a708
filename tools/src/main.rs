//! `mortise-top`: see `--help`.

use std::io::{self, Write};
use std::process::ExitCode;

use mortise_top::live;
use mortise_top::options::{Options, Output};

/// The command line is wrong, or there is no terminal.
const MISUSED: u8 = 2;

fn main() -> ExitCode {
    let options = match Options::read() {
        Ok(options) => options,
        Err(error) => return fail(&error),
    };
    match options.output {
        Output::Text(text) => print(text, true),
        Output::Live => match live::run(options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string()),
        },
        Output::Plain | Output::Json => {
            let (text, all) = live::once(&options);
            print(&text, all)
        }
    }
}

fn print(text: &str, well: bool) -> ExitCode {
    // A reader of only the first lines closes the pipe.
    let _ = io::stdout().write_all(text.as_bytes());
    if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn fail(error: &str) -> ExitCode {
    eprintln!("mortise-top: {error}");
    ExitCode::from(MISUSED)
}

//! Serves what `INFO lock` says of Redis and Valkey servers as metrics for Prometheus.
//!
//! ```text
//!  Prometheus ──GET /metrics──►  http ──► pages ──► discovery (CLUSTER NODES, SENTINEL) ──► addresses
//!                                           │
//!                                           └────► server (INFO, LOCK.TOP) ──► metrics ──► text
//! ```
//!
//! Every scrape asks the servers anew, over new connections, each within a limit. One that does not answer is
//! `mortise_up 0` and costs the others nothing. Names of locks are no labels unless asked for: they are many, and may
//! be secret.

#![forbid(unsafe_code)]

mod address;
mod args;
mod discovery;
mod fields;
mod http;
mod link;
mod metrics;
mod pages;
mod server;

use std::net::TcpListener;
use std::process::ExitCode;

use args::{Options, Wish};
use pages::Pages;

fn main() -> ExitCode {
    let wish = args::parse(std::env::args().skip(1));
    mortise_reach::bring_cryptography();
    match wish {
        Ok(Wish::Serve(options)) => serve(options),
        Ok(Wish::Once(options)) => once(options),
        Ok(Wish::Print(text)) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("mortise-exporter: {why}\nmortise-exporter: see --help");
            ExitCode::from(2)
        }
    }
}

fn serve(options: Options) -> ExitCode {
    let bound = TcpListener::bind(&options.listen)
        .and_then(|listener| Ok((listener.local_addr()?, listener)));
    match bound {
        Ok((address, listener)) => {
            println!("mortise-exporter: serving http://{address}/metrics");
            let pages = Pages::new(options);
            http::serve(&listener, &|request| pages.answer(request))
        }
        Err(why) => {
            let listen = options.listen;
            eprintln!("mortise-exporter: cannot listen on {listen}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn once(options: Options) -> ExitCode {
    let (status, page) = Pages::new(options).metrics().into_parts();
    print!("{page}");
    if status == 200 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

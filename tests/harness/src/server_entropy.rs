//! Makes a server run out of random numbers.

use std::fs;

use crate::entropy::file;
use crate::server::Server;

impl Server {
    /// From now on the server has no random numbers: its module panics when it makes the first hash table on a thread.
    ///
    /// # Panics
    /// If it was started without [`Builder::may_run_out_of_entropy`](crate::Builder::may_run_out_of_entropy).
    pub fn run_out_of_entropy(&self) {
        assert!(self.setup().entropy_ends, "a server that may run out");
        fs::write(file(self.dir()), "").expect("the server's folder can be written");
    }
}

//! Delays in a network of servers, clients included.

use std::time::Duration;

use mortise_harness::{Dice, Network, Server};

/// Delays what a server sends and receives, by up to 1.6 and 0.3 seconds.
pub(super) fn make_late(network: &Network, server: &Server, dice: &mut Dice) {
    network.delay_stream(server, Duration::from_millis(100 + dice.roll(1_500)));
    network.delay_acknowledgements(server, Duration::from_millis(dice.roll(300)));
}

pub(super) fn make_prompt(network: &Network, server: &Server) {
    network.delay_stream(server, Duration::ZERO);
    network.delay_acknowledgements(server, Duration::ZERO);
}

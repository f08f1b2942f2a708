//! Delays in a network of servers, clients included.

use std::thread;
use std::time::Duration;

use mortise_harness::{Dice, Network, Server};

/// Delays what a primary sends and receives, by up to 1.6 and 0.3 seconds. Every other time it is cut off then, until a replica is
/// promoted.
pub(super) fn make_late(
    network: &Network,
    primary: &Server,
    dice: &mut Dice,
    await_promotion: impl FnOnce(),
) {
    network.delay_stream(primary, Duration::from_millis(100 + dice.roll(1_500)));
    network.delay_acknowledgements(primary, Duration::from_millis(dice.roll(300)));
    thread::sleep(Duration::from_millis(500 + dice.roll(2_000)));
    if dice.roll(2) == 0 {
        network.cut_off(&[primary]);
        await_promotion();
    }
    network.delay_stream(primary, Duration::ZERO);
    network.delay_acknowledgements(primary, Duration::ZERO);
    network.mend();
}

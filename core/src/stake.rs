//! One owner's stake in one lock, and how it is kept.

use crate::types::{Instant, Mode, Token};

/// One owner's stake in one lock: what the contract calls a hold, less its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stake {
    /// How often it holds write, 0 to 2^31 − 1. One of `write` and `read` is at least 1.
    pub write: u32,
    /// How often it holds read, 0 to 2^31 − 1.
    pub read: u32,
    /// The fencing token.
    pub token: Token,
    /// When its lease is over: it holds before this moment and not from it on.
    pub deadline: Instant,
    /// When it was first granted.
    pub since: Instant,
    /// Which connection was granted last, and how often the hold was touched.
    pub touched: Touched,
    /// It ends with its current lease: nothing extends it, and its owner is granted nothing more.
    pub revoked: bool,
}

/// The connection a hold was last granted to, and a serial that moves with every change, so that
/// a late step can see whether the hold was touched since. Packed, because a million locks are
/// kept in memory: 40 bits of connection id (ten thousand new connections a second for three
/// years), 17 bits of serial (it is compared until the answer is delivered).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched(u64);

impl Touched {
    const CLIENT_BITS: u32 = 40;
    const SERIAL_BITS: u32 = 17;
    const BITS: u32 = Self::CLIENT_BITS + Self::SERIAL_BITS;
    const SERIAL_MASK: u64 = (1 << Self::SERIAL_BITS) - 1;

    /// First granted to connection `client`; 0, unknown, if its id needs more than 40 bits.
    pub fn by(client: u64) -> Self {
        Self(if client >> Self::CLIENT_BITS > 0 {
            0
        } else {
            client << Self::SERIAL_BITS
        })
    }

    /// Of a hold that was loaded. No grant that began a hold has it, nor has such a grant what this becomes, for 65,536 changes: a late step
    /// finds that the hold was touched.
    pub fn of_loaded() -> Self {
        Self(1 << (Self::SERIAL_BITS - 1))
    }

    /// The connection that was granted last, 0 if unknown.
    pub fn client(self) -> u64 {
        self.0 >> Self::SERIAL_BITS
    }

    /// Counts one more change, by `client` if it is a grant.
    #[must_use]
    pub fn again(self, client: Option<u64>) -> Self {
        let serial = self.0.wrapping_add(1) & Self::SERIAL_MASK;
        Self((Self::by(client.unwrap_or(self.client())).0 & !Self::SERIAL_MASK) | serial)
    }
}

impl Stake {
    /// How often it holds `mode`.
    pub fn count(&self, mode: Mode) -> u32 {
        match mode {
            Mode::Read => self.read,
            Mode::Write => self.write,
        }
    }

    pub(crate) fn count_mut(&mut self, mode: Mode) -> &mut u32 {
        match mode {
            Mode::Read => &mut self.read,
            Mode::Write => &mut self.write,
        }
    }

    /// Both counts together, as RELEASE replies them.
    pub fn total(&self) -> u64 {
        u64::from(self.write) + u64::from(self.read)
    }

    /// Write if it holds that, whether or not it reads as well.
    pub fn mode(&self) -> Mode {
        if self.write > 0 {
            Mode::Write
        } else {
            Mode::Read
        }
    }

    /// Its token is `token`, if one is given.
    pub(crate) fn has_token(&self, token: Option<Token>) -> bool {
        token.is_none_or(|token| token == self.token)
    }

    /// Leaves nothing of it.
    pub(crate) fn clear(&mut self) {
        (self.write, self.read) = (0, 0);
    }

    /// Its lease is over.
    pub fn is_over(&self, now: Instant) -> bool {
        self.deadline <= now
    }
}

/// A stake as locks keep it: four words instead of five. 31 bits of each count, 53 of the token,
/// 42 of the deadline, 41 of `since`, 57 of `touched` and one for `revoked` fill them to the last
/// bit; the counts lie where room is. A later moment than the last one that fits becomes that one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed([u64; 4]);

impl Packed {
    const DEADLINE_BITS: u32 = 42;
    const SINCE_BITS: u32 = 41;
    /// 139 years after the machine started: no lease lasts longer.
    pub(crate) const LAST_DEADLINE: Instant = Instant((1 << Self::DEADLINE_BITS) - 1);
    /// 69 years after the machine started: every hold seems to have begun by then.
    pub(crate) const LAST_SINCE: Instant = Instant((1 << Self::SINCE_BITS) - 1);
    /// In the third word, above `since`.
    const REVOKED: u64 = 1 << 63;

    pub(crate) fn of(stake: &Stake) -> Self {
        let (write, read) = (u64::from(stake.write), u64::from(stake.read));
        let deadline = stake.deadline.min(Self::LAST_DEADLINE);
        let since = stake.since.min(Self::LAST_SINCE);
        let revoked = if stake.revoked { Self::REVOKED } else { 0 };
        Self([
            stake.token.get() << 11 | write >> 20,
            deadline.0 << 22 | (write & 0xf_ffff) << 2 | read >> 29,
            revoked | since.0 << 22 | (read >> 7 & 0x3f_ffff),
            stake.touched.0 << 7 | (read & 0x7f),
        ])
    }

    pub(crate) fn unpack(self) -> Stake {
        let [a, b, c, d] = self.0;
        Stake {
            // 31 bits.
            write: ((a & 0x7ff) << 20 | (b >> 2 & 0xf_ffff)) as u32,
            read: self.reads(),
            // The number was a token when it was packed.
            token: Token::new(a >> 11).unwrap_or(Token::MAX),
            deadline: self.deadline(),
            since: Instant((c & !Self::REVOKED) >> 22),
            touched: Touched(d >> 7),
            revoked: self.is_revoked(),
        }
    }

    /// When its lease is over.
    pub(crate) fn deadline(self) -> Instant {
        Instant(self.0[1] >> 22)
    }

    /// How often it holds read.
    pub(crate) fn reads(self) -> u32 {
        let [_, b, c, d] = self.0;
        // 31 bits.
        ((b & 3) << 29 | (c & 0x3f_ffff) << 7 | (d & 0x7f)) as u32
    }

    /// Its lease is over.
    pub(crate) fn is_over(self, now: Instant) -> bool {
        self.deadline() <= now
    }

    /// It ends with its current lease.
    pub(crate) fn is_revoked(self) -> bool {
        self.0[2] & Self::REVOKED != 0
    }
}

const _: () = {
    let counts_and_token = 31 + 31 + 53;
    let moments = Packed::DEADLINE_BITS + Packed::SINCE_BITS;
    assert!(counts_and_token + moments + Touched::BITS + 1 == 4 * 64);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_stake_is_read_back_unchanged() {
        const COUNTS: [u32; 6] = [0, 1, 0x7f, 0x80, 1 << 20, (1 << 31) - 1];
        const DEADLINES: [Instant; 3] = [Instant(0), Instant(1), Packed::LAST_DEADLINE];
        const SINCES: [Instant; 3] = [Instant(0), Instant(1), Packed::LAST_SINCE];
        const CLIENTS: [u64; 2] = [0, (1 << 40) - 1];
        let token = Token::new(1).expect("a token");
        for write in COUNTS {
            for read in COUNTS {
                for deadline in DEADLINES {
                    for since in SINCES {
                        for (token, client, revoked) in [
                            (token, CLIENTS[0], false),
                            (token, CLIENTS[1], true),
                            (Token::MAX, CLIENTS[0], true),
                            (Token::MAX, CLIENTS[1], false),
                        ] {
                            let stake = Stake {
                                write,
                                read,
                                token,
                                deadline,
                                since,
                                touched: Touched::by(client).again(None),
                                revoked,
                            };
                            assert_eq!(Packed::of(&stake).unpack(), stake);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_moment_past_the_largest_becomes_the_largest() {
        let stake = Stake {
            write: 1,
            read: 0,
            token: Token::new(1).expect("a token"),
            deadline: Instant(u64::MAX),
            since: Instant(1 << 41),
            touched: Touched::by(0),
            revoked: false,
        };
        let packed = Packed::of(&stake);
        assert_eq!(packed.deadline(), Packed::LAST_DEADLINE);
        assert_eq!(packed.unpack().since, Packed::LAST_SINCE);
        assert!(!packed.is_revoked());
        assert!(!packed.is_over(Instant(Packed::LAST_DEADLINE.0 - 1)));
    }

    #[test]
    fn a_touch_moves_the_serial_and_a_grant_the_connection() {
        let first = Touched::by(7);
        assert_eq!(first.client(), 7);
        let renewed = first.again(None);
        assert_eq!(renewed.client(), 7);
        assert_ne!(renewed, first);
        let granted = renewed.again(Some(8));
        assert_eq!(granted.client(), 8);
        assert_eq!(granted.again(Some(0)).client(), 0);
    }

    #[test]
    fn the_serial_wraps_without_changing_the_connection() {
        const LARGEST: u64 = (1 << Touched::CLIENT_BITS) - 1;
        let mut touched = Touched::by(LARGEST);
        for _ in 0..1 << Touched::SERIAL_BITS {
            let before = touched;
            touched = touched.again(None);
            assert_ne!(touched, before);
            assert_eq!(touched.client(), LARGEST);
        }
        assert_eq!(touched, Touched::by(LARGEST));
    }

    #[test]
    fn a_connection_of_more_than_40_bits_is_unknown() {
        assert_eq!(Touched::by(1 << 40).client(), 0);
        assert_eq!(Touched::by(7).again(Some(u64::MAX)).client(), 0);
    }
}

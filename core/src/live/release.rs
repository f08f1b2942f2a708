//! How a release changes a hold.

use super::Live;
use crate::request::{How, Release, ReleaseError, Released};
use crate::stake::Stake;
use crate::types::Mode;

impl Live<'_> {
    /// Lowers a hold's counts, or ends the hold.
    ///
    /// # Errors
    /// [`ReleaseError`]; nothing has changed.
    pub fn release(&mut self, release: &Release<'_>) -> Result<Released, ReleaseError> {
        let released = self.alter(release.owner, |stake| {
            if !stake.has_token(release.token) {
                return Err(ReleaseError::NotHeld);
            }
            take_away(stake, release.how)
        });
        released.unwrap_or(Err(ReleaseError::NotHeld))
    }
}

fn take_away(stake: &mut Stake, how: How) -> Result<Released, ReleaseError> {
    let (mode, target) = match how {
        How::All => {
            stake.clear();
            return Ok(Released {
                left: 0,
                changed: true,
                since: stake.since,
            });
        }
        How::One(mode) => (mode, None),
        How::LeaveAt(count, mode) => (mode, Some(count)),
    };
    let mode = match mode {
        Some(mode) => mode,
        None if stake.write > 0 && stake.read > 0 => return Err(ReleaseError::ModeNotNamed),
        None if stake.write > 0 => Mode::Write,
        None => Mode::Read,
    };
    let count = stake.count_mut(mode);
    if *count == 0 {
        return Err(ReleaseError::NotHeld);
    }
    let target = target.unwrap_or(*count - 1).min(*count);
    let changed = target != *count;
    *count = target;
    stake.touched = stake.touched.again(None);
    Ok(Released {
        left: stake.total(),
        changed,
        since: stake.since,
    })
}

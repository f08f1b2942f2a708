//! A guard's part in a hold: taken, and given back.

use std::sync::Arc;

use crate::proto::acquire::Patience;
use crate::proto::round::{Round, Vote};
use crate::run::change;
use crate::run::held::Held;
use crate::run::hold::Hold;
use crate::value::clock::BootInstant;
use crate::value::error::{ChangeFailed, Error};
use crate::value::mode::Mode;
use crate::value::released::Released;

/// One guard's part in a hold; dropped, it is given back in the background.
pub(crate) struct Part {
    pub(crate) held: Held,
    renews: bool,
    is_released: bool,
}

/// What is left of a hold.
enum Left {
    Nothing,
    /// Readers, of one that writes.
    Readers,
    Guards,
}

impl Part {
    /// The first one.
    pub(crate) fn new(hold: Arc<Hold>, mode: Mode, renews: bool) -> Part {
        Part {
            held: Held { hold, mode },
            renews,
            is_released: false,
        }
    }

    /// Another one, of a hold that ends by then.
    pub(crate) fn join(
        hold: &Arc<Hold>,
        mode: Mode,
        renews: bool,
        cap: Option<BootInstant>,
    ) -> Result<Part, Error> {
        hold.with(|state| {
            if let Some(loss) = state.belief.loss(BootInstant::now()) {
                return Err(Error::Lost(loss));
            }
            state.guards += 1;
            state.writers += u32::from(mode == Mode::Write);
            state.renewing += u32::from(renews);
            state.belief.limit(cap);
            Ok(())
        })?;
        hold.reschedule();
        Ok(Part::new(hold.clone(), mode, renews))
    }

    fn take_back(&mut self) -> Left {
        self.is_released = true;
        self.held.hold.with(|state| {
            state.guards -= 1;
            state.renewing -= u32::from(self.renews);
            state.writers -= u32::from(self.held.mode == Mode::Write);
            match (state.guards, state.writers) {
                (0, _) => Left::Nothing,
                (_, 0) if state.writes && self.held.mode == Mode::Write => Left::Readers,
                _ => Left::Guards,
            }
        })
    }

    fn set_mode(&mut self, mode: Mode) {
        self.held.mode = mode;
        self.held.hold.with(|state| match mode {
            Mode::Write => state.writers += 1,
            Mode::Read => state.writers -= 1,
        });
    }

    pub(crate) async fn upgrade(&mut self, patience: Patience) -> Result<(), ChangeFailed> {
        let hold = self.held.hold.clone();
        let _turn = hold.turn.lock().await;
        change::upgrade(&hold, patience).await?;
        if self.held.mode == Mode::Read {
            self.set_mode(Mode::Write);
        }
        Ok(())
    }

    pub(crate) async fn downgrade(&mut self) -> Result<(), ChangeFailed> {
        let gone = |error| ChangeFailed { error, left: None };
        self.held.check()?;
        if self.held.mode == Mode::Read {
            return Ok(());
        }
        // Before anything is sent: what is believed is never more than what is held.
        self.set_mode(Mode::Read);
        let changed = change::downgrade(&self.held.hold).await;
        match (changed, self.held.check()) {
            (Ok(()), held) => held.map(drop).map_err(gone),
            (Err(error), Err(_)) => Err(gone(error)),
            (Err(error), Ok(_)) => {
                self.set_mode(Mode::Write);
                let left = Some(Mode::Write);
                Err(ChangeFailed { error, left })
            }
        }
    }

    /// Gives it back, and what is left of the hold where it was the last one.
    pub(crate) async fn release(mut self) -> Result<Released, Error> {
        let changed = match self.take_back() {
            Left::Nothing => return release(&self.held.hold).await,
            Left::Readers => change::downgrade(&self.held.hold).await,
            Left::Guards => Ok(()),
        };
        match self.held.hold.loss() {
            Some(_) => Ok(Released::Lost),
            None => changed.map(|()| Released::Held),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.is_released {
            return;
        }
        match self.take_back() {
            Left::Nothing => drop(self.held.hold.release()),
            Left::Readers => drop(change::downgrade(&self.held.hold)),
            Left::Guards => {}
        }
    }
}

async fn release(hold: &Hold) -> Result<Released, Error> {
    let mut releasing = hold.release();
    if releasing.count() == 0 {
        return Ok(Released::Lost);
    }
    let mut round = Round::new(hold.core.servers.len());
    let (all, majority) = (round.len(), round.majority());
    // Where it is not, there is nothing to be released.
    let (mut held, mut lost, mut unknown) = (0, all - releasing.count(), 0);
    while let Some((server, released)) = releasing.next().await {
        match released {
            Ok(Released::Held) => held += 1,
            Ok(Released::Lost) => lost += 1,
            Ok(Released::Unknown) => unknown += 1,
            // It is said again in the background.
            Err(error) => round[server] = Vote::Unknown(error),
        }
        if held >= majority {
            return Ok(Released::Held);
        }
        if lost > all - majority {
            return Ok(Released::Lost);
        }
    }
    match held + lost + unknown >= majority {
        true => Ok(Released::Unknown),
        false => Err(hold.core.error_of(&round, held)),
    }
}

//! The events, in order, and the narrator's lines.

use std::fs;

use crate::cast::NAMES;
use crate::ledger::fault;
use crate::options::Settings;
use crate::show::Show;

/// How often a frozen client may turn out to have been quick enough.
const ATTEMPTS: u32 = 10;

/// Plays all events. An error says what went wrong, which may be that two were inside together.
pub(crate) fn perform(settings: &Settings) -> Result<(), String> {
    let mut show = Show::open(settings)?;
    let outcome = play_scenes(&mut show);
    let summary = outcome.as_ref().ok().map(|()| summary(&show));
    let picture = show.close()?;
    outcome?;
    if let Some(summary) = summary {
        println!("{summary}");
    }
    if let (Some(path), Some(picture)) = (&settings.svg, picture) {
        fs::write(path, picture).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn play_scenes(show: &mut Show) -> Result<(), String> {
    show.say(
        "Ten processes want one lock. The holder sells the next ticket: it reads the last number, thinks, and writes.",
    )?;
    show.sell_some()?;
    show.say("A release hands the lock straight to the next in the server's queue. Every grant has a larger token.")?;
    show.sell_some()?;
    kill_one(show)?;
    show.sell_some()?;
    freeze_one(show)?;
    show.sell_some()?;
    judge(show)
}

fn kill_one(show: &mut Show) -> Result<(), String> {
    // Freezes it first, so that it certainly holds the lock when it dies.
    let (who, _) = show.freeze_a_holder()?;
    let name = NAMES[who];
    show.kill(who)?;
    show.say(&format!(
        "{name} was killed while it held the lock (SIGKILL). Nobody releases it: the lease runs out by itself…"
    ))?;
    let (next, _) = show.until_another_holds(who)?;
    let next = NAMES[next];
    show.say(&format!("…and at that moment {next} is granted, the next in the queue. {name} never sold its ticket, so {next} does."))
}

fn freeze_one(show: &mut Show) -> Result<(), String> {
    for _ in 0..ATTEMPTS {
        let (who, token) = show.freeze_a_holder()?;
        let name = NAMES[who];
        show.say(&format!(
            "{name} holds the lock and is frozen (SIGSTOP) for longer than its lease, as if its machine had paused."
        ))?;
        show.until_another_holds(who)?;
        show.say(&format!(
            "The lease is over, and the others go on. {name} does not know that…"
        ))?;
        show.sell_some()?;
        show.say(
            "…and now it wakes (SIGCONT), believes that it still holds the lock, and writes.",
        )?;
        show.wake(who)?;
        if show.until_refused(who, token)? {
            return show.say(&format!(
                "LOCK.GUARD refused {name}: NOTHELD. It checks the lock and writes in one step, so no late write succeeds."
            ));
        }
        // Its write was sent before it froze, or the server wrongly accepted it.
        check_for_faults(show)?;
    }
    Err("nobody could be frozen in time".to_owned())
}

fn judge(show: &mut Show) -> Result<(), String> {
    check_for_faults(show)?;
    let sold = show.scene().sales.len();
    show.say(&format!(
        "{sold} tickets sold, none twice, none left out; the tokens only grew. Nobody got hurt."
    ))?;
    show.linger()
}

fn check_for_faults(show: &Show) -> Result<(), String> {
    match fault(&show.scene().sales) {
        Some(fault) => Err(format!("two were inside together: {fault}")),
        None => Ok(()),
    }
}

fn summary(show: &Show) -> String {
    let scene = show.scene();
    let refused: Vec<&str> = scene.refused.iter().map(|(who, _)| NAMES[*who]).collect();
    format!(
        "tickets sold: {}, in order, each once; tokens: only grew; refused: {}",
        scene.sales.len(),
        refused.join(", ")
    )
}

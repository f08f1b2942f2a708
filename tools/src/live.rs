//! The terminal: keys in, screens out.

use std::env;
use std::io::{self, IsTerminal};
use std::panic;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::model::{Key, Order, Report, State};
use crate::options::{Options, Output};
use crate::source::Source;
use crate::view::{self, Theme};

/// How long it waits for a key before it draws the screen again.
const BEAT: Duration = Duration::from_millis(100);
/// How long the program may take to end after a signal.
const FAREWELL: Duration = Duration::from_secs(2);

/// Shows the servers until the user quits.
///
/// # Errors
/// What is wrong with the terminal.
pub fn run(options: Options) -> io::Result<()> {
    if !io::stdout().is_terminal() {
        return Err(io::Error::other("this is not a terminal: try --once"));
    }
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    end_for_certain(Arc::clone(&ended));
    let began = Instant::now();
    let source = Source::start(&options.target, options.asking, &options.filter, began);
    let mut state = State::new(options.target.sentinel.is_some());
    state.filter = options.filter;
    with_terminal(|terminal| {
        while !ended.load(Ordering::Relaxed) {
            state.tick(began.elapsed());
            for report in source.reports.try_iter() {
                state.take(report);
            }
            terminal.draw(|frame| view::draw(&state, theme(), frame.area(), frame.buffer_mut()))?;
            let order = key()?.and_then(|key| state.press(key));
            match order {
                Some(Order::Quit) => break,
                Some(order) => source.order(order),
                None => {}
            }
        }
        Ok(())
    })
}

/// Waiting for the keys of a terminal that is gone would spin for ever: that, or a signal, ends the
/// program from here.
fn end_for_certain(ended: Arc<AtomicBool>) {
    thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) && !has_gone() {
            thread::sleep(BEAT);
        }
        ended.store(true, Ordering::Relaxed);
        thread::sleep(FAREWELL);
        // If there is still a terminal, restores it.
        let _ = ratatui::try_restore();
        process::exit(1);
    });
}

/// Nobody is at the other end of the terminal.
fn has_gone() -> bool {
    let stdout = io::stdout();
    let mut terminal = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec::default();
    poll(&mut terminal, Some(&now)).is_ok() && terminal[0].revents().contains(PollFlags::HUP)
}

/// The state once, as text, and whether all servers have answered.
pub fn once(options: &Options) -> (String, bool) {
    let began = Instant::now();
    let source = Source::start(&options.target, options.asking, &options.filter, began);
    let mut state = State::new(options.target.sentinel.is_some());
    state.filter.clone_from(&options.filter);
    // A connection, two questions; then once more, because nodes of a cluster are known of from others.
    let limit = options.asking.timeout * 8;
    let all = loop {
        let left = limit.saturating_sub(began.elapsed());
        match source.reports.recv_timeout(left) {
            Ok(report) => {
                let lost = matches!(report, Report::Lost { .. });
                state.take(report);
                if lost || is_complete(&state) {
                    break !lost;
                }
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break false,
        }
    };
    let text = match options.output {
        Output::Json => view::json(&state),
        _ => view::plain(&state),
    };
    let silent = state.nodes.values().any(|node| node.current().is_none());
    (text, all && !silent)
}

fn is_complete(state: &State) -> bool {
    !state.nodes.is_empty() && state.nodes.values().all(|node| node.is_known())
}

/// Lends the terminal, and restores it: afterwards, after an error, and after a panic in any thread, which
/// ends the program.
///
/// # Errors
/// Those of `use_it`, and of a terminal that is none.
pub fn with_terminal<T>(
    use_it: impl FnOnce(&mut DefaultTerminal) -> io::Result<T>,
) -> io::Result<T> {
    let mut terminal = ratatui::try_init()?;
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        // The hook below restores the terminal first. A program with a dead thread would show only half of the truth.
        report(info);
        process::exit(101);
    }));
    let outcome = use_it(&mut terminal);
    ratatui::try_restore()?;
    outcome
}

fn theme() -> Theme {
    Theme::new(env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
}

/// The next key with a meaning, if the user presses one soon.
fn key() -> io::Result<Option<Key>> {
    if !event::poll(BEAT)? {
        return Ok(None);
    }
    match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => Ok(meaning(key)),
        _ => Ok(None),
    }
}

fn meaning(key: KeyEvent) -> Option<Key> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if control => Key::Interrupt,
        KeyCode::Char(_) if control => return None,
        KeyCode::Char(char) => Key::Char(char),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}

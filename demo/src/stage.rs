//! Shows the show: on a terminal as a moving picture, elsewhere as lines; and in both cases records a picture for the documentation, if one
//! is wanted.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};

use crate::ledger::Sale;
use crate::picture;
use crate::scene::Scene;
use crate::svg::Film;

/// The stage.
pub(crate) struct Stage {
    /// None without a terminal: then it prints lines instead.
    terminal: Option<DefaultTerminal>,
    film: Option<Film>,
    began: Instant,
}

impl Stage {
    pub(crate) fn open(filmed: bool) -> io::Result<Stage> {
        let is_terminal = io::stdout().is_terminal();
        Ok(Stage {
            terminal: is_terminal.then(ratatui::try_init).transpose()?,
            film: filmed.then(Film::new),
            began: Instant::now(),
        })
    }

    /// The narrator speaks.
    pub(crate) fn say(&self, text: &str) {
        if self.terminal.is_none() {
            println!("-- {text}");
        }
    }

    /// A ticket was sold.
    pub(crate) fn sold(&self, sale: &Sale) {
        if self.terminal.is_none() {
            println!(
                "ticket {:>3}  token {}  {}",
                sale.ticket, sale.token, sale.seller
            );
        }
    }

    pub(crate) fn draw(&mut self, scene: &Scene) -> io::Result<()> {
        if let Some(film) = &mut self.film {
            film.shoot(self.began.elapsed(), scene);
        }
        if let Some(terminal) = &mut self.terminal {
            terminal.draw(|frame| picture::draw(scene, frame.area(), frame.buffer_mut()))?;
        }
        Ok(())
    }

    /// Somebody has pressed `q` or Ctrl-C.
    pub(crate) fn wants_to_end(&self) -> io::Result<bool> {
        // A time-out of zero reads nothing.
        let a_moment = Duration::from_millis(1);
        if self.terminal.is_none() || !event::poll(a_moment)? {
            return Ok(false);
        }
        let Event::Key(key) = event::read()? else {
            return Ok(false);
        };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        Ok(matches!(
            (key.code, control),
            (KeyCode::Char('c'), true) | (KeyCode::Char('q') | KeyCode::Esc, _)
        ))
    }

    /// Restores the terminal, and returns the recorded picture.
    pub(crate) fn close(mut self) -> io::Result<Option<String>> {
        let film = self.film.take();
        self.restore()?;
        Ok(film.map(|film| film.develop()))
    }

    fn restore(&mut self) -> io::Result<()> {
        match self.terminal.take() {
            Some(_) => ratatui::try_restore(),
            None => Ok(()),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // After another error, that one is reported.
        let _ = self.restore();
    }
}

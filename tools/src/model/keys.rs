//! What the keys do.

use super::sample::{Hold, LockId};
use super::state::{Order, Question, Screen, State, Typing, When};
use crate::text;

/// How many lines a page is.
const PAGE: usize = 10;

/// A key that means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A line up.
    Up,
    /// A line down.
    Down,
    /// Many lines up.
    PageUp,
    /// Many lines down.
    PageDown,
    /// To the first line.
    Home,
    /// To the last line.
    End,
    /// Yes, go on.
    Enter,
    /// Back.
    Escape,
    /// One letter back.
    Backspace,
    /// Ctrl-C.
    Interrupt,
    /// A letter.
    Char(char),
}

impl State {
    /// A key has been pressed.
    pub fn press(&mut self, key: Key) -> Option<Order> {
        if key == Key::Interrupt {
            return Some(Order::Quit);
        }
        self.notice = None;
        if let Some(question) = self.question.take() {
            return self.answer(question, key);
        }
        if self.help {
            self.help = false;
            return None;
        }
        match self.typing.take() {
            Some(Typing::Filter) => return Some(self.type_filter(key)),
            Some(Typing::Name(name)) => return self.type_name(name, key),
            None => {}
        }
        match key {
            Key::Char('q') => return Some(Order::Quit),
            Key::Char('?' | 'h') => self.help = true,
            Key::Char('p') => self.paused = !self.paused,
            Key::Char('b') => self.ask_to_break(),
            _ => return self.press_on_screen(key),
        }
        None
    }

    fn press_on_screen(&mut self, key: Key) -> Option<Order> {
        if let Some(step) = steps(key) {
            self.step(step);
            return None;
        }
        match (&self.screen, key) {
            (Screen::List, Key::Char('/')) => self.typing = Some(Typing::Filter),
            (Screen::List, Key::Char('o')) => self.typing = Some(Typing::Name(String::new())),
            (Screen::List, Key::Char('s')) => self.by_age = !self.by_age,
            (Screen::List, Key::Escape) => {
                self.filter.clear();
                return Some(Order::Filter(String::new()));
            }
            (Screen::List, Key::Enter) => return self.open(),
            (Screen::List, _) => {}
            (_, Key::Escape | Key::Backspace | Key::Enter) => {
                self.screen = Screen::List;
                return Some(Order::Watch(None));
            }
            _ => {}
        }
        None
    }

    fn type_filter(&mut self, key: Key) -> Order {
        match key {
            Key::Char(char) => self.filter.push(char),
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Escape => self.filter.clear(),
            _ => {}
        }
        if !matches!(key, Key::Enter | Key::Escape) {
            self.typing = Some(Typing::Filter);
        }
        self.settle_choice();
        Order::Filter(self.filter.clone())
    }

    /// A name is typed as it is shown: with `\x00` for invisible characters.
    fn type_name(&mut self, mut name: String, key: Key) -> Option<Order> {
        match key {
            Key::Char(char) => name.push(char),
            Key::Backspace => {
                name.pop();
            }
            Key::Escape => return None,
            Key::Enter if name.is_empty() => return None,
            Key::Enter => {
                let key = text::unescaped(&name);
                self.screen = Screen::Named(key.clone());
                self.line = 0;
                return Some(Order::Seek(key));
            }
            _ => {}
        }
        self.typing = Some(Typing::Name(name));
        None
    }

    fn step(&mut self, step: isize) {
        match &self.screen {
            Screen::List => {
                let rows = self.rows();
                let Some(line) = self.chosen_row(&rows) else {
                    return;
                };
                let line = line.saturating_add_signed(step).min(rows.len() - 1);
                self.chosen = (Some(rows[line].id()), line);
            }
            Screen::Lock(_) | Screen::Named(_) => {
                self.line = self.chosen_line().saturating_add_signed(step);
                self.line = self.chosen_line();
            }
        }
    }

    fn open(&mut self) -> Option<Order> {
        let rows = self.rows();
        let id = rows[self.chosen_row(&rows)?].id();
        self.screen = Screen::Lock(id.clone());
        self.line = 0;
        Some(Order::Watch(Some(id)))
    }

    fn ask_to_break(&mut self) {
        match self.breakable() {
            Ok(question) => self.question = Some(question),
            Err(why) => self.say(why),
        }
    }

    /// The chosen hold, or why there is none.
    fn breakable(&self) -> Result<Question, String> {
        match &self.screen {
            Screen::List => {
                let rows = self.rows();
                let line = self.chosen_row(&rows).ok_or("No lock is chosen")?;
                let wanted = rows[line].wanted;
                let holds = wanted
                    .detail
                    .as_ref()
                    .map_or(&[][..], |detail| &detail.holds);
                let name = text::escaped(&wanted.key);
                let hold = match (wanted.holders, holds) {
                    (1, [hold]) => hold,
                    (0, _) => return Err(format!("No holder of {name} is known")),
                    (1, _) => return Err(format!("The holder of {name} is not known yet")),
                    (many, _) => {
                        let holders = text::plural(many, "owner");
                        return Err(format!("{holders} hold {name}: open it and choose one"));
                    }
                };
                Ok(question(rows[line].id(), hold, wanted.waiters))
            }
            Screen::Lock(_) | Screen::Named(_) => {
                let open = self.opened_detail();
                let (id, detail) = open.ok_or("No holder of it is known")?;
                let hold = detail.holds.get(self.chosen_line());
                let hold = hold.ok_or("A waiter holds nothing: choose a holder")?;
                Ok(question(id.clone(), hold, detail.waiters))
            }
        }
    }

    fn answer(&mut self, question: Question, key: Key) -> Option<Order> {
        let when = match key {
            Key::Char('r') => When::WithItsLease,
            Key::Char('y') => When::Now,
            _ => {
                self.say("Nothing was broken");
                return None;
            }
        };
        Some(Order::Break {
            when,
            lock: question.lock,
            owner: question.hold.owner,
            token: question.hold.token,
        })
    }
}

fn question(lock: LockId, hold: &Hold, waiters: u64) -> Question {
    Question {
        lock,
        hold: hold.clone(),
        waiters,
    }
}

fn steps(key: Key) -> Option<isize> {
    match key {
        Key::Up | Key::Char('k') => Some(-1),
        Key::Down | Key::Char('j') => Some(1),
        Key::PageUp => Some(-(PAGE as isize)),
        Key::PageDown => Some(PAGE as isize),
        Key::Home | Key::Char('g') => Some(isize::MIN),
        Key::End | Key::Char('G') => Some(isize::MAX),
        _ => None,
    }
}

//! The styles, with colours and without (`NO_COLOR`).

use ratatui::style::{Color, Modifier, Style};

/// Whether there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    color: bool,
}

impl Theme {
    /// Colours, or the terminal's own only.
    pub fn new(color: bool) -> Theme {
        Theme { color }
    }

    fn colored(self, color: Color) -> Style {
        if self.color {
            Style::new().fg(color)
        } else {
            Style::new()
        }
    }

    /// The name of the program, and of what is open.
    pub(super) fn title(self) -> Style {
        self.colored(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// The label of a number.
    pub(super) fn label(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// A number.
    pub(super) fn number(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The names of columns.
    pub(super) fn column(self) -> Style {
        self.colored(Color::Cyan).add_modifier(Modifier::UNDERLINED)
    }

    /// A warning.
    pub(super) fn warning(self) -> Style {
        self.colored(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// An action that cannot be undone.
    pub(super) fn danger(self) -> Style {
        self.colored(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// The line that is chosen.
    pub(super) fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The last answer of a server that fell silent.
    pub(super) fn stale(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }
}

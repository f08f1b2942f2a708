//! A moving picture for web pages: the frames of the show in one SVG, without a script. All frames stand in a row, and a CSS animation
//! moves the row a frame at a time. Equal pieces of text are written once.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use crate::picture::{self, SIZE};
use crate::scene::Scene;

/// Frames that follow sooner than this are left out, unless there is a new line.
const SHORTEST: Duration = Duration::from_millis(1100);
/// How long the last frame stays.
const LAST: Duration = Duration::from_secs(4);

/// As many blanks end a piece of text.
const GAP: u16 = 3;

/// The text, a cell of the grid, and the frame around the picture, in pixels.
const FONT: u32 = 14;
const CELL: (f64, f64) = (8.4, 18.0);
const MARGIN: f64 = 10.0;

/// The recorded frames.
pub(crate) struct Film {
    frames: Vec<(Duration, Buffer)>,
    last: Option<Scene>,
}

impl Film {
    pub(crate) fn new() -> Film {
        Film {
            frames: Vec::new(),
            last: None,
        }
    }

    /// Records a frame if the picture has changed.
    pub(crate) fn shoot(&mut self, at: Duration, scene: &Scene) {
        let spoken = self
            .last
            .as_ref()
            .is_none_or(|last| last.said != scene.said);
        let soon = self
            .frames
            .last()
            .is_some_and(|(last, _)| at < *last + SHORTEST);
        if self.last.as_ref() == Some(scene) || (soon && !spoken) {
            return;
        }
        let mut buffer = Buffer::empty(SIZE);
        picture::draw(scene, SIZE, &mut buffer);
        self.frames.push((at, buffer));
        self.last = Some(scene.clone());
    }

    /// The picture.
    pub(crate) fn develop(&self) -> String {
        let width = f64::from(SIZE.width) * CELL.0 + 2.0 * MARGIN;
        let height = f64::from(SIZE.height) * CELL.1 + 2.0 * MARGIN;
        let mut pieces = Pieces::default();
        let mut row = String::new();
        for (at, (_, buffer)) in self.frames.iter().enumerate() {
            let edge = at as f64 * width + MARGIN;
            for y in 0..SIZE.height {
                let top = MARGIN + f64::from(y + 1) * CELL.1 - 4.0;
                for (from, to) in spans(buffer, y) {
                    let left = edge + f64::from(from) * CELL.0;
                    let number = pieces.number(runs(buffer, y, from, to));
                    add(
                        &mut row,
                        format_args!(r##"<use href="#p{number}" x="{left:.1}" y="{top:.0}"/>"##),
                    );
                }
            }
            row.push('\n');
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" font-size=\"{FONT}\" role=\"img\" xml:space=\"preserve\">\n\
             <title>Ten processes want one lock: make demo</title>\n\
             <style>\n{}</style>\n<defs>\n{}</defs>\n\
             <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#14181d\"/>\n<g class=\"film\">\n{row}</g>\n</svg>\n",
            self.style(width),
            pieces.text
        )
    }

    /// Each frame is shown from its time to that of the next.
    fn style(&self, width: f64) -> String {
        let begin = self.frames.first().map_or(Duration::ZERO, |(at, _)| *at);
        let end = self.frames.last().map_or(Duration::ZERO, |(at, _)| *at) + LAST;
        let length = (end - begin).as_secs_f64();
        let mut keys = String::new();
        for (number, (at, _)) in self.frames.iter().enumerate() {
            let percent = (*at - begin).as_secs_f64() * 100.0 / length;
            let left = number as f64 * width;
            add(
                &mut keys,
                format_args!("{percent:.2}%{{transform:translateX(-{left:.0}px)}}\n"),
            );
        }
        let last = self.frames.len().saturating_sub(1) as f64 * width;
        format!(
            "text{{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}}\n\
             .b{{font-weight:bold}}\n\
             .film{{animation:film {length:.1}s steps(1,end) infinite}}\n\
             @keyframes film{{\n{keys}100%{{transform:translateX(-{last:.0}px)}}\n}}\n\
             @media (prefers-reduced-motion:reduce){{.film{{animation:none;transform:translateX(-{last:.0}px)}}}}\n"
        )
    }
}

/// The different pieces of text of all frames.
#[derive(Default)]
struct Pieces {
    numbers: HashMap<String, usize>,
    text: String,
}

impl Pieces {
    fn number(&mut self, piece: String) -> usize {
        let next = self.numbers.len();
        if let Some(known) = self.numbers.get(&piece) {
            return *known;
        }
        add(
            &mut self.text,
            format_args!("<g id=\"p{next}\">{piece}</g>\n"),
        );
        self.numbers.insert(piece, next);
        next
    }
}

/// Where the pieces of a line begin and end: they are what stands between gaps.
fn spans(buffer: &Buffer, y: u16) -> Vec<(u16, u16)> {
    let mut found: Vec<(u16, u16)> = Vec::new();
    for x in (0..SIZE.width).filter(|x| buffer[(*x, y)].symbol() != " ") {
        match found.last_mut() {
            Some((_, end)) if x < *end + GAP => *end = x + 1,
            _ => found.push((x, x + 1)),
        }
    }
    found
}

/// A piece as texts of one style each, set where the grid has them, whatever the font.
fn runs(buffer: &Buffer, y: u16, from: u16, to: u16) -> String {
    let mut out = String::new();
    let mut x = from;
    while x < to {
        let first = &buffer[(x, y)];
        let alike = |at: &u16| style(&buffer[(*at, y)]) == style(first);
        let end = (x..to).take_while(alike).last().unwrap_or(x) + 1;
        let text: String = (x..end).map(|at| buffer[(at, y)].symbol()).collect();
        let shown = text.trim();
        if !shown.is_empty() {
            let ahead = text.chars().take_while(|char| *char == ' ').count();
            let left = (f64::from(x - from) + ahead as f64) * CELL.0;
            let length = shown.chars().count() as f64 * CELL.0;
            let (color, bold) = style(first);
            let bold = if bold { " class=\"b\"" } else { "" };
            let shown = shown.replace('&', "&amp;").replace('<', "&lt;");
            add(
                &mut out,
                format_args!(
                    "<text x=\"{left:.1}\" textLength=\"{length:.1}\" fill=\"{color}\"{bold}>{shown}</text>"
                ),
            );
        }
        x = end;
    }
    out
}

/// The colour, and whether it is bold.
fn style(cell: &Cell) -> (&'static str, bool) {
    let color = match cell.fg {
        Color::DarkGray => "#7d8893",
        Color::LightCyan => "#6fe3e1",
        Color::LightGreen => "#7ee787",
        Color::LightYellow => "#f2cc60",
        Color::LightMagenta => "#e3a2ff",
        Color::LightBlue => "#79b8ff",
        Color::LightRed => "#ff7b72",
        Color::Cyan => "#39a7a5",
        Color::Green => "#3fa34d",
        Color::Yellow => "#b58900",
        Color::Magenta => "#b05fd6",
        _ => "#d7dde4",
    };
    (color, cell.modifier.contains(Modifier::BOLD))
}

fn add(out: &mut String, args: std::fmt::Arguments<'_>) {
    out.write_fmt(args).expect("a string takes all");
}

//! The scene as a picture of 60 columns and 24 lines: the README's copy of it can be read on a phone.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Widget, Wrap};

use crate::cast::NAMES;
use crate::scene::{Actor, Scene, State};

/// The size of the picture.
pub(crate) const SIZE: Rect = Rect::new(0, 0, 60, 24);

/// One for each of the ten, easy to distinguish.
const COLORS: [Color; 10] = [
    Color::LightCyan,
    Color::LightGreen,
    Color::LightYellow,
    Color::LightMagenta,
    Color::LightBlue,
    Color::LightRed,
    Color::Cyan,
    Color::Green,
    Color::Yellow,
    Color::Magenta,
];

/// How many columns a lease's bar takes.
const BAR: u64 = 14;
/// How many of the last tickets are shown.
const TICKETS: usize = 10;

pub(crate) fn draw(scene: &Scene, area: Rect, buffer: &mut Buffer) {
    let mut lines = vec![title(scene), late(scene)];
    lines.extend(door(scene));
    lines.push(lease(scene));
    lines.push(Line::default());
    lines.push(headings());
    lines.extend((0..NAMES.len()).map(|line| row(scene, line)));
    Paragraph::new(lines).render(area, buffer);
    let said = Rect::new(area.x, area.y.saturating_add(19), area.width, 3).intersection(area);
    Paragraph::new(Line::styled(&*scene.said, bold()))
        .wrap(Wrap { trim: true })
        .render(said, buffer);
    let foot = Rect::new(area.x, area.y.saturating_add(23), area.width, 1).intersection(area);
    Paragraph::new(Line::styled(
        "Ctrl-C ends it and removes everything.",
        dim(),
    ))
    .render(foot, buffer);
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().fg(Color::DarkGray)
}

fn of(name: &str) -> Style {
    let at = NAMES.iter().position(|known| *known == name);
    at.map_or(Style::new(), |at| Style::new().fg(COLORS[at]))
}

fn title(scene: &Scene) -> Line<'_> {
    Line::from(vec![
        Span::styled("Mortise", bold().fg(Color::LightCyan)),
        Span::styled("  ten processes, one lock", bold()),
        Span::raw(format!("    tickets sold {}", scene.sales.len())),
    ])
}

/// Below the tickets: the late writes, once there is one.
fn late<'a>(scene: &Scene) -> Line<'a> {
    match scene.refused.len() {
        0 => Line::default(),
        some => Line::raw(format!("{:36}late writes refused {some}", "")),
    }
}

/// The holder, and the waiters.
fn door(scene: &Scene) -> [Line<'_>; 3] {
    let holder = scene.holder.as_ref().map_or("", |holder| &holder.name);
    let mut middle = vec![
        Span::raw("  inside  │ "),
        Span::styled(
            format!("{holder:^5}"),
            of(holder).add_modifier(Modifier::BOLD),
        ),
        Span::raw(" │"),
    ];
    if !scene.queue.is_empty() {
        middle.push(Span::styled(" ◂", dim()));
    }
    for name in &scene.queue {
        middle.push(Span::styled(format!(" {name}"), of(name)));
    }
    [
        Line::raw("          ┌───────┐   next"),
        Line::from(middle),
        Line::raw("          └───────┘"),
    ]
}

fn lease(scene: &Scene) -> Line<'_> {
    let Some(holder) = &scene.holder else {
        return Line::default();
    };
    let full = holder.lease_ms.min(scene.lease_ms) * BAR / scene.lease_ms.max(1);
    let color = if full * 3 < BAR {
        Color::LightRed
    } else {
        Color::LightGreen
    };
    // Neither is longer than the bar.
    let (full, empty) = (full as usize, (BAR - full) as usize);
    Line::from(vec![
        Span::styled("   lease  ", dim()),
        Span::styled("█".repeat(full), Style::new().fg(color)),
        Span::styled("░".repeat(empty), dim()),
        Span::raw(format!(
            "  {}.{} s",
            holder.lease_ms / 1000,
            holder.lease_ms % 1000 / 100
        )),
        Span::styled("  token ", dim()),
        Span::styled(holder.token.to_string(), bold()),
    ])
}

fn headings<'a>() -> Line<'a> {
    let text = format!(
        "{:<21}{:>4}  {}",
        "process", "sold", "the ledger, through LOCK.GUARD"
    );
    Line::styled(text, dim().add_modifier(Modifier::UNDERLINED))
}

/// One of the ten at the left, one of the last tickets at the right.
fn row(scene: &Scene, line: usize) -> Line<'_> {
    let actor = &scene.actors[line];
    let (state, style) = in_words(actor, scene);
    let mut spans = vec![
        Span::styled(
            format!("{:<5}", actor.name),
            of(actor.name).add_modifier(Modifier::BOLD),
        ),
        Span::styled(format!("{state:<16}"), style),
        Span::raw(format!("{:>4}  ", actor.sold)),
    ];
    let first = scene.sales.len().saturating_sub(TICKETS);
    if let Some(sale) = scene.sales.get(first + line) {
        spans.push(Span::raw(format!("ticket {:>3}  ", sale.ticket)));
        spans.push(Span::styled(format!("{}  ", sale.token), dim()));
        spans.push(Span::styled(&*sale.seller, of(&sale.seller)));
    }
    Line::from(spans)
}

fn in_words(actor: &Actor, scene: &Scene) -> (String, Style) {
    let place = scene.queue.iter().position(|name| name == actor.name);
    let alarm = Style::new()
        .fg(Color::LightRed)
        .add_modifier(Modifier::BOLD);
    match (actor.state, place) {
        (State::Killed, _) => ("killed".to_owned(), alarm),
        (State::Frozen, _) => ("frozen".to_owned(), alarm),
        (State::Refused, _) => ("refused: NOTHELD".to_owned(), alarm),
        (State::Sells, _) => ("holds and sells".to_owned(), bold()),
        (_, Some(0)) => ("waits, is next".to_owned(), Style::new()),
        (_, Some(ahead)) => (format!("waits, {ahead} ahead"), Style::new()),
        (State::Idle | State::Waits, None) => (String::new(), Style::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Sale;
    use crate::scene::Holder;

    const TOKEN: u64 = 9_999_999_999_999_999;

    fn full_scene() -> Scene {
        let mut scene = Scene::new(0..10, 3000);
        for actor in &mut scene.actors {
            actor.state = State::Refused;
            actor.sold = 99;
        }
        scene.holder = Some(Holder {
            name: NAMES[0].to_owned(),
            token: TOKEN,
            lease_ms: 3000,
        });
        scene.queue = NAMES[1..].iter().map(|name| (*name).to_owned()).collect();
        scene.sales = (1..=999)
            .map(|ticket| Sale {
                ticket,
                token: TOKEN,
                seller: NAMES[0].to_owned(),
            })
            .collect();
        scene.refused = vec![(0, TOKEN)];
        scene
    }

    #[test]
    fn nothing_reaches_beyond_the_picture_when_all_others_wait() {
        let wide = Rect { width: 200, ..SIZE };
        let mut buffer = Buffer::empty(wide);
        draw(&full_scene(), wide, &mut buffer);
        for y in 0..SIZE.height {
            let cut: String = (SIZE.width..wide.width)
                .map(|x| buffer[(x, y)].symbol())
                .collect();
            assert_eq!(cut.trim(), "", "line {y}");
        }
    }
}

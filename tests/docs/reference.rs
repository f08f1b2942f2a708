//! The reference agrees with the server about commands, settings and figures.

use mortise_harness::{Conn, Server, array, cmd, text};
use redis::Value;

use crate::pages;

/// The commands that clients send.
fn commands(conn: &mut Conn) -> Vec<String> {
    let listed = cmd!(conn, "COMMAND", "LIST", "FILTERBY", "MODULE", "lock");
    let mut names: Vec<String> = array(&listed).iter().map(text).collect();
    names.retain(|name| !["lock.apply", "lock.settle"].contains(&name.to_lowercase().as_str()));
    names.iter().map(|name| name.to_uppercase()).collect()
}

/// The page of a command, by the link on the overview.
fn page_of(command: &str) -> String {
    let overview = pages::read("docs/commands.md");
    let line = overview
        .lines()
        .find(|line| line.starts_with("| [") && line.split("](").next().unwrap().contains(command));
    let line = line.unwrap_or_else(|| panic!("the overview lacks {command}"));
    let link = line.split("](").nth(1).unwrap().split(')').next().unwrap();
    pages::read(&format!("docs/{link}"))
}

/// The row of a page's table about a word.
fn cell<'p>(page: &'p str, row: &str) -> &'p str {
    let start = format!("| {row} | ");
    let line = page.lines().find_map(|line| line.strip_prefix(&start));
    let cell = line.unwrap_or_else(|| panic!("no row {row} on this page:\n{page}"));
    cell.trim_end_matches(" |")
}

/// The entry of `COMMAND DOCS` under this name, if the server has it.
fn documented(conn: &mut Conn, command: &str, name: &str) -> Option<Value> {
    let docs = cmd!(conn, "COMMAND", "DOCS", command);
    let fields = array(&array(&docs)[1]);
    let at = fields
        .iter()
        .step_by(2)
        .position(|field| text(field) == name)?;
    Some(fields[2 * at + 1].clone())
}

/// The tokens in the documentation of arguments, and in how many options each is nested.
fn nested_tokens(arguments: &Value, outside: usize, found: &mut Vec<(String, usize)>) {
    for argument in array(arguments) {
        let fields = array(argument);
        let field = |name: &str| {
            let mut pairs = fields.chunks(2);
            pairs
                .find(|pair| text(&pair[0]) == name)
                .map(|pair| &pair[1])
        };
        let flags = field("flags").map(array).unwrap_or_default();
        let depth = outside + usize::from(flags.iter().any(|flag| text(flag) == "optional"));
        if let Some(token) = field("token") {
            found.push((text(token), depth));
        }
        if let Some(inside) = field("arguments") {
            nested_tokens(inside, depth, found);
        }
    }
}

#[test]
fn every_command_has_a_page_with_its_nested_options_its_complexity_and_its_categories() {
    let server = Server::start();
    let mut conn = server.connect();
    let commands = commands(&mut conn);
    assert_eq!(commands.len(), 14, "{commands:?}");
    for command in commands {
        let page = page_of(&command);
        let title = page.lines().next().unwrap();
        assert!(title.contains(&command), "{command} leads to {title}");
        // Its own line, or that of the command whose page it shares.
        let own = format!("`{command} ");
        let syntax = page.lines().find(|line| line.starts_with(&own));
        let syntax = syntax.or_else(|| page.lines().nth(2)).unwrap();
        if let Some(arguments) = documented(&mut conn, &command, "arguments") {
            let mut tokens = Vec::new();
            nested_tokens(&arguments, 0, &mut tokens);
            for (token, depth) in tokens {
                let (before, _) = syntax.split_once(&token).expect(&token);
                let shown = before.matches('[').count() - before.matches(']').count();
                assert_eq!(depth, shown, "{command}: {token} in {syntax}");
            }
        }
        if let Some(complexity) = documented(&mut conn, &command, "complexity") {
            let shown = cell(&page, "Complexity")
                .replace(';', ",")
                .replace(",000", "000");
            assert_eq!(shown, text(&complexity), "{command}");
        }
        assert_categories(&mut conn, &command, cell(&page, "ACL categories"));
    }
}

/// The server decides which categories a module's command has: before 7.2 those that follow from its flags.
fn assert_categories(conn: &mut Conn, command: &str, shown: &str) {
    let info = cmd!(conn, "COMMAND", "INFO", command);
    let categories: Vec<String> = array(&array(&array(&info)[0])[6])
        .iter()
        .map(text)
        .collect();
    let shown: Vec<String> = shown
        .replace('`', "")
        .split(' ')
        .map(str::to_owned)
        .collect();
    for category in &categories {
        assert!(shown.contains(category), "{command} is in {category}");
    }
    if categories.contains(&"@lock".to_owned()) {
        assert_eq!(categories.len(), shown.len(), "{command}: {categories:?}");
    }
}

#[test]
fn every_error_that_a_command_names_is_in_the_table_of_errors() {
    let overview = pages::read("docs/commands.md");
    let mut named = 0;
    for page in pages::files("docs/commands", "md") {
        let text = pages::read(&page);
        let errors = text
            .split("Errors: ")
            .nth(1)
            .unwrap_or_else(|| panic!("{page} names none"));
        let errors = errors.split(", see").next().unwrap();
        for code in errors.split('`').skip(1).step_by(2) {
            assert!(
                overview.contains(&format!("`{code}")),
                "{page} names {code}"
            );
            named += 1;
        }
    }
    assert!(named > 20, "only {named}");
}

#[test]
fn the_settings_page_has_every_setting_with_its_default() {
    let server = Server::start();
    let mut conn = server.connect();
    let page = pages::read("docs/settings.md");
    let settings = cmd!(conn, "CONFIG", "GET", "lock.*");
    let settings = array(&settings);
    assert_eq!(settings.len(), 12);
    for pair in settings.chunks(2) {
        let shown = cell(&page, &format!("`{}`", text(&pair[0])));
        let default = shown.split(" | ").next().unwrap();
        assert_eq!(default, text(&pair[1]), "{}", text(&pair[0]));
    }
}

#[test]
fn the_settings_page_has_every_field_of_info() {
    let server = Server::start();
    let page = pages::read("docs/settings.md");
    let section = page.split("## INFO lock").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let fields = server.info("lock");
    assert!(fields.len() > 30, "{fields:?}");
    for field in fields.keys() {
        let group = ["lock_total_", "lock_wait_ms_", "lock_hold_ms_"]
            .into_iter()
            .find(|group| field.starts_with(group));
        let is_told = match group {
            Some(group) => {
                let rest = field.trim_start_matches(group);
                section.contains(&format!("`{group}…`")) && section.contains(&format!("`{rest}`"))
            }
            None => section.contains(&format!("`{field}`")),
        };
        assert!(is_told, "docs/settings.md lacks {field}");
    }
}

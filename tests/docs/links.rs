//! Links lead somewhere: on the pages in the repository, and in the book that `make book` builds from them.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::pages;

/// The targets of a page's links, without those to other sites.
fn links(page: &str) -> Vec<String> {
    let prose = pages::prose(page);
    let targets = prose.split("](").skip(1);
    targets
        .map(|rest| rest.split_once(')').expect("the end of a link").0)
        .filter(|target| !target.contains("://"))
        .map(str::to_owned)
        .collect()
}

/// The file and the heading that a link on `page` names.
fn resolve(page: &str, link: &str) -> (String, Option<String>) {
    let (path, heading) = match link.split_once('#') {
        Some((path, heading)) => (path, Some(heading.to_owned())),
        None => (link, None),
    };
    if path.is_empty() {
        return (page.to_owned(), heading);
    }
    let mut resolved = PathBuf::new();
    for part in Path::new(page).parent().unwrap().join(path).components() {
        match part {
            Component::ParentDir => assert!(resolved.pop(), "{page}: {link} leaves the repository"),
            Component::Normal(name) => resolved.push(name),
            _ => {}
        }
    }
    (resolved.to_str().unwrap().to_owned(), heading)
}

/// The anchors that a page's headings get, on the usual sites and in the book.
fn anchors(page: &str) -> Vec<String> {
    let prose = pages::prose(page);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let mut found: Vec<String> = Vec::new();
    for heading in headings {
        let words = heading.trim_start_matches('#').trim();
        let kept = words
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept
            .map(|c| if c == ' ' { '-' } else { c })
            .collect::<String>()
            .to_lowercase();
        found.push(anchor);
    }
    found
}

#[test]
fn every_link_of_the_documentation_leads_to_an_existing_file_and_heading() {
    let mut checked = 0;
    for page in pages::all() {
        for link in links(&page) {
            let (file, heading) = resolve(&page, &link);
            assert!(pages::root().join(&file).exists(), "{page} links to {link}");
            if let Some(heading) = heading {
                let anchors = anchors(&file);
                assert!(anchors.contains(&heading), "{page} links to {link}");
            }
            checked += 1;
        }
    }
    assert!(checked > 100, "only {checked} found");
}

/// The pages that the book has, as paths from the root.
fn book() -> BTreeSet<String> {
    let summary = "docs/SUMMARY.md";
    let mut pages = BTreeSet::new();
    for link in links(summary) {
        let page = resolve(summary, &link).0;
        assert!(pages.insert(page), "{link} is in the book twice");
    }
    pages
}

#[test]
fn the_book_has_every_page_of_docs() {
    let book = book();
    for page in pages::files("docs", "md") {
        assert!(
            page == "docs/SUMMARY.md" || book.contains(&page),
            "docs/SUMMARY.md lacks {page}"
        );
    }
}

#[test]
fn the_book_has_every_page_that_its_pages_link_to() {
    let copied = |file: &str| {
        let is_example = file.contains("/examples/");
        file == "redis.conf" || file.starts_with("LICENSE-") || is_example
    };
    let book = book();
    for page in &book {
        for link in links(page) {
            let file = resolve(page, &link).0;
            let is_there = match Path::new(&file).extension() {
                _ if copied(&file) => true,
                Some(ending) if ending == "md" => book.contains(&file),
                _ => file.starts_with("docs/") && pages::root().join(&file).is_file(),
            };
            assert!(is_there, "{page} links to {link}, which the book lacks");
        }
    }
}

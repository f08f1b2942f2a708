//! The documentation is true, and no files use each other in a circle.

mod blocks;
mod circles;
mod guides;
mod links;
mod operating;
mod pages;
mod plots;
mod project;
mod python;
mod reference;
mod security;
mod sizing;
mod typed;
mod worked;

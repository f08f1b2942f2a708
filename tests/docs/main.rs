//! The documentation is true, and the script that searches for circles of files finds them.

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

//! The findings of the checks.

use std::fmt;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) text: String,
    /// When it was seen.
    pub(crate) at: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    TwoInside,
    OverLimit,
    WriteFromOutside,
    TokenWentBack,
    Overtaken,
    NeverServed,
    LeftWaiting,
    HeldThoughDenied,
    CameBack,
    Vanished,
    NotAllOrNone,
    LeftOver,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::TwoInside => "two owners that exclude each other were inside",
            Rule::OverLimit => "more permits were inside than the limit allows",
            Rule::WriteFromOutside => "an owner wrote that was not inside",
            Rule::TokenWentBack => "a token went back",
            Rule::Overtaken => "a waiter was overtaken",
            Rule::NeverServed => "a waiter was never served",
            Rule::LeftWaiting => "a free lock was not granted to the first who waited",
            Rule::HeldThoughDenied => "a request that was denied got a lock",
            Rule::CameBack => "a released lock came back",
            Rule::Vanished => "a lock that was held was not shown",
            Rule::NotAllOrNone => "only some of several keys were taken",
            Rule::LeftOver => "something is left",
        })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.text)
    }
}

impl Violation {
    pub(super) fn new(rule: Rule, at: u64, text: String) -> Violation {
        Violation { rule, text, at }
    }
}

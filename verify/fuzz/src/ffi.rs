//! Replaces the server: a command's arguments.

use std::marker::PhantomData;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Arg<'c>(&'c [u8]);

impl<'c> Arg<'c> {
    pub(crate) fn bytes(self) -> &'c [u8] {
        self.0
    }
}

/// The command's name is the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args<'c>(pub(crate) &'c [&'c [u8]]);

impl<'c> Args<'c> {
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    pub(crate) fn from(self, index: usize) -> Args<'c> {
        Args(self.0.get(index..).unwrap_or_default())
    }

    pub(crate) fn get(self, index: usize) -> Option<Arg<'c>> {
        self.0.get(index).map(|bytes| Arg(bytes))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Context<'c>(PhantomData<&'c ()>);

//! Ordered trees of values that lie in slots, without an allocation of their own.
//!
//! A treap (Seidel and Aragon, "Randomized Search Trees", 1996): in order by what the caller
//! compares, and a heap by the weight of the slots, which is as good as random. The weight depends on a number that each
//! process draws, so no client can choose names or leases that make a tree deep. In whatever order values come and go, a tree of n is about
//! 2 ln n deep.
//!
//! A value can keep a summary of all values below it. The caller computes it in [`Forest::refresh`], from the bottom up. A value can be in
//! trees of several kinds: each kind is a [`Forest`] with links of its own.

use std::cmp::Ordering;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// No slot.
pub(crate) const NIL: u32 = u32::MAX;

/// The neighbours of a value in its tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub(crate) parent: u32,
    pub(crate) left: u32,
    pub(crate) right: u32,
}

impl Links {
    pub(crate) const NONE: Self = Self {
        parent: NIL,
        left: NIL,
        right: NIL,
    };
}

/// The trees of one kind, `K`.
pub(crate) trait Forest<K> {
    fn links(&self, slot: u32) -> &Links;

    fn links_mut(&mut self, slot: u32) -> &mut Links;

    /// The order of two values of one tree. No two are equal.
    fn order(&self, one: u32, other: u32) -> Ordering;

    /// Computes the summary of `slot` from those of its two children. True if it changes.
    fn refresh(&mut self, _slot: u32) -> bool {
        false
    }

    /// The summary is a sum, which [`Self::add`] and [`Self::subtract`] keep up to date on the way. That is cheaper than to
    /// refresh every slot up to the root.
    fn is_sum(&self) -> bool {
        false
    }

    /// `slot` is inserted below `above`.
    fn add(&mut self, _above: u32, _slot: u32) {}

    /// `slot` was removed from below `above`.
    fn subtract(&mut self, _above: u32, _slot: u32) {}
}

static DRAWN: LazyLock<u32> = LazyLock::new(|| RandomState::new().hash_one(0) as u32);

fn weight(slot: u32) -> u32 {
    // The finalizer of MurmurHash3.
    let mut hash = slot.wrapping_add(*DRAWN);
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// Inserts `slot` into the tree of `root`, which is [`NIL`] for an empty one.
pub(crate) fn insert<K>(forest: &mut impl Forest<K>, root: &mut u32, slot: u32) {
    *forest.links_mut(slot) = Links::NONE;
    let (mut parent, mut at, mut before) = (NIL, *root, false);
    while at != NIL {
        before = forest.order(slot, at) == Ordering::Less;
        forest.add(at, slot);
        let links = forest.links(at);
        (parent, at) = (at, if before { links.left } else { links.right });
    }
    forest.links_mut(slot).parent = parent;
    forest.refresh(slot);
    if parent == NIL {
        *root = slot;
        return;
    }
    let links = forest.links_mut(parent);
    *(if before {
        &mut links.left
    } else {
        &mut links.right
    }) = slot;
    while weight(forest.links(slot).parent) < weight(slot) {
        rotate_up(forest, root, slot);
        if forest.links(slot).parent == NIL {
            break;
        }
    }
    if !forest.is_sum() {
        refresh_above(forest, slot);
    }
}

/// Removes `slot` from the tree of `root`.
pub(crate) fn remove<K>(forest: &mut impl Forest<K>, root: &mut u32, slot: u32) {
    loop {
        let Links { left, right, .. } = *forest.links(slot);
        let heavier = match (left, right) {
            (NIL, NIL) => break,
            (NIL, only) | (only, NIL) => only,
            _ if weight(left) > weight(right) => left,
            _ => right,
        };
        rotate_up(forest, root, heavier);
    }
    let parent = forest.links(slot).parent;
    *forest.links_mut(slot) = Links::NONE;
    if parent == NIL {
        *root = NIL;
        return;
    }
    replace_child(forest, parent, slot, NIL);
    if !forest.is_sum() {
        return changed(forest, parent);
    }
    let mut above = parent;
    while above != NIL {
        forest.subtract(above, slot);
        above = forest.links(above).parent;
    }
}

/// Updates the summaries above `slot`, which has changed.
pub(crate) fn changed<K>(forest: &mut impl Forest<K>, slot: u32) {
    if forest.refresh(slot) {
        refresh_above(forest, slot);
    }
}

/// The first of the tree, or [`NIL`].
pub(crate) fn first<K>(forest: &impl Forest<K>, root: u32) -> u32 {
    first_from(forest, root, |_| true)
}

/// The last of the tree, or [`NIL`].
pub(crate) fn last<K>(forest: &impl Forest<K>, root: u32) -> u32 {
    last_before(forest, root, |_| true)
}

/// The first for which `is_behind` is true, as it then is for all after it; or [`NIL`].
pub(crate) fn first_from<K>(
    forest: &impl Forest<K>,
    root: u32,
    is_behind: impl Fn(u32) -> bool,
) -> u32 {
    let (mut at, mut found) = (root, NIL);
    while at != NIL {
        if is_behind(at) {
            (found, at) = (at, forest.links(at).left);
        } else {
            at = forest.links(at).right;
        }
    }
    found
}

/// The last for which `is_ahead` is true, as it then is for all before it; or [`NIL`].
pub(crate) fn last_before<K>(
    forest: &impl Forest<K>,
    root: u32,
    is_ahead: impl Fn(u32) -> bool,
) -> u32 {
    let (mut at, mut found) = (root, NIL);
    while at != NIL {
        if is_ahead(at) {
            (found, at) = (at, forest.links(at).right);
        } else {
            at = forest.links(at).left;
        }
    }
    found
}

/// The one behind `slot`, or [`NIL`].
pub(crate) fn next<K>(forest: &impl Forest<K>, slot: u32) -> u32 {
    next_with(forest, slot, |_| true, |_| true)
}

/// The first one after `slot` for which `is` is true, or [`NIL`]. `below`: whether there is one among a slot and those below it.
pub(crate) fn next_with<K>(
    forest: &impl Forest<K>,
    slot: u32,
    is: impl Fn(u32) -> bool,
    below: impl Fn(u32) -> bool,
) -> u32 {
    let mut at = slot;
    loop {
        let right = forest.links(at).right;
        if right != NIL && below(right) {
            return first_with(forest, right, is, below);
        }
        loop {
            let parent = forest.links(at).parent;
            if parent == NIL {
                return NIL;
            }
            let came_from_left = forest.links(parent).left == at;
            at = parent;
            if came_from_left {
                break;
            }
        }
        if is(at) {
            return at;
        }
    }
}

/// The first one in the tree of `root` for which `is` is true; there has to be one.
fn first_with<K>(
    forest: &impl Forest<K>,
    root: u32,
    is: impl Fn(u32) -> bool,
    below: impl Fn(u32) -> bool,
) -> u32 {
    let mut at = root;
    while at != NIL {
        let Links { left, right, .. } = *forest.links(at);
        if left != NIL && below(left) {
            at = left;
        } else if is(at) {
            return at;
        } else {
            at = right;
        }
    }
    NIL
}

/// The last one before `slot` for which `is` is true, or [`NIL`].
pub(crate) fn previous_with<K>(
    forest: &impl Forest<K>,
    slot: u32,
    is: impl Fn(u32) -> bool,
    below: impl Fn(u32) -> bool,
) -> u32 {
    let mut at = slot;
    loop {
        let left = forest.links(at).left;
        if left != NIL && below(left) {
            at = left;
            loop {
                let Links { left, right, .. } = *forest.links(at);
                if right != NIL && below(right) {
                    at = right;
                } else if is(at) {
                    return at;
                } else {
                    at = left;
                }
            }
        }
        loop {
            let parent = forest.links(at).parent;
            if parent == NIL {
                return NIL;
            }
            let came_from_right = forest.links(parent).right == at;
            at = parent;
            if came_from_right {
                break;
            }
        }
        if is(at) {
            return at;
        }
    }
}

/// `slot` takes the place of its parent, which goes below it.
fn rotate_up<K>(forest: &mut impl Forest<K>, root: &mut u32, slot: u32) {
    let parent = forest.links(slot).parent;
    let above = forest.links(parent).parent;
    let moved = if forest.links(parent).left == slot {
        let moved = forest.links(slot).right;
        forest.links_mut(parent).left = moved;
        forest.links_mut(slot).right = parent;
        moved
    } else {
        let moved = forest.links(slot).left;
        forest.links_mut(parent).right = moved;
        forest.links_mut(slot).left = parent;
        moved
    };
    if moved != NIL {
        forest.links_mut(moved).parent = parent;
    }
    forest.links_mut(parent).parent = slot;
    forest.links_mut(slot).parent = above;
    if above == NIL {
        *root = slot;
    } else {
        replace_child(forest, above, parent, slot);
    }
    forest.refresh(parent);
    forest.refresh(slot);
}

fn replace_child<K>(forest: &mut impl Forest<K>, parent: u32, old: u32, new: u32) {
    let links = forest.links_mut(parent);
    *(if links.left == old {
        &mut links.left
    } else {
        &mut links.right
    }) = new;
}

/// Goes up as long as a summary changes.
fn refresh_above<K>(forest: &mut impl Forest<K>, slot: u32) {
    let mut at = forest.links(slot).parent;
    while at != NIL && forest.refresh(at) {
        at = forest.links(at).parent;
    }
}

#[cfg(test)]
mod tests;

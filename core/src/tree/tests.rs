//! Trees of numbers against sorted lists.

use super::*;

/// Numbers in order; each records whether an even one is among those below it.
#[derive(Default)]
struct Numbers {
    numbers: Vec<(u64, Links, bool)>,
    root: u32,
}

impl Forest<()> for Numbers {
    fn links(&self, slot: u32) -> &Links {
        &self.numbers[slot as usize].1
    }

    fn links_mut(&mut self, slot: u32) -> &mut Links {
        &mut self.numbers[slot as usize].1
    }

    fn order(&self, one: u32, other: u32) -> Ordering {
        self.numbers[one as usize]
            .0
            .cmp(&self.numbers[other as usize].0)
    }

    fn refresh(&mut self, slot: u32) -> bool {
        let Links { left, right, .. } = *self.links(slot);
        let below = |child: u32| child != NIL && self.numbers[child as usize].2;
        let even = self.is_even(slot) || below(left) || below(right);
        std::mem::replace(&mut self.numbers[slot as usize].2, even) != even
    }
}

impl Numbers {
    fn of(numbers: impl IntoIterator<Item = u64>) -> Self {
        let numbers = numbers.into_iter();
        let mut all = Self {
            numbers: numbers.map(|n| (n, Links::NONE, false)).collect(),
            root: NIL,
        };
        for slot in 0..all.numbers.len() as u32 {
            all.with_root(|all, root| insert(all, root, slot));
        }
        all
    }

    fn with_root(&mut self, act: impl FnOnce(&mut Self, &mut u32)) {
        let mut root = self.root;
        act(self, &mut root);
        self.root = root;
    }

    fn remove(&mut self, slot: u32) {
        self.with_root(|all, root| remove(all, root, slot));
    }

    fn is_even(&self, slot: u32) -> bool {
        self.numbers[slot as usize].0.is_multiple_of(2)
    }

    fn all(&self) -> Vec<u64> {
        let mut found = Vec::new();
        let mut at = first(self, self.root);
        while at != NIL {
            found.push(self.numbers[at as usize].0);
            at = next(self, at);
        }
        found
    }

    fn even(&self, from: u64) -> Vec<u64> {
        let mut found = Vec::new();
        let even = |slot| self.is_even(slot);
        let below = |slot: u32| self.numbers[slot as usize].2;
        let mut at = first_from(self, self.root, |slot| {
            self.numbers[slot as usize].0 >= from
        });
        while at != NIL {
            if even(at) {
                found.push(self.numbers[at as usize].0);
            }
            at = next_with(self, at, even, below);
        }
        found
    }

    fn even_backwards(&self) -> Vec<u64> {
        let mut found = Vec::new();
        let mut at = last(self, self.root);
        let even = |slot| self.is_even(slot);
        while at != NIL {
            if even(at) {
                found.push(self.numbers[at as usize].0);
            }
            at = previous_with(self, at, even, |slot| self.numbers[slot as usize].2);
        }
        found.reverse();
        found
    }

    fn depth(&self, root: u32) -> usize {
        if root == NIL {
            return 0;
        }
        let Links { left, right, .. } = *self.links(root);
        1 + self.depth(left).max(self.depth(right))
    }
}

/// Another order of the numbers below `prime`.
fn mixed(prime: u64) -> impl Iterator<Item = u64> {
    (0..prime).map(move |n| n * 7_919 % prime)
}

#[test]
fn entries_inserted_in_any_order_come_out_sorted() {
    for numbers in [mixed(1_009).collect(), (0..1_009).collect::<Vec<_>>()] {
        let mut all = Numbers::of(numbers.clone());
        assert!(all.depth(all.root) < 40);
        let mut left: Vec<u64> = (0..1_009).collect();
        assert_eq!(all.all(), left);
        for (slot, number) in numbers.iter().enumerate().filter(|(slot, _)| slot % 5 > 0) {
            all.remove(slot as u32);
            left.retain(|other| other != number);
            if slot % 50 == 1 {
                assert_eq!(all.all(), left);
                let even: Vec<u64> = left.iter().copied().filter(|n| n % 2 == 0).collect();
                assert_eq!(all.even_backwards(), even);
                assert_eq!(all.even(0), even);
                assert_eq!(all.even(500), even[even.partition_point(|n| *n < 500)..]);
            }
        }
    }
}

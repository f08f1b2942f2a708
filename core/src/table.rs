//! Hash tables of values that lie in slots.
//!
//! Linear hashing (Litwin, 1980): the table grows and shrinks by one bucket at a time, so no step
//! copies it. A bucket is a chain through the values themselves.

/// Buckets in the first segment. Each further segment doubles the table, up to [`SEGMENT`] buckets in one.
const FIRST: usize = 16;
const SEGMENT: usize = 1 << 13;

/// Values that can be in a table of one kind, `K`.
pub(crate) trait Chained<K> {
    /// The link to the next one of a chain, kept for the table.
    fn link(&self, slot: u32) -> u32;

    fn set_link(&mut self, slot: u32, link: u32);

    /// Must not change while the value is in the table.
    fn hash(&self, slot: u32) -> u64;
}

/// A link is 0 at the end of a chain, else one more than the slot: fresh memory is zeros.
#[derive(Debug, Default)]
pub(crate) struct Table {
    segments: Vec<Box<[u32]>>,
    buckets: usize,
    len: usize,
}

impl Table {
    /// The value with that hash for which `is` is true.
    pub(crate) fn find<K>(
        &self,
        things: &impl Chained<K>,
        hash: u64,
        is: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        if self.buckets == 0 {
            return None;
        }
        let mut link = *self.bucket(self.bucket_of(hash));
        while link != 0 {
            let slot = link - 1;
            if is(slot) {
                return Some(slot);
            }
            link = things.link(slot);
        }
        None
    }

    pub(crate) fn insert<K>(&mut self, things: &mut impl Chained<K>, slot: u32) {
        self.len += 1;
        if self.len > self.buckets {
            self.grow(things);
        }
        let bucket = self.bucket_of(things.hash(slot));
        let first = std::mem::replace(self.bucket_mut(bucket), slot + 1);
        things.set_link(slot, first);
    }

    pub(crate) fn remove<K>(&mut self, things: &mut impl Chained<K>, slot: u32) {
        let next = things.link(slot);
        self.relink(things, slot, next);
        self.len -= 1;
        for _ in 0..2 {
            if self.len < self.buckets / 2 {
                self.shrink(things);
            }
        }
    }

    /// `new`, which has the same hash, takes the place of `old`.
    pub(crate) fn replace<K>(&mut self, things: &mut impl Chained<K>, old: u32, new: u32) {
        let next = things.link(old);
        things.set_link(new, next);
        self.relink(things, old, new + 1);
    }

    /// Redirects the link that leads to `slot` to `link`.
    fn relink<K>(&mut self, things: &mut impl Chained<K>, slot: u32, link: u32) {
        let bucket = self.bucket_of(things.hash(slot));
        let first = self.bucket_mut(bucket);
        if *first == slot + 1 {
            *first = link;
            return;
        }
        let mut at = *first;
        while at != 0 {
            let next = things.link(at - 1);
            if next == slot + 1 {
                things.set_link(at - 1, link);
                return;
            }
            at = next;
        }
    }

    /// Adds a bucket, which takes its values from the one that had them so far.
    fn grow<K>(&mut self, things: &mut impl Chained<K>) {
        if self.buckets == 0 {
            self.segments.push(vec![0; FIRST].into());
            self.buckets = FIRST;
            return;
        }
        let new = self.buckets;
        if begins_segment(new) {
            self.segments.push(vec![0; new.min(SEGMENT)].into());
        }
        self.buckets += 1;
        let old = buddy(new);
        let mut link = std::mem::take(self.bucket_mut(old));
        while link != 0 {
            let slot = link - 1;
            link = things.link(slot);
            let bucket = self.bucket_of(things.hash(slot));
            let first = std::mem::replace(self.bucket_mut(bucket), slot + 1);
            things.set_link(slot, first);
        }
    }

    /// Removes a bucket.
    fn shrink<K>(&mut self, things: &mut impl Chained<K>) {
        if self.buckets <= FIRST {
            return;
        }
        self.buckets -= 1;
        let last = self.buckets;
        let mut link = std::mem::take(self.bucket_mut(last));
        if begins_segment(last) {
            self.segments.pop();
        }
        while link != 0 {
            let slot = link - 1;
            link = things.link(slot);
            let first = std::mem::replace(self.bucket_mut(buddy(last)), slot + 1);
            things.set_link(slot, first);
        }
    }

    fn bucket_of(&self, hash: u64) -> usize {
        let size = self.buckets.next_power_of_two();
        let bucket = hash as usize & (size - 1);
        if bucket < self.buckets {
            bucket
        } else {
            buddy(bucket)
        }
    }

    fn bucket(&self, bucket: usize) -> &u32 {
        let (segment, at) = place(bucket);
        &self.segments[segment][at]
    }

    fn bucket_mut(&mut self, bucket: usize) -> &mut u32 {
        let (segment, at) = place(bucket);
        &mut self.segments[segment][at]
    }
}

/// The bucket that has the values of `bucket` until `bucket` exists.
fn buddy(bucket: usize) -> usize {
    bucket & !(1 << bucket.ilog2())
}

/// The bucket is the first one of a segment, but not of the first one.
fn begins_segment(bucket: usize) -> bool {
    if bucket < SEGMENT {
        bucket.is_power_of_two()
    } else {
        bucket.is_multiple_of(SEGMENT)
    }
}

/// The segment of a bucket, and its place there.
fn place(bucket: usize) -> (usize, usize) {
    /// Segments that are smaller than the others.
    const SMALL: usize = 1 + (SEGMENT.ilog2() - FIRST.ilog2()) as usize;
    if bucket < FIRST {
        return (0, bucket);
    }
    if bucket < SEGMENT {
        let level = bucket.ilog2();
        return ((level - FIRST.ilog2()) as usize + 1, buddy(bucket));
    }
    (SMALL - 1 + bucket / SEGMENT, bucket % SEGMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that hash to themselves.
    struct Numbers(Vec<(u64, u32)>);

    impl Chained<()> for Numbers {
        fn link(&self, slot: u32) -> u32 {
            self.0[slot as usize].1
        }

        fn set_link(&mut self, slot: u32, link: u32) {
            self.0[slot as usize].1 = link;
        }

        fn hash(&self, slot: u32) -> u64 {
            self.0[slot as usize].0
        }
    }

    #[test]
    fn everything_is_found_while_the_table_grows_and_shrinks() {
        const ALL: u64 = 30_000;
        let mut things = Numbers((0..ALL).map(|n| (n * 0x9e37 % 40_009, 0)).collect());
        let mut table = Table::default();
        let find = |table: &Table, things: &Numbers, slot: u32| {
            table.find(things, things.hash(slot), |found| found == slot)
        };
        for slot in 0..ALL as u32 {
            assert_eq!(find(&table, &things, slot), None);
            table.insert(&mut things, slot);
            assert_eq!(find(&table, &things, slot / 2), Some(slot / 2));
        }
        assert_eq!(table.len, ALL as usize);
        for slot in 0..ALL as u32 {
            assert_eq!(find(&table, &things, slot), Some(slot));
            table.remove(&mut things, slot);
            assert_eq!(find(&table, &things, slot), None);
            let other = slot + (ALL as u32 - slot) / 2;
            assert_eq!(find(&table, &things, other).is_some(), other != slot);
        }
        assert_eq!((table.len, table.segments.len()), (0, 1));
    }

    #[test]
    fn an_entry_replaces_another() {
        let mut things = Numbers(vec![(1, 0), (17, 0), (33, 0), (17, 0)]);
        let mut table = Table::default();
        for slot in 0..3 {
            table.insert(&mut things, slot);
        }
        table.replace(&mut things, 1, 3);
        for (hash, slot) in [(1, 0), (33, 2), (17, 3)] {
            let found = table.find(&things, hash, |found| things.hash(found) == hash);
            assert_eq!(found, Some(slot));
        }
    }
}

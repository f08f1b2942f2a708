//! A hash map that grows and shrinks by one bucket at a time, so that no step copies a large map.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash, RandomState};

use crate::slab::Slab;
use crate::table::{Chained, Table};

/// A hash map in which no insertion stalls the server, however many keys clients have put there.
#[derive(Debug)]
pub struct Map<K, V> {
    entries: Entries<K, V>,
    table: Table,
}

#[derive(Debug)]
struct Entries<K, V> {
    slab: Slab<Entry<K, V>>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    link: u32,
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        let entries = Entries {
            slab: Slab::default(),
            hasher: RandomState::new(),
        };
        let table = Table::default();
        Self { entries, table }
    }
}

impl<K, V> Map<K, V> {
    /// How many keys are in it.
    pub fn len(&self) -> usize {
        self.entries.slab.len()
    }

    /// It is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Hash + Eq, V> Map<K, V> {
    /// The value of `key`.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let slot = self.find(key)?;
        Some(&self.entries.slab[slot].value)
    }

    /// The value of `key`, to be changed.
    pub fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let slot = self.find(key)?;
        Some(&mut self.entries.slab[slot].value)
    }

    /// `key` is in it.
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_some()
    }

    /// Maps `key` to `value`. Returns the value before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(known) = self.get_mut(&key) {
            return Some(std::mem::replace(known, value));
        }
        let link = 0;
        let slot = self.entries.slab.insert(Entry { key, value, link });
        self.table.insert::<()>(&mut self.entries, slot);
        None
    }

    /// Removes `key`. Returns its value.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let slot = self.find(key)?;
        Some(self.take(slot)?.value)
    }

    /// Removes any one key. `walk` begins at 0, and works only for a map into which nothing is put any more.
    pub fn take_any(&mut self, walk: &mut u32) -> Option<(K, V)> {
        let (slot, _) = self.entries.slab.first_from(*walk)?;
        *walk = slot;
        let entry = self.take(slot)?;
        Some((entry.key, entry.value))
    }

    fn take(&mut self, slot: u32) -> Option<Entry<K, V>> {
        self.table.remove::<()>(&mut self.entries, slot);
        self.entries.slab.remove(slot)
    }

    fn find<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<u32>
    where
        K: Borrow<Q>,
    {
        if self.is_empty() {
            return None;
        }
        let hash = self.entries.hasher.hash_one(key);
        self.table.find::<()>(&self.entries, hash, |slot| {
            self.entries.slab[slot].key.borrow() == key
        })
    }
}

impl<K: Hash, V> Chained<()> for Entries<K, V> {
    fn link(&self, slot: u32) -> u32 {
        self.slab[slot].link
    }

    fn set_link(&mut self, slot: u32, link: u32) {
        self.slab[slot].link = link;
    }

    fn hash(&self, slot: u32) -> u64 {
        self.hasher.hash_one(&self.slab[slot].key)
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn the_map_behaves_like_a_plain_map() {
        let mut map = Map::default();
        let mut plain = std::collections::HashMap::new();
        for n in 0..5_000_u32 {
            let key: Rc<str> = (n * 7_919 % 1_000).to_string().into();
            if n % 3 == 0 {
                assert_eq!(map.remove(&*key), plain.remove(&*key));
            } else {
                assert_eq!(
                    map.insert(Rc::clone(&key), n),
                    plain.insert(Rc::clone(&key), n)
                );
            }
            assert_eq!(map.get(&*key), plain.get(&*key));
            assert_eq!(map.len(), plain.len());
        }
        if let Some(value) = map.get_mut("7") {
            *value = 0;
        }
        assert_eq!(map.get("7").is_some(), plain.contains_key("7"));
        for n in 0..2_000 {
            let key = n.to_string();
            assert_eq!(map.contains_key(&*key), plain.contains_key(&*key));
        }
        let mut walk = 0;
        while let Some((key, _)) = map.take_any(&mut walk) {
            assert!(plain.remove(&key).is_some());
        }
        assert!(map.is_empty() && plain.is_empty());
    }
}

//! Databases that SWAPDB moves: a million names stay as they are when two databases change places.

use std::collections::BTreeMap;

/// A database, wherever SWAPDB has put it since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Home(u32);

/// Where the databases are now that are not at home, and whose home is where they are.
#[derive(Clone, Debug, Default)]
pub struct Homes {
    now: BTreeMap<Home, u32>,
    home: BTreeMap<u32, Home>,
}

impl Homes {
    /// The home that is database `db` now.
    pub fn home_of(&self, db: u32) -> Home {
        self.home.get(&db).copied().unwrap_or(Home(db))
    }

    /// The database that `home` is now.
    pub fn db_of(&self, home: Home) -> u32 {
        self.now.get(&home).copied().unwrap_or(home.0)
    }

    /// Two databases have changed places.
    pub fn swap(&mut self, one: u32, other: u32) {
        let (first, second) = (self.home_of(one), self.home_of(other));
        self.place(first, other);
        self.place(second, one);
    }

    fn place(&mut self, home: Home, db: u32) {
        if home.0 == db {
            self.now.remove(&home);
            self.home.remove(&db);
        } else {
            self.now.insert(home, db);
            self.home.insert(db, home);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_found_wherever_it_has_gone() {
        let mut homes = Homes::default();
        let home = homes.home_of(0);
        for (one, other, now) in [(0, 7, 7), (3, 7, 3), (1, 2, 3), (3, 0, 0)] {
            homes.swap(one, other);
            assert_eq!((homes.db_of(home), homes.home_of(now)), (now, home));
        }
        homes.swap(3, 7);
        homes.swap(1, 2);
        homes.swap(7, 3);
        assert_eq!(homes.db_of(home), 0);
    }
}

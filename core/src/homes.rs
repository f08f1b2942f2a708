//! Databases that SWAPDB moves. A key remembers the home of its database, so a million keys stay as they are when two databases
//! change places.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::key::{Db, KeyId, KeyRef};

/// A database, wherever SWAPDB has put it since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Home(Db);

/// A key, wherever SWAPDB has put its database since.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HomeKey {
    home: Home,
    name: Rc<[u8]>,
}

/// For each database that is not at home: where it is now, and whose home that place is.
#[derive(Clone, Debug, Default)]
pub struct Homes {
    now: BTreeMap<Home, Db>,
    home: BTreeMap<Db, Home>,
}

impl Homes {
    /// The home that is database `db` now.
    pub(crate) fn home_of(&self, db: Db) -> Home {
        self.home.get(&db).copied().unwrap_or(Home(db))
    }

    /// The database that `home` is now.
    pub(crate) fn db_of(&self, home: Home) -> Db {
        self.now.get(&home).copied().unwrap_or(home.0)
    }

    /// The key, in a form that stays true wherever SWAPDB puts its database.
    pub fn home_key(&self, key: KeyRef<'_>) -> HomeKey {
        HomeKey {
            home: self.home_of(key.db),
            name: key.name.into(),
        }
    }

    /// The key with the number that its database has now.
    pub fn key_of(&self, key: &HomeKey) -> KeyId {
        KeyId {
            db: self.db_of(key.home),
            name: Rc::clone(&key.name),
        }
    }

    /// Two databases have changed places.
    pub fn swap(&mut self, one: Db, other: Db) {
        let (first, second) = (self.home_of(one), self.home_of(other));
        self.place(first, other);
        self.place(second, one);
    }

    fn place(&mut self, home: Home, db: Db) {
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
    fn a_home_is_found_after_it_has_moved() {
        let mut homes = Homes::default();
        let home = homes.home_of(Db(0));
        for (one, other, now) in [(0, 7, 7), (3, 7, 3), (1, 2, 3), (3, 0, 0)] {
            homes.swap(Db(one), Db(other));
            assert_eq!((homes.db_of(home), homes.home_of(Db(now))), (Db(now), home));
        }
        for (one, other) in [(3, 7), (1, 2), (7, 3)] {
            homes.swap(Db(one), Db(other));
        }
        assert_eq!(homes.db_of(home), Db(0));
    }
}

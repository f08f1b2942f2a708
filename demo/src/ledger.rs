//! What the lock protects: a list of tickets that were sold, each a line `ticket token seller`.
//!
//! A seller reads the last number, thinks, and writes the next one: two that were inside together would sell one twice.

/// The lock.
pub(crate) const LOCK: &str = "tickets";
/// The list.
pub(crate) const LEDGER: &str = "tickets:sold";

/// A line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sale {
    pub(crate) ticket: u64,
    pub(crate) token: u64,
    pub(crate) seller: String,
}

impl Sale {
    pub(crate) fn line(&self) -> String {
        format!("{} {} {}", self.ticket, self.token, self.seller)
    }

    pub(crate) fn read(line: &str) -> Option<Sale> {
        let mut words = line.split(' ');
        Some(Sale {
            ticket: words.next()?.parse().ok()?,
            token: words.next()?.parse().ok()?,
            seller: words.next()?.to_owned(),
        })
    }
}

/// The first evidence that two were inside together, if there is any: a ticket that was sold twice or left out, or a token that is no
/// larger than the one before.
pub(crate) fn fault(sales: &[Sale]) -> Option<String> {
    let mut last = (0, 0);
    for sale in sales {
        if sale.ticket != last.0 + 1 {
            return Some(format!("ticket {} follows {}", sale.ticket, last.0));
        }
        if sale.token <= last.1 {
            return Some(format!("token {} follows {}", sale.token, last.1));
        }
        last = (sale.ticket, sale.token);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sold(sales: &[(u64, u64)]) -> Vec<Sale> {
        let seller = || "ann".to_owned();
        let sale = |&(ticket, token)| Sale {
            ticket,
            token,
            seller: seller(),
        };
        sales.iter().map(sale).collect()
    }

    #[test]
    fn a_ledger_is_valid_if_each_ticket_is_sold_once_under_a_larger_token() {
        assert_eq!(fault(&sold(&[])), None);
        assert_eq!(fault(&sold(&[(1, 5), (2, 6), (3, 90)])), None);
    }

    #[test]
    fn a_ticket_sold_twice_or_under_a_smaller_token_is_a_fault() {
        assert!(fault(&sold(&[(1, 5), (1, 6)])).is_some());
        assert!(fault(&sold(&[(1, 5), (3, 6)])).is_some());
        assert!(fault(&sold(&[(1, 5), (2, 5)])).is_some());
    }

    #[test]
    fn a_line_is_read_back_unchanged() {
        let [sale] = &sold(&[(7, 1_795_250_370_799_031)])[..] else {
            unreachable!()
        };
        assert_eq!(Sale::read(&sale.line()).as_ref(), Some(sale));
    }
}

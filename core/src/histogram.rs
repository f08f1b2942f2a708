//! Percentiles of durations.
//!
//! Buckets grow by a sixteenth of a power of two, so a percentile is at most 1/16 too large. The
//! idea is that of HdrHistogram (Gil Tene); the size is fixed and recording is O(1).

/// Sub-buckets of each power of two, as a power of two.
const SUB_BITS: u32 = 4;
const SUB: u64 = 1 << SUB_BITS;
/// Every `u64` has its bucket.
const BUCKETS: usize = ((64 - SUB_BITS + 1) << SUB_BITS) as usize;

/// Counts of durations, in milliseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    sum: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS].into(),
            total: 0,
            sum: 0,
            max: 0,
        }
    }
}

impl Histogram {
    /// Counts one more, of `ms` milliseconds.
    pub fn record(&mut self, ms: u64) {
        self.counts[bucket(ms)] += 1;
        self.total += 1;
        self.sum = self.sum.saturating_add(ms);
        self.max = self.max.max(ms);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The sum of all, in milliseconds.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The longest, in milliseconds; 0 if there was none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The duration that `percent` of all did not exceed, in milliseconds; 0 if there was none.
    pub fn percentile(&self, percent: u64) -> u64 {
        let rank = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_bound(bucket).min(self.max);
            }
        }
        self.max
    }
}

fn bucket(ms: u64) -> usize {
    if ms < SUB {
        return ms as usize;
    }
    let power = ms.ilog2() - SUB_BITS;
    // The leading bit and the four behind it.
    ((u64::from(power) << SUB_BITS) + (ms >> power)) as usize
}

/// The largest value of a bucket.
fn upper_bound(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SUB {
        return bucket;
    }
    let power = (bucket >> SUB_BITS) - 1;
    let first = (SUB + (bucket & (SUB - 1))) << power;
    first + ((1 << power) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_and_close_to_its_bound() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1 << shift) | 1, u64::MAX >> shift] {
                let bound = upper_bound(bucket(value));
                assert!(bound >= value, "{value} above {bound}");
                assert!(bound - value <= value / SUB, "{value} far below {bound}");
            }
        }
    }

    #[test]
    fn percentiles_of_known_durations_are_correct() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(99), 0);
        (1..=100).for_each(|ms| histogram.record(ms));
        assert_eq!(histogram.percentile(1), 1);
        assert!((50..=53).contains(&histogram.percentile(50)));
        assert!((99..=100).contains(&histogram.percentile(99)));
        assert_eq!(histogram.percentile(100), 100);
        assert_eq!(histogram.max(), 100);
        assert_eq!((histogram.count(), histogram.sum()), (100, 5050));
        histogram.record(u64::MAX);
        assert_eq!(histogram.percentile(100), u64::MAX);
    }
}

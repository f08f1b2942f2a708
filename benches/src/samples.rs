//! The measurements of a comparison's rounds.

/// One figure a round.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    /// The smallest figure that is not below `part` of all: 0.5 for the median, 0.99 for p99.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1).expect("at least one round");
        sorted[(last as f64 * part).round() as usize]
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(crate) fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    pub(crate) fn min(&self) -> f64 {
        self.quantile(0.0)
    }

    pub(crate) fn max(&self) -> f64 {
        self.quantile(1.0)
    }

    /// Round by round, this against `other`.
    pub(crate) fn against(&self, other: &Samples) -> Samples {
        self.pairs(other).map(|(a, b)| a / b).collect()
    }

    /// Round by round, by how much this is more than `other`.
    pub(crate) fn beyond(&self, other: &Samples) -> Samples {
        self.pairs(other).map(|(a, b)| a - b).collect()
    }

    fn pairs(&self, other: &Samples) -> impl Iterator<Item = (f64, f64)> {
        assert_eq!(self.0.len(), other.0.len(), "rounds come in pairs");
        self.0.iter().copied().zip(other.0.iter().copied())
    }
}

impl From<f64> for Samples {
    fn from(figure: f64) -> Samples {
        Samples(vec![figure])
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(figures: I) -> Samples {
        Samples(figures.into_iter().collect())
    }
}

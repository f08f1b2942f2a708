//! The output: one table of comparisons, and the raw figures behind them.

use std::env;
use std::fmt;
use std::fs;
use std::io;

use mortise_harness::Server;

use crate::plot;
use crate::samples::Samples;

/// The outcome of a run. Shown as Markdown.
#[derive(Debug)]
pub(crate) struct Report {
    head: Vec<String>,
    rows: Vec<Row>,
    bounds: Vec<Bound>,
    tables: Vec<Table>,
    raw: Vec<String>,
    plotted: Vec<plot::Row>,
}

/// Several rivals under the same load, ours first: one line for each, one column for each figure.
#[derive(Debug)]
struct Table {
    title: String,
    columns: Vec<String>,
    lines: Vec<(String, Vec<String>)>,
}

/// A figure in which several are compared.
#[derive(Debug)]
pub(crate) struct Figure<'a> {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// Whether the ratio means something.
    pub(crate) compared: bool,
    /// In the order of the compared ones.
    pub(crate) samples: Vec<&'a Samples>,
}

/// A figure of our own that has a bound.
#[derive(Debug)]
struct Bound {
    what: String,
    unit: &'static str,
    samples: Samples,
    at_most: f64,
}

/// One comparison.
#[derive(Debug)]
struct Row {
    what: String,
    unit: &'static str,
    ours: Samples,
    theirs: Samples,
    at_most: Option<f64>,
}

impl Report {
    /// For a run of this program with `args`.
    pub(crate) fn new(args: &[String], quick: bool) -> Report {
        let server = Server::builder().without_module().start();
        let allocator = server
            .info("memory")
            .remove("mem_allocator")
            .unwrap_or_default();
        let chosen = env::var("MORTISE_SERVER")
            .map(|path| format!("MORTISE_SERVER={path} "))
            .unwrap_or_default();
        let mut head = vec![
            format!("command: `{chosen}make bench ARGS='{}'`", args.join(" ")),
            format!("server: {}, {allocator}", server.version()),
            format!("machine: {}", machine()),
        ];
        if quick {
            head.push("--quick: counts too small to judge by".to_owned());
        }
        Report {
            head,
            rows: Vec::new(),
            bounds: Vec::new(),
            tables: Vec::new(),
            raw: Vec::new(),
            plotted: Vec::new(),
        }
    }

    /// A comparison whose ratio must not be above `at_most`.
    pub(crate) fn held(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        ours: &Samples,
        theirs: &Samples,
        at_most: f64,
    ) {
        self.row(what, unit, ours, theirs, Some(at_most));
    }

    /// A comparison without a bound.
    pub(crate) fn shown(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        ours: &Samples,
        theirs: &Samples,
    ) {
        self.row(what, unit, ours, theirs, None);
    }

    /// A figure whose median must not be above `at_most`, whatever others do.
    pub(crate) fn bound(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        samples: &Samples,
        at_most: f64,
    ) {
        self.bounds.push(Bound {
            what: what.into(),
            unit,
            samples: samples.clone(),
            at_most,
        });
    }

    fn row(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        ours: &Samples,
        theirs: &Samples,
        at_most: Option<f64>,
    ) {
        self.rows.push(Row {
            what: what.into(),
            unit,
            ours: ours.clone(),
            theirs: theirs.clone(),
            at_most,
        });
    }

    /// A comparison of several `names`, of which the first is ours.
    pub(crate) fn table(&mut self, title: impl Into<String>, names: &[String], figures: &[Figure]) {
        let cell = |figure: &Figure, line: usize| {
            let (ours, samples) = (figure.samples[0], figure.samples[line]);
            let median = number(samples.median());
            match ours.against(samples).median() {
                ratio if figure.compared && line > 0 && ratio.is_finite() => {
                    format!("{median} ({ratio:.3}×)")
                }
                _ => median,
            }
        };
        let column = |figure: &Figure| match figure.unit {
            "" => figure.name.to_owned(),
            unit => format!("{}, {unit}", figure.name),
        };
        let line = |(number, name): (usize, &String)| {
            let cells = figures.iter().map(|figure| cell(figure, number));
            (name.clone(), cells.collect())
        };
        self.tables.push(Table {
            title: title.into(),
            columns: figures.iter().map(column).collect(),
            lines: names.iter().enumerate().map(line).collect(),
        });
    }

    /// Raw figures of `what`: name, unit and samples of each.
    pub(crate) fn raw(&mut self, what: &str, figures: &[(&str, &str, &Samples)]) {
        let figures = figures
            .iter()
            .map(|(name, unit, samples)| format!("{name} {}", spread(samples, unit)));
        self.raw.push(format!(
            "{what}: {}",
            figures.collect::<Vec<_>>().join("; ")
        ));
    }
}

/// What becomes a plot.
impl Report {
    pub(crate) fn plot(&mut self, row: plot::Row) {
        self.plotted.push(row);
    }

    /// Puts figures and plot into the documentation.
    pub(crate) fn write_plot(&self) -> io::Result<()> {
        if self.plotted.is_empty() {
            return Err(io::Error::other("only contention is plotted"));
        }
        plot::write(&self.head, &self.plotted)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        for line in &self.head {
            writeln!(f, "- {line}")?;
        }
        writeln!(
            f,
            "\nMedian of the rounds (least–most). The ratio is the median of the ratios of the rounds.\n"
        )?;
        if !self.rows.is_empty() {
            writeln!(f, "| what | ours | theirs | ratio | at most | held? |")?;
            writeln!(f, "| --- | --- | --- | --- | --- | --- |")?;
        }
        for row in &self.rows {
            writeln!(f, "{row}")?;
        }
        if !self.bounds.is_empty() {
            writeln!(f, "\n| what | figure | at most | held? |")?;
            writeln!(f, "| --- | --- | --- | --- |")?;
        }
        for bound in &self.bounds {
            writeln!(f, "{bound}")?;
        }
        for table in &self.tables {
            write!(f, "{table}")?;
        }
        writeln!(f, "\nRaw figures:\n")?;
        for line in &self.raw {
            writeln!(f, "- {line}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ratio = self.ours.against(&self.theirs).median();
        let (at_most, held) = match self.at_most {
            Some(limit) if ratio <= limit => (format!("{}×", number(limit)), "yes"),
            Some(limit) => (format!("{}×", number(limit)), "**no**"),
            None => (String::new(), ""),
        };
        write!(
            f,
            "| {} | {} | {} | {ratio:.3}× | {at_most} | {held} |",
            self.what,
            spread(&self.ours, self.unit),
            spread(&self.theirs, self.unit),
        )
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, unit) = (self.at_most, self.unit);
        let held = match self.samples.median() <= limit {
            true => "yes",
            false => "**no**",
        };
        let figure = spread(&self.samples, unit);
        write!(f, "| {} | {figure} | {limit} {unit} | {held} |", self.what)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{} (in brackets: ours divided by theirs)\n",
            self.title
        )?;
        writeln!(f, "| | {} |", self.columns.join(" | "))?;
        writeln!(f, "| --- |{}", " --- |".repeat(self.columns.len()))?;
        for (name, cells) in &self.lines {
            writeln!(f, "| {name} | {} |", cells.join(" | "))?;
        }
        Ok(())
    }
}

/// Median, least and most.
fn spread(samples: &Samples, unit: &str) -> String {
    let [median, min, max] = [samples.median(), samples.min(), samples.max()].map(number);
    if min == max {
        format!("{median} {unit}")
    } else {
        format!("{median} {unit} ({min}–{max})")
    }
}

/// Three significant digits, or all those before the point.
fn number(figure: f64) -> String {
    match figure.abs() {
        size if size < 10.0 => format!("{figure:.2}"),
        size if size < 100.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}

/// A count with commas: 1,000,000.
pub(crate) fn count(count: usize) -> String {
    let digits = count.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    groups
        .map(|group| String::from_utf8_lossy(group))
        .collect::<Vec<_>>()
        .join(",")
}

/// The processor, and the number of cores.
fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("model name"))
        .map(|rest| rest.trim_start_matches([' ', '\t', ':']))
        .collect();
    match models.first() {
        Some(model) => format!("{} × {model}", models.len()),
        None => "unknown".to_owned(),
    }
}

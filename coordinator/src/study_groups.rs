//! By what the matches of a study are grouped: a label of the symbols, periods of time, or what dates divide.

use std::ops::Range;

use trawl_market::{TimeMicros, format_time, parse_time};

/// Dates that divide the bars of a study.
pub const DATES_MAX: usize = 64;
/// Periods by which bars are grouped. A label of that name takes precedence.
pub const PERIODS: [&str; 4] = ["year", "quarter", "month", "weekday"];
const DAY: TimeMicros = 86_400_000_000;
/// The epoch was a Thursday; weeks begin on Monday.
const MONDAY: i64 = 3;
const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Why nothing is grouped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupsError {
    /// A mistake of the user.
    #[error("the dataset has no label '{0}'")]
    NoLabel(String),
    /// A mistake of the user.
    #[error("{0} dates divide the bars; at most {DATES_MAX} are taken")]
    ManyDates(usize),
}

/// How matches are grouped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum By {
    Label(String),
    /// One of [`PERIODS`].
    Period(&'static str),
    /// Midnights, ascending.
    Dates(Vec<TimeMicros>),
}

/// The group of each time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Periods {
    pub of_time: Vec<usize>,
    pub names: Vec<String>,
    /// From the first time of a group to behind its last.
    pub spans: Vec<Range<usize>>,
}

impl By {
    /// What a text means in a dataset with these labels.
    pub fn of(text: &str, labels: &[String]) -> Result<Self, GroupsError> {
        let unknown = || GroupsError::NoLabel(text.to_owned());
        if labels.iter().any(|label| label == text) {
            return Ok(Self::Label(text.to_owned()));
        }
        if let Some(period) = PERIODS.into_iter().find(|period| *period == text) {
            return Ok(Self::Period(period));
        }
        let date = |text: &str| parse_time(text.trim()).filter(|time| time.rem_euclid(DAY) == 0);
        let mut dates: Vec<TimeMicros> = text.split(',').map(date).collect::<Option<_>>().ok_or_else(unknown)?;
        dates.sort_unstable();
        dates.dedup();
        if dates.len() > DATES_MAX {
            return Err(GroupsError::ManyDates(dates.len()));
        }
        Ok(Self::Dates(dates))
    }

    /// The label by which symbols are grouped.
    pub fn label(&self) -> Option<&str> {
        match self {
            Self::Label(label) => Some(label),
            Self::Period(_) | Self::Dates(_) => None,
        }
    }

    /// The groups of times of a clock on the wall, which ascend; `None` where symbols are grouped.
    pub fn periods(&self, times: impl Iterator<Item = TimeMicros>) -> Option<Periods> {
        if self.label().is_some() {
            return None;
        }
        let mut periods = Periods { of_time: Vec::new(), names: Vec::new(), spans: Vec::new() };
        for (at, time) in times.enumerate() {
            let name = self.name(time);
            // Times ascend: mostly it is the group of the time before.
            let known = periods.names.iter().rposition(|other| *other == name);
            let number = known.unwrap_or_else(|| {
                periods.names.push(name);
                periods.spans.push(at..at);
                periods.names.len() - 1
            });
            periods.of_time.push(number);
            periods.spans[number].end = at + 1;
        }
        // Weekdays begin with Monday, whatever day the first bar is of; others are in order.
        if *self == Self::Period("weekday") {
            periods.in_order_of(|name| WEEKDAYS.iter().position(|day| *day == name));
        }
        Some(periods)
    }

    /// The name of the group of a time.
    fn name(&self, time: TimeMicros) -> String {
        let text = format_time(time);
        let part = |range: Range<usize>| text.get(range).unwrap_or(&text);
        match self {
            Self::Label(label) => label.clone(),
            Self::Period("year") => part(0..4).to_owned(),
            Self::Period("month") => part(0..7).to_owned(),
            Self::Period("quarter") => {
                let month: u32 = part(5..7).parse().unwrap_or(1);
                format!("{} Q{}", part(0..4), month.div_ceil(3))
            }
            Self::Period(_) => WEEKDAYS[(time.div_euclid(DAY) + MONDAY).rem_euclid(7) as usize].to_owned(),
            Self::Dates(dates) => match dates.partition_point(|date| *date <= time) {
                0 => format!("before {}", dates.first().map_or_else(String::new, |date| format_time(*date))),
                after => format!("from {}", format_time(dates[after - 1])),
            },
        }
    }
}

impl Periods {
    fn in_order_of<K: Ord>(&mut self, key: impl Fn(&str) -> K) {
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        order.sort_by_key(|number| key(&self.names[*number]));
        let mut place = vec![0; order.len()];
        for (new, old) in order.iter().enumerate() {
            place[*old] = new;
        }
        self.names = order.iter().map(|old| self.names[*old].clone()).collect();
        self.spans = order.iter().map(|old| self.spans[*old].clone()).collect();
        self.of_time.iter_mut().for_each(|number| *number = place[*number]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(by: &str, times: &[&str]) -> Vec<String> {
        let times = times.iter().map(|time| parse_time(time).expect("a time"));
        let periods = By::of(by, &[]).expect(by).periods(times).expect("periods");
        for (at, number) in periods.of_time.iter().enumerate() {
            assert!(periods.spans[*number].contains(&at), "{periods:?}");
        }
        let of = |number: usize| periods.of_time.iter().filter(|other| **other == number).count();
        periods.names.iter().enumerate().map(|(number, name)| format!("{name}: {}", of(number))).collect()
    }

    #[test]
    fn bars_are_grouped_by_periods_and_by_dates() {
        let times = ["2023-12-29", "2024-01-02", "2024-03-28", "2024-04-01T14:30:00Z", "2024-04-05"];
        assert_eq!(groups("year", &times), ["2023: 1", "2024: 4"]);
        assert_eq!(groups("quarter", &times), ["2023 Q4: 1", "2024 Q1: 2", "2024 Q2: 2"]);
        assert_eq!(groups("month", &times), ["2023-12: 1", "2024-01: 1", "2024-03: 1", "2024-04: 2"]);
        assert_eq!(groups("weekday", &times), ["Monday: 1", "Tuesday: 1", "Thursday: 1", "Friday: 2"]);
        assert_eq!(
            groups("2024-04-01, 2024-01-02", &times),
            ["before 2024-01-02: 1", "from 2024-01-02: 2", "from 2024-04-01: 2"]
        );
    }

    #[test]
    fn a_label_takes_precedence_and_what_is_neither_is_refused() {
        let labels = ["sector", "month"].map(str::to_owned);
        assert_eq!(By::of("month", &labels).unwrap(), By::Label("month".to_owned()));
        assert_eq!(By::of("year", &labels).unwrap(), By::Period("year"));
        for unknown in ["sectors", "", "2024-01-02,", "2024-13-02", "2024-01-02T10:00:00Z"] {
            assert!(matches!(By::of(unknown, &labels), Err(GroupsError::NoLabel(_))), "{unknown}");
        }
        let many: Vec<String> = (0..=DATES_MAX as i64).map(|day| format_time(day * DAY)).collect();
        assert!(matches!(By::of(&many.join(","), &[]), Err(GroupsError::ManyDates(65))));
    }
}

//! Which tickers are those of one company: listings of two days and the dates on which tickers changed, as tickers with the times at
//! which a company had them.
//!
//! A company is known by its composite FIGI, since a ticker is used again by others. Where Polygon gives no FIGI, a ticker that is new
//! within the days that were asked for is asked for by itself. Dates of changes come from Polygon's ticker events; what contradicts
//! the listings is not used, and reported.

use std::collections::{BTreeMap, BTreeSet};

use trawl_market::TimeMicros;

use super::answers::Answers;
use super::client::encoded;
use super::day_files::date;
use super::reference::{Listed, Listings};
use super::tickers::alike;

/// A delisting is written up to so many days after the ticker changed, for a company that went on under another ticker.
const DELISTED_LATE: TimeMicros = 7 * 86_400_000_000;

/// A company's ticker for a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
    /// First instant; unknown when `None`.
    pub from: Option<TimeMicros>,
    /// First instant after; still the company's when `None`.
    pub to: Option<TimeMicros>,
    /// Ticker, name, exchange and kind.
    pub listed: Listed,
}

/// A company: its tickers one after another, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Company {
    pub tenures: Vec<Tenure>,
}

/// An event: from this date on the company has this ticker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Change {
    date: TimeMicros,
    ticker: String,
}

#[derive(Debug, serde::Deserialize)]
struct Events {
    #[serde(default)]
    events: Vec<Event>,
}

#[derive(Debug, serde::Deserialize)]
struct Event {
    date: Option<String>,
    ticker_change: Option<NewTicker>,
}

#[derive(Debug, serde::Deserialize)]
struct NewTicker {
    ticker: Option<String>,
}

/// Listings of one company.
#[derive(Debug, Default)]
struct Group {
    /// Of the last day, and delistings.
    last: Vec<Listed>,
    /// Of the first day, where the ticker is not among those.
    first: Vec<Listed>,
}

impl Group {
    fn tickers(&self) -> BTreeSet<&str> {
        self.last.iter().chain(&self.first).map(|one| one.ticker.as_str()).collect()
    }
}

/// The companies of listings, for which the changes of tickers are asked for where there may be some.
///
/// # Errors
/// Those of [`Answers::pages_if_any`].
pub fn companies(
    answers: Answers<'_>,
    listings: Listings,
    last_day: TimeMicros,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<Company>> {
    companies_of(listings, last_day, notes, |id| changes(answers, id))
}

/// The dates of a company's tickers, ascending; none where Polygon knows of none.
fn changes(answers: Answers<'_>, id: &str) -> anyhow::Result<Vec<Change>> {
    let path = format!("/vX/reference/tickers/{}/events?types=ticker_change", encoded(id));
    let mut all = Vec::new();
    for event in answers.pages_if_any::<Events>(&path)?.into_iter().flat_map(|page| page.events) {
        let ticker = event.ticker_change.and_then(|new| new.ticker).filter(|ticker| !ticker.trim().is_empty());
        if let (Some(date), Some(ticker)) = (event.date.as_deref().and_then(date), ticker) {
            all.push(Change { date, ticker });
        }
    }
    all.sort();
    all.dedup();
    Ok(all)
}

/// `changes`: asks for those of a FIGI or of a ticker.
fn companies_of(
    listings: Listings,
    last_day: TimeMicros,
    notes: &mut Vec<String>,
    mut changes: impl FnMut(&str) -> anyhow::Result<Vec<Change>>,
) -> anyhow::Result<Vec<Company>> {
    let knows_first = !listings.first.is_empty();
    let on_first: BTreeSet<String> = listings.first.iter().map(|one| one.ticker.clone()).collect();
    let mut companies = Vec::new();
    for group in groups(listings, last_day) {
        let figi = group.last.iter().chain(&group.first).find_map(|one| one.figi.clone());
        let is_new = |one: &Listed| one.delisted.is_none() && !on_first.contains(&one.ticker);
        let id = match (&figi, group.last.first()) {
            (Some(figi), _) if group.tickers().len() > 1 => figi.clone(),
            // It may have had another ticker on the first day, or be listed since.
            (None, Some(one)) if knows_first && is_new(one) => one.ticker.clone(),
            _ => {
                companies.extend(apart(group, last_day));
                continue;
            }
        };
        let known: Vec<Change> = changes(&id)?.into_iter().filter(|change| change.date <= last_day).collect();
        match of_changes(&group, known) {
            Ok(company) => companies.push(company),
            Err(why) => {
                let tickers: Vec<&str> = group.tickers().into_iter().collect();
                if tickers.len() > 1 {
                    notes.push(format!("{} are one company, and {why}: they stay apart", tickers.join(", ")));
                }
                companies.extend(apart(group, last_day));
            }
        }
    }
    absorb(&mut companies);
    Ok(companies)
}

/// Listings by company: by FIGI, else by ticker and name.
fn groups(listings: Listings, last_day: TimeMicros) -> Vec<Group> {
    let key = |one: &Listed| match &one.figi {
        Some(figi) => (figi.clone(), String::new()),
        None => (String::new(), format!("{}\n{}", one.ticker, one.name.to_lowercase())),
    };
    let mut groups: BTreeMap<(String, String), Group> = BTreeMap::new();
    let tickers: BTreeSet<String> = listings.last.iter().map(|one| one.ticker.clone()).collect();
    for one in listings.last {
        groups.entry(key(&one)).or_default().last.push(one);
    }
    for one in listings.first {
        match (&one.figi, groups.get_mut(&key(&one))) {
            (_, Some(group)) if group.tickers().contains(one.ticker.as_str()) => {}
            (Some(_), Some(group)) => group.first.push(one),
            // The ticker is known, and whose it was cannot be said.
            _ if tickers.contains(&one.ticker) => {}
            _ => {
                // Gone since, and in no answer about delistings.
                let gone = Listed { delisted: Some(last_day), is_undated: true, ..one };
                groups.entry(key(&gone)).or_default().last.push(gone);
            }
        }
    }
    groups.into_values().collect()
}

/// Each listing by itself: its ticker from the beginning on.
fn apart(group: Group, last_day: TimeMicros) -> Vec<Company> {
    let Group { mut last, first } = group;
    // The same company twice: what it is now, else what it was last.
    last.sort_by_key(|one| (one.ticker.clone(), one.delisted.unwrap_or(TimeMicros::MAX)));
    let mut kept: Vec<Listed> = Vec::new();
    for one in last {
        match kept.last_mut().filter(|before| before.ticker == one.ticker) {
            Some(before) => *before = one,
            None => kept.push(one),
        }
    }
    // Not listed on the last day; since when is not known.
    kept.extend(first.into_iter().map(|one| Listed { delisted: Some(last_day), is_undated: true, ..one }));
    let tenure = |listed: Listed| Tenure { from: None, to: listed.delisted, listed };
    kept.into_iter().map(|listed| Company { tenures: vec![tenure(listed)] }).collect()
}

/// The company of a group, with these changes; what is wrong where they do not fit the listings.
fn of_changes(group: &Group, mut changes: Vec<Change>) -> Result<Company, String> {
    changes.dedup_by(|later, before| later.ticker == before.ticker);
    let Some(newest) = changes.last() else {
        return Err("Polygon has no date of the change".to_owned());
    };
    if changes.windows(2).any(|pair| pair[0].date == pair[1].date) {
        return Err("Polygon gives it two tickers from one day on".to_owned());
    }
    let now = group.last.iter().max_by_key(|one| one.delisted.unwrap_or(TimeMicros::MAX));
    let Some(now) = now.or(group.first.first()) else { return Err("nothing is known of it".to_owned()) };
    if alike(&newest.ticker) != alike(&now.ticker) {
        return Err(format!("Polygon's changes end with {}, its listing with {}", newest.ticker, now.ticker));
    }
    if now.delisted.is_some_and(|end| end <= newest.date) {
        return Err(format!("it ends before it becomes {}", newest.ticker));
    }
    let ends = changes.iter().skip(1).map(|change| Some(change.date)).chain([now.delisted]);
    let tenures = changes.iter().zip(ends).map(|(change, to)| {
        let named = group.last.iter().chain(&group.first).find(|one| alike(&one.ticker) == alike(&change.ticker));
        let listed = named.unwrap_or(now).clone();
        let is_undated = now.is_undated && to == now.delisted;
        let listed = Listed { ticker: change.ticker.clone(), delisted: to, is_undated, ..listed };
        Tenure { from: Some(change.date), to, listed }
    });
    Ok(Company { tenures: tenures.collect() })
}

/// Leaves out delistings without a FIGI that are the old ticker of a company that is known with its changes.
fn absorb(companies: &mut Vec<Company>) {
    let mut ends: BTreeMap<String, Vec<(Option<TimeMicros>, TimeMicros)>> = BTreeMap::new();
    for company in companies.iter() {
        for tenure in company.tenures.iter().rev().skip(1) {
            let span = (tenure.from, tenure.to.unwrap_or(TimeMicros::MAX));
            ends.entry(alike(&tenure.listed.ticker)).or_default().push(span);
        }
    }
    companies.retain(|company| {
        let [only] = company.tenures.as_slice() else { return true };
        let (Some(end), None) = (only.to, &only.listed.figi) else { return true };
        let spans = ends.get(&alike(&only.listed.ticker)).map_or(&[][..], Vec::as_slice);
        !spans.iter().any(|(from, to)| from.is_none_or(|from| from < end) && end <= to.saturating_add(DELISTED_LATE))
    });
}

#[cfg(test)]
mod tests {
    use trawl_market::format_time;

    use super::*;

    fn one(ticker: &str, figi: &str, delisted: Option<&str>, name: &str) -> Listed {
        Listed {
            ticker: ticker.to_owned(),
            delisted: delisted.and_then(date),
            figi: Some(figi.to_owned()).filter(|figi| !figi.is_empty()),
            name: name.to_owned(),
            ..Listed::default()
        }
    }

    /// Companies as lines `TICKER from to NAME; ...`, the questions about changes, and the notes.
    fn found(
        last: &[Listed],
        first: &[Listed],
        changes: &[(&str, &[(&str, &str)])],
    ) -> (Vec<String>, Vec<String>, Vec<String>) {
        let (mut notes, mut asked) = (Vec::new(), Vec::new());
        let listings = Listings { last: last.to_vec(), first: first.to_vec() };
        let companies = companies_of(listings, date("2022-12-30").unwrap(), &mut notes, |id| {
            asked.push(id.to_owned());
            let known = changes.iter().find(|(other, _)| *other == id).map_or(&[][..], |(_, known)| known);
            Ok(known
                .iter()
                .map(|(day, ticker)| Change { date: date(day).unwrap(), ticker: (*ticker).to_owned() })
                .collect())
        });
        let time = |time: Option<TimeMicros>| time.map_or_else(|| "-".to_owned(), format_time);
        let tenure = |t: &Tenure| format!("{} {} {} {}", t.listed.ticker, time(t.from), time(t.to), t.listed.name);
        let line = |company: Company| company.tenures.iter().map(tenure).collect::<Vec<_>>().join("; ");
        let mut lines: Vec<String> = companies.unwrap().into_iter().map(line).collect();
        lines.sort();
        (lines, asked, notes)
    }

    const META: [(&str, &str); 2] = [("2012-05-18", "FB"), ("2022-06-09", "META")];

    #[test]
    fn a_company_that_was_renamed_is_one_and_a_ticker_of_two_companies_is_that_of_both() {
        let last = [one("META", "M", None, "Meta"), one("METV", "R", None, "Ball"), one("IBM", "I", None, "IBM")];
        let first = [one("FB", "M", None, "Facebook"), one("META", "R", None, "Ball"), one("IBM", "I", None, "IBM")];
        let fund: &[(&str, &str)] = &[("2021-06-30", "META"), ("2022-01-31", "METV")];
        let (lines, asked, notes) = found(&last, &first, &[("M", &META), ("R", fund)]);
        let expected = [
            "FB 2012-05-18 2022-06-09 Facebook; META 2022-06-09 - Meta",
            "IBM - - IBM",
            "META 2021-06-30 2022-01-31 Ball; METV 2022-01-31 - Ball",
        ];
        assert_eq!(lines, expected);
        assert_eq!(asked, ["M", "R"]);
        assert!(notes.is_empty(), "{notes:?}");
    }

    #[test]
    fn what_contradicts_the_listings_or_is_not_known_stays_apart_and_is_reported() {
        let (last, first) = ([one("META", "M", None, "Meta")], [one("FB", "M", None, "Facebook")]);
        for (changes, why) in [
            (&[][..], "FB, META are one company, and Polygon has no date of the change: they stay apart"),
            (&[("2012-05-18", "FB")], "Polygon's changes end with FB, its listing with META"),
            (&[("2022-06-09", "FB"), ("2022-06-09", "META")], "Polygon gives it two tickers from one day on"),
            // After the last day: not known then.
            (&[("2012-05-18", "FB"), ("2023-01-03", "META")], "Polygon's changes end with FB"),
        ] {
            let (lines, _, notes) = found(&last, &first, &[("M", changes)]);
            assert_eq!(lines, ["FB - 2022-12-30 Facebook", "META - - Meta"]);
            assert!(notes.len() == 1 && notes[0].contains(why), "{why}: {notes:?}");
        }
        let gone = [one("META", "M", Some("2022-06-01"), "Meta")];
        let (_, _, notes) = found(&gone, &first, &[("M", &META)]);
        assert!(notes[0].contains("it ends before it becomes META"), "{notes:?}");
    }

    #[test]
    fn a_company_that_was_renamed_and_delisted_ends_with_its_last_ticker() {
        let last = [one("TWO", "X", Some("2022-10-28"), "Gone")];
        let (lines, ..) =
            found(&last, &[one("ONE", "X", None, "Was")], &[("X", &[("2010-01-04", "ONE"), ("2022-03-01", "TWO")])]);
        assert_eq!(lines, ["ONE 2010-01-04 2022-03-01 Was; TWO 2022-03-01 2022-10-28 Gone"]);
        // There and back, which the listings of two days do not show, but the delistings do.
        let last = [one("AAA", "X", None, "Now"), one("BBB", "X", Some("2022-09-01"), "Between")];
        let back: &[(&str, &str)] = &[("2010-01-04", "AAA"), ("2022-03-01", "BBB"), ("2022-09-01", "AAA")];
        let (lines, ..) = found(&last, &[one("AAA", "X", None, "Was")], &[("X", back)]);
        assert_eq!(lines, ["AAA 2010-01-04 2022-03-01 Now; BBB 2022-03-01 2022-09-01 Between; AAA 2022-09-01 - Now"]);
    }

    #[test]
    fn without_a_figi_what_is_new_is_asked_for_by_its_ticker() {
        let last = [
            one("META", "", None, "Meta"),
            one("NEW", "", None, "New"),
            one("IBM", "", None, "IBM"),
            one("FB", "", Some("2022-06-10"), "Facebook"),
            one("FB", "", Some("2009-01-02"), "Falcon"),
        ];
        let first = [one("FB", "", None, "Facebook"), one("IBM", "", None, "IBM"), one("LOST", "", None, "Lost")];
        let (lines, asked, notes) = found(&last, &first, &[("META", &META)]);
        assert_eq!(asked, ["META", "NEW"]);
        // Its old ticker, delisted a day later, is no other company; the one that had it before is.
        let expected = [
            "FB - 2009-01-02 Falcon",
            "FB 2012-05-18 2022-06-09 Meta; META 2022-06-09 - Meta",
            "IBM - - IBM",
            "LOST - 2022-12-30 Lost",
            "NEW - - New",
        ];
        assert_eq!(lines, expected);
        assert!(notes.is_empty(), "{notes:?}");
        // Without the first day nothing can be new.
        assert!(found(&last, &[], &[]).1.is_empty());
    }
}

//! The comparison itself: two tables in, five lists of rows and some warnings out.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use trawl_plan::ANSWER_TIME;
use trawl_wire::Status;

use crate::failure::UserMistake;
use crate::output::table::short_snapshot;
use trawl_front::output::read::{AnswerTable, TableRow};

/// Fields of an identity in which two comparable answers may differ.
const EXPECTED_TO_DIFFER: [&str; 2] = ["as_of", "snapshot"];

/// Hex digits that are shown of a plan's or a snapshot's id.
const ID_DIGITS: usize = 64;

/// One of the two answers.
#[derive(Debug)]
pub struct Side {
    /// `A` or `B`.
    pub name: &'static str,
    /// The file as given.
    pub path: PathBuf,
    /// Its answer.
    pub table: AnswerTable,
}

impl Side {
    /// A field of the identity.
    pub fn identity(&self, field: &str) -> Option<&str> {
        self.table.identity.as_ref()?.get(field).map(String::as_str)
    }
}

/// A field in which the identities differ though they should agree; `None` where an identity does not have it.
#[derive(Debug, PartialEq, Eq, serde::Serialize)]
pub struct IdentityDifference {
    /// Name of the field.
    pub field: String,
    /// Its value in A.
    pub a: Option<String>,
    /// Its value in B.
    pub b: Option<String>,
}

/// What happened to a row between A and B.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Matched in B, and not in A.
    Entered,
    /// Matched in A, and not in B.
    Left,
    /// Matched in both.
    Still,
    /// B has no row of it.
    OnlyInA,
    /// A has no row of it.
    OnlyInB,
}

impl Change {
    /// All variants, in the order in which files have them.
    pub const ALL: [Self; 5] = [Self::Entered, Self::Left, Self::Still, Self::OnlyInA, Self::OnlyInB];

    /// All variants, in the order in which people read them: what did not change comes last.
    pub const SHOWN: [Self; 5] = [Self::Entered, Self::Left, Self::OnlyInA, Self::OnlyInB, Self::Still];

    /// As written in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Entered => "entered",
            Self::Left => "left",
            Self::Still => "still",
            Self::OnlyInA => "only_in_a",
            Self::OnlyInB => "only_in_b",
        }
    }
}

/// A symbol (with its settings) in both answers, or in one; at least one side is present.
#[derive(Debug, Clone, Copy)]
pub struct Pair<'a> {
    /// Its row in A.
    pub a: Option<&'a TableRow>,
    /// Its row in B.
    pub b: Option<&'a TableRow>,
}

impl<'a> Pair<'a> {
    /// A row that has symbol and settings: both sides agree on them.
    pub fn key(&self) -> Option<&'a TableRow> {
        self.b.or(self.a)
    }
}

/// What differs between two answers.
#[derive(Debug)]
pub struct Difference<'a> {
    /// The earlier answer.
    pub a: &'a Side,
    /// The later answer.
    pub b: &'a Side,
    /// Fields that should agree and do not.
    pub identity: Vec<IdentityDifference>,
    /// Warnings for people that the comparison may be meaningless.
    pub warnings: Vec<String>,
    /// Select columns of either answer, those of B first; with their index in A and in B.
    pub columns: Vec<(&'a str, Option<usize>, Option<usize>)>,
    /// The rows by what happened to them.
    pub changes: BTreeMap<Change, Vec<Pair<'a>>>,
}

impl<'a> Difference<'a> {
    /// Compares `a` with `b`.
    ///
    /// # Errors
    /// A [`UserMistake`] when there is no common key: sweeps over different settings.
    pub fn between(a: &'a Side, b: &'a Side) -> Result<Self, UserMistake> {
        // An answer without rows has no columns in JSON, and can be compared with any other.
        let empty = a.table.rows.is_empty() || b.table.rows.is_empty();
        if a.table.settings != b.table.settings && !empty {
            let is_of_many = |side: &Side| side.table.settings.first().is_some_and(|name| name == ANSWER_TIME);
            if is_of_many(a) != is_of_many(b) {
                let (many, one) = if is_of_many(a) { (a, b) } else { (b, a) };
                let (many, one) = (many.path.display(), one.path.display());
                return Err(UserMistake::with_help(
                    format!("'{many}' has the answers at many times, '{one}' has one"),
                    "compare two files of '--all-bars', or two answers",
                ));
            }
            let names = |side: &Side| match side.table.settings.is_empty() {
                true => format!("'{}' has no settings", side.path.display()),
                false => format!("'{}' has the settings {}", side.path.display(), side.table.settings.join(", ")),
            };
            return Err(UserMistake::with_help(
                format!("the answers have no rows to pair: {}, {}", names(a), names(b)),
                "compare two answers of one scan or of one sweep",
            ));
        }
        let identity = identity_differences(&a.table, &b.table);
        let changes = changes(&a.table.rows, &b.table.rows);
        let mut difference = Self { a, b, identity, warnings: Vec::new(), columns: columns(a, b), changes };
        difference.warnings = difference.warn();
        Ok(difference)
    }

    /// Rows of one kind, matches in order of their place, then by symbol.
    pub fn rows(&self, change: Change) -> &[Pair<'a>] {
        self.changes.get(&change).map_or(&[], Vec::as_slice)
    }

    /// Whether both identities are known and agree where they should.
    pub fn comparable(&self) -> bool {
        self.identity.is_empty() && self.a.table.identity.is_some() && self.b.table.identity.is_some()
    }

    /// Whether the matches of A and B differ.
    pub fn matches_differ(&self) -> bool {
        let matched = |row: Option<&TableRow>| row.is_some_and(|row| row.status == Status::Matched);
        let alone = |change| self.rows(change).iter().any(|pair| matched(pair.a) || matched(pair.b));
        !self.rows(Change::Entered).is_empty()
            || !self.rows(Change::Left).is_empty()
            || alone(Change::OnlyInA)
            || alone(Change::OnlyInB)
    }

    fn warn(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for side in [self.a, self.b].into_iter().filter(|side| side.table.identity.is_none()) {
            let beside = trawl_front::output::identity_path(&side.path);
            warnings.push(format!(
                "it is unknown whether the answers can be compared: '{}' has no '{}' beside it",
                side.path.display(),
                beside.file_name().unwrap_or_default().to_string_lossy()
            ));
        }
        warnings.dedup();
        if !self.identity.is_empty() {
            let given = |value: &Option<String>| value.as_deref().map_or("not given", shortened).to_owned();
            let fields: Vec<String> = self
                .identity
                .iter()
                .map(|d| format!("{} ({} in A, {} in B)", d.field, given(&d.a), given(&d.b)))
                .collect();
            warnings.push(format!("the answers are not of the same scan; they differ in {}", fields.join(", ")));
        }
        if let (Some(a), Some(b)) = (self.a.identity("as_of"), self.b.identity("as_of"))
            && self.a.identity("dataset") == self.b.identity("dataset")
            && b < a
        {
            warnings.push(format!(
                "B is of an earlier time than A ({b}, {a}): what entered is shown as left, and the reverse"
            ));
        }
        let lacking: Vec<String> = self
            .columns
            .iter()
            .filter_map(|(name, a, b)| match (a, b) {
                (Some(_), None) => Some(format!("'{name}' only in A")),
                (None, Some(_)) => Some(format!("'{name}' only in B")),
                _ => None,
            })
            .collect();
        if !lacking.is_empty() && !self.a.table.rows.is_empty() && !self.b.table.rows.is_empty() {
            warnings.push(format!("the answers have different columns: {}", lacking.join(", ")));
        }
        warnings
    }
}

/// Ids are shortened as elsewhere; names and versions are shown in full.
fn shortened(value: &str) -> &str {
    let is_id = value.len() == ID_DIGITS && value.bytes().all(|b| b.is_ascii_hexdigit());
    if is_id { short_snapshot(value) } else { value }
}

fn identity_differences(a: &AnswerTable, b: &AnswerTable) -> Vec<IdentityDifference> {
    let (Some(a), Some(b)) = (&a.identity, &b.identity) else { return Vec::new() };
    let mut fields: Vec<&String> = a.keys().chain(b.keys()).collect();
    fields.sort_unstable();
    fields.dedup();
    let differs = |field: &&String| !EXPECTED_TO_DIFFER.contains(&field.as_str()) && a.get(*field) != b.get(*field);
    fields
        .into_iter()
        .filter(differs)
        .map(|field| IdentityDifference { field: field.clone(), a: a.get(field).cloned(), b: b.get(field).cloned() })
        .collect()
}

fn columns<'a>(a: &'a Side, b: &'a Side) -> Vec<(&'a str, Option<usize>, Option<usize>)> {
    let (of_a, of_b) = (&a.table.select, &b.table.select);
    let index = |names: &[String], name: &str| names.iter().position(|n| n == name);
    let mut columns: Vec<_> =
        of_b.iter().enumerate().map(|(i, name)| (name.as_str(), index(of_a, name), Some(i))).collect();
    let gone = of_a.iter().enumerate().filter(|(_, name)| index(of_b, name).is_none());
    columns.extend(gone.map(|(i, name)| (name.as_str(), Some(i), None)));
    columns
}

fn changes<'a>(a: &'a [TableRow], b: &'a [TableRow]) -> BTreeMap<Change, Vec<Pair<'a>>> {
    let key = |row: &'a TableRow| (row.settings.as_slice(), row.symbol.as_str());
    let earlier: HashMap<_, &TableRow> = a.iter().map(|row| (key(row), row)).collect();
    let later: HashMap<_, &TableRow> = b.iter().map(|row| (key(row), row)).collect();
    let mut changes: BTreeMap<Change, Vec<Pair<'a>>> = BTreeMap::new();
    for row in b {
        let before = earlier.get(&key(row)).copied();
        let change = match (before.map(|before| before.status), row.status) {
            (None, _) => Change::OnlyInB,
            (Some(Status::Matched), Status::Matched) => Change::Still,
            (Some(Status::Matched), _) => Change::Left,
            (Some(_), Status::Matched) => Change::Entered,
            (Some(_), _) => continue,
        };
        changes.entry(change).or_default().push(Pair { a: before, b: Some(row) });
    }
    let gone = a.iter().filter(|row| !later.contains_key(&key(row)));
    for row in gone {
        changes.entry(Change::OnlyInA).or_default().push(Pair { a: Some(row), b: None });
    }
    for (change, pairs) in &mut changes {
        // The side on which a row matched decides its order: B, except for rows that left or are only in A.
        let placed = |pair: &Pair<'a>| match change {
            Change::Left | Change::OnlyInA => pair.a,
            _ => pair.b,
        };
        pairs.sort_by_cached_key(|pair| {
            let row = placed(pair);
            let unmatched = row.is_none_or(|row| row.status != Status::Matched);
            let place = row.and_then(|row| row.place).unwrap_or(u32::MAX);
            (row.map(|row| row.settings.clone()), unmatched, place, row.map(|row| row.symbol.clone()))
        });
    }
    changes
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// An answer: symbol, status, place, value of `close`.
    pub fn side(name: &'static str, as_of: &str, rows: &[(&str, Status, Option<u32>, f64)]) -> Side {
        let identity = [("plan", "p"), ("dataset", "us5"), ("as_of", as_of), ("snapshot", as_of)];
        let row = |&(symbol, status, place, close): &(&str, Status, Option<u32>, f64)| TableRow {
            settings: Vec::new(),
            symbol: symbol.to_owned(),
            status,
            reason: if status == Status::Stale { "no bar".to_owned() } else { String::new() },
            place,
            edge: None,
            provisional: None,
            values: vec![close],
        };
        let table = AnswerTable {
            identity: Some(identity.map(|(k, v)| (k.to_owned(), v.to_owned())).into()),
            answer_digest: Some(format!("digest of {name}")),
            name: None,
            settings: Vec::new(),
            select: vec!["close".to_owned()],
            rows: rows.iter().map(row).collect(),
        };
        Side { name, path: format!("{name}.csv").into(), table }
    }

    pub fn two_days() -> (Side, Side) {
        use Status::{Matched, NotMatched, Stale};
        let nan = f64::NAN;
        let a = [
            ("STAYS", Matched, Some(1), 1.5),
            ("GOES", Matched, Some(2), 2.0),
            ("DELISTED", Matched, Some(3), 3.0),
            ("COMES", NotMatched, None, nan),
            ("DULL", NotMatched, None, nan),
        ];
        let b = [
            ("COMES", Matched, Some(1), 9.0),
            ("STAYS", Matched, Some(2), 1.25),
            ("DULL", NotMatched, None, nan),
            ("GOES", Stale, None, nan),
            ("LISTED", NotMatched, None, nan),
        ];
        (side("A", "2013-02-21", &a), side("B", "2013-02-22", &b))
    }

    fn symbols(difference: &Difference<'_>, change: Change) -> Vec<String> {
        difference.rows(change).iter().map(|pair| pair.key().unwrap().symbol.clone()).collect()
    }

    #[test]
    fn every_match_and_every_symbol_of_one_answer_is_in_one_part() {
        let (a, b) = two_days();
        let difference = Difference::between(&a, &b).unwrap();
        assert!(difference.comparable() && difference.warnings.is_empty(), "{:?}", difference.warnings);
        let parts = Change::ALL.map(|change| symbols(&difference, change));
        assert_eq!(parts, [vec!["COMES"], vec!["GOES"], vec!["STAYS"], vec!["DELISTED"], vec!["LISTED"]]);
        assert!(difference.matches_differ());
        assert!(!Difference::between(&a, &a).unwrap().matches_differ());
    }

    #[test]
    fn a_match_of_a_symbol_that_only_one_has_is_a_difference() {
        let a = side("A", "1", &[("X", Status::Matched, Some(1), 1.0)]);
        let b = side("B", "2", &[("X", Status::Matched, Some(1), 1.0), ("Y", Status::NotMatched, None, 1.0)]);
        let c = side("B", "2", &[("X", Status::Matched, Some(1), 1.0), ("Y", Status::Matched, Some(2), 1.0)]);
        assert!(!Difference::between(&a, &b).unwrap().matches_differ());
        assert!(Difference::between(&a, &c).unwrap().matches_differ());
        assert!(Difference::between(&c, &a).unwrap().matches_differ());
    }

    #[test]
    fn answers_that_should_not_be_compared_are_reported_with_their_differences() {
        let (a, mut b) = two_days();
        let identity = b.table.identity.as_mut().unwrap();
        identity.insert("plan".to_owned(), "q".to_owned());
        identity.insert("calendar".to_owned(), "XNYS".to_owned());
        b.table.select = vec!["open".to_owned()];
        let difference = Difference::between(&a, &b).unwrap();
        assert!(!difference.comparable());
        let fields: Vec<&str> = difference.identity.iter().map(|d| d.field.as_str()).collect();
        assert_eq!(fields, ["calendar", "plan"]);
        let warnings = difference.warnings.join("\n");
        for part in
            ["plan (p in A, q in B)", "calendar (not given in A, XNYS in B)", "'close' only in A", "'open' only in B"]
        {
            assert!(warnings.contains(part), "{part}: {warnings}");
        }
    }

    #[test]
    fn the_wrong_order_and_a_missing_identity_are_reported() {
        let (mut a, b) = two_days();
        assert!(Difference::between(&b, &a).unwrap().warnings[0].contains("earlier time"));
        a.table.identity = None;
        let difference = Difference::between(&a, &b).unwrap();
        assert!(!difference.comparable());
        assert!(difference.warnings[0].contains("'A.csv' has no 'A.csv.identity.json'"), "{:?}", difference.warnings);
    }

    #[test]
    fn a_sweep_is_paired_by_setting_and_symbol_and_not_with_another_sweep() {
        let sweep = |name, n: [&str; 2], status: [Status; 2]| {
            let mut side = side(name, "1", &[("X", status[0], Some(1), 1.0), ("X", status[1], Some(1), 2.0)]);
            side.table.settings = vec!["n".to_owned()];
            side.table.rows[0].settings = vec![n[0].to_owned()];
            side.table.rows[1].settings = vec![n[1].to_owned()];
            side
        };
        use Status::{Matched, NotMatched};
        let (a, b) = (sweep("A", ["10", "20"], [Matched, NotMatched]), sweep("B", ["20", "30"], [Matched, Matched]));
        let difference = Difference::between(&a, &b).unwrap();
        let of =
            |change| difference.rows(change).iter().map(|p| p.key().unwrap().settings[0].as_str()).collect::<Vec<_>>();
        assert_eq!(
            (of(Change::Entered), of(Change::OnlyInA), of(Change::OnlyInB)),
            (vec!["20"], vec!["10"], vec!["30"])
        );
        let (plain, _) = two_days();
        let message = Difference::between(&plain, &b).unwrap_err().to_string();
        assert!(message.contains("'A.csv' has no settings, 'B.csv' has the settings n"), "{message}");
    }
}
